"""Reads ColBERT settings from a model's files: markers, lengths, query expansion, and tokens without vectors.

Supports sentence-transformers' MultiVectorEncoder, PyLate, and Stanford's ColBERT (Santhanam et al. 2021,
arXiv:2112.01488), and BGE-M3's ColBERT layer beside a pooling model (arXiv:2402.03216)."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence.modules import Module
from host.errors import LoadFailed

BESIDE = "colbert_linear"
_STANFORD = "HF_ColBERT"
_MODEL_TYPES = frozenset({"ColBERT", "MultiVectorEncoder"})
_SETTINGS = frozenset(
    {"attend_to_expansion_tokens", "attend_to_mask_tokens", "do_query_expansion", "document_length"}
    | {"document_prefix", "query_expansion", "query_length", "query_prefix", "skiplist_words"}
)
"""Settings that only such models have."""
_USUAL_LENGTH = 32
"""Tokens that ColBERT fills queries up to where no file says otherwise."""

Task = Literal["query", "document"]
Step = tuple[str, str]


class Expansion(msgspec.Struct, kw_only=True, frozen=True):
    """Queries are filled up with mask tokens, whose vectors count as well."""

    length: int
    fixed: bool = True
    """Queries that are longer are cut to `length`."""
    attend: bool = False
    """Mask tokens are attended to."""
    token: str | None = None


class ColbertConfig(msgspec.Struct, kw_only=True, frozen=True):
    """How token states become ColBERT vectors."""

    steps: tuple[Step, ...]
    """(`Dense`, its folder), (`Linear`, a file with `linear.weight`) or (`Normalize`, "")."""
    markers: dict[Task, str] = {}
    """A token before a query or a document that says which it is."""
    lengths: dict[Task, int] = {}
    expansion: Expansion | None = None
    skip_tokens: tuple[str, ...] = ()
    """Tokens without a vector."""
    skip_tasks: tuple[str, ...] = ("document",)
    document_ids: tuple[int, ...] | None = None
    """Ids of the only tokens of documents that get a vector."""
    skip_first: bool = False
    """The first token, which stands for the whole text, gets no vector."""


def is_one(listed: Sequence[Module], config: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Return whether the files are those of a ColBERT model."""
    if not listed:
        return _STANFORD in (config.get("architectures") or ())
    return settings.get("model_type") in _MODEL_TYPES or any(module.kind == "MultiVectorMask" for module in listed)


def beside(folder: Folder) -> ColbertConfig | None:
    """Return BGE-M3's ColBERT layer if its file lies beside the model as safetensors."""
    file = f"{BESIDE}.safetensors"
    if not folder.has(file):
        return None
    return ColbertConfig(steps=(("Linear", file), ("Normalize", "")), skip_first=True, skip_tasks=())


def read(
    folder: Folder, model: Folder, listed: Sequence[Module], settings: dict[str, Any], bert: dict[str, Any]
) -> ColbertConfig:
    """Return what the files say; raises `LoadFailed` for modules that are not served."""
    if not listed:
        return _stanford(model)
    steps: list[Step] = []
    mask: dict[str, Any] | None = None
    for module in listed[1:]:
        if module.kind == "MultiVectorMask":
            mask = module.config
        elif module.kind in ("Dense", "Normalize"):
            if module.tokens is False:
                raise LoadFailed(f"{module.path}/config.json: sentence_embedding in a ColBERT model is not served")
            steps.append((module.kind, module.path if module.kind == "Dense" else ""))
        elif module.kind != "Dropout":
            raise LoadFailed(f"modules.json: {module.kind} in a ColBERT model is not served")
    words = settings.get("skiplist_words")
    if mask is None:  # PyLate's folders list the layer alone: it scales and skips punctuation by itself
        steps.append(("Normalize", ""))
        mask = {"skiplist_words": list(string.punctuation) if words is None else words}
    tasks = mask.get("skiplist_tasks") or ["document"]
    document_ids = mask.get("keep_only_token_ids")
    return ColbertConfig(
        steps=tuple(steps),
        markers=_markers(settings),
        lengths=_lengths(settings, bert),
        expansion=_expansion(settings, bert),
        skip_tokens=tuple(mask.get("skiplist_words") or ()),
        skip_tasks=(tasks,) if isinstance(tasks, str) else tuple(tasks),
        document_ids=tuple(document_ids) if document_ids else None,
    )


def _markers(settings: dict[str, Any]) -> dict[Task, str]:
    tasks: tuple[Task, ...] = ("query", "document")
    said = {task: settings.get(f"{task}_prefix") for task in tasks}
    return {task: marker for task, marker in said.items() if isinstance(marker, str) and marker}


def _lengths(settings: dict[str, Any], bert: dict[str, Any]) -> dict[Task, int]:
    found: dict[Task, int] = {}
    for task in ("query", "document"):
        length = bert.get(f"{task}_length") or settings.get(f"{task}_length")
        if isinstance(length, int):
            found[task] = length
    return found


def _expansion(settings: dict[str, Any], bert: dict[str, Any]) -> Expansion | None:
    for source in (bert, settings):
        if "query_expansion" in source:
            said = source["query_expansion"]
            return None if said is None else _parse_expansion(said)
    if not _SETTINGS & settings.keys() or settings.get("do_query_expansion") is False:
        return None
    attend = settings.get("attend_to_expansion_tokens", settings.get("attend_to_mask_tokens"))
    return Expansion(length=settings.get("query_length") or _USUAL_LENGTH, attend=bool(attend))


def _parse_expansion(said: dict[str, Any]) -> Expansion:
    strategy, length = said.get("strategy"), said.get("length")
    if strategy not in ("fixed", "min") or not isinstance(length, int):
        raise LoadFailed(f"query_expansion: strategy {strategy!r} with length {length!r} is not known")
    return Expansion(length=length, fixed=strategy == "fixed", attend=bool(said.get("attend")), token=said.get("token"))


def _stanford(model: Folder) -> ColbertConfig:
    said = model.mapping("artifact.metadata")
    lengths: dict[Task, int] = {"document": said["doc_maxlen"]} if said.get("doc_maxlen") else {}
    return ColbertConfig(
        steps=(("Linear", "model.safetensors"), ("Normalize", "")),
        markers={
            "query": f"{said.get('query_token_id') or '[unused0]'} ",
            "document": f"{said.get('doc_token_id') or '[unused1]'} ",
        },
        lengths=lengths,
        expansion=Expansion(
            length=said.get("query_maxlen") or _USUAL_LENGTH, attend=bool(said.get("attend_to_mask_tokens"))
        ),
        skip_tokens=tuple(string.punctuation) if said.get("mask_punctuation", True) else (),
    )
