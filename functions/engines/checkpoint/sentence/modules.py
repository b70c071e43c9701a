"""The modules that a sentence-transformers folder lists, checked: which kinds they are, and where each one lies.

`modules.json` names classes by their Python path, which differs between releases; what counts is the class's name.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from functions.engines.checkpoint.folder import Folder
from host.errors import LoadFailed

KNOWN = frozenset(
    {"Asym", "CLIPModel", "Dense", "Dropout", "LayerNorm", "MLMTransformer", "MultiVectorMask", "Normalize", "Pooling"}
    | {"Router", "SparseStaticEmbedding", "SpladePooling", "StaticEmbedding", "Transformer", "WeightedLayerPooling"}
)
ENCODERS = frozenset({"CLIPModel", "MLMTransformer", "Transformer"})
TABLES: dict[str, Literal["dense", "sparse"]] = {"StaticEmbedding": "dense", "SparseStaticEmbedding": "sparse"}
"""Models that are a table with a row or a weight for each token, and have no encoder."""
ROUTERS = frozenset({"Asym", "Router"})
AFTER = frozenset({"Dense", "LayerNorm", "Normalize"})
"""What may follow pooling and computes something."""
_LIBRARIES = ("sentence_transformers.", "pylate.models.")
_SETTINGS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_TOKENS, _POOLED = "token_embeddings", "sentence_embedding"


class Module(msgspec.Struct, frozen=True):
    """One entry of `modules.json`."""

    kind: str
    path: str
    config: dict[str, Any] = {}

    @property
    def tokens(self) -> bool | None:
        """Whether it applies to token vectors rather than the pooled one; None if its file does not state it."""
        given = self.config.get("module_input_name")
        return None if given is None else given == _TOKENS


def read(folder: Folder) -> list[Module]:
    """Return the entries in order; empty where there is no `modules.json`. Raises `LoadFailed` for unknown ones."""
    found: list[Module] = []
    listed = folder.json("modules.json") or []
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise LoadFailed("modules.json should hold a list of objects")
    for entry in listed:
        found.append(one(folder, str(entry.get("type", "")), str(entry.get("path", "")), "modules.json"))
    return found


def one(folder: Folder, name: str, path: str, place: str) -> Module:
    """Return the module of the class `name` in `path`; raises `LoadFailed` for one that `place` should not name."""
    kind = name.rpartition(".")[2]
    if not name.startswith(_LIBRARIES) or kind not in KNOWN:
        raise LoadFailed(f"{place}: {name} is not served; known are {', '.join(sorted(KNOWN))}")
    bare = kind in ENCODERS or kind in TABLES or kind in ROUTERS
    made = Module(kind, path, {} if bare else folder.mapping(f"{path}/config.json"))
    given = made.config.get("module_input_name") or _POOLED
    if (made.config.get("module_output_name") or given) != given:
        raise LoadFailed(f"{path}/config.json: a module_output_name that is not its module_input_name is not served")
    return made


def settings(folder: Folder, model: Folder) -> dict[str, Any]:
    """Return what `sentence_bert_config.json`, or the older name for the architecture, says of the Transformer.

    Raises `LoadFailed` for ways of calling the model that are not served.
    """
    for place in (model, folder):
        for name in _SETTINGS:
            if found := place.mapping(f"sentence_{name}_config.json"):
                return _checked(found, f"sentence_{name}_config.json")
    return {}


def _checked(found: dict[str, Any], name: str) -> dict[str, Any]:
    ways = found.get("modality_config") or {}
    if "message" in ways:
        raise LoadFailed(f"{name}: inputs as chat messages (modality `message`) are not served")
    if ways and "text" not in ways:
        raise LoadFailed(f"{name}: the model takes {', '.join(ways)} and no text, which is not served")
    return found
