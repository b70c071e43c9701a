"""What sentence-transformers writes beside a reranker's weights: its prompt for pairs, the tokens that answer, and what
becomes of a logit.

A prompt is a chat template that knows the roles `query` and `document`. It is rendered once, around places for the
texts. Formats: https://sbert.net/docs/cross_encoder/usage/custom_models.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from functions.engines.chat_template import ChatTemplate, TemplateError
from functions.engines.checkpoint.folder import Folder
from functions.rerank import score_mapping
from functions.rerank.prompt import fault
from host.errors import InvalidRequest, LoadFailed

_SETTINGS = "config_sentence_transformers.json"
_ROLES = tuple(re.compile(f"[\"']{role}[\"']") for role in ("query", "document"))
_NOT_FOR_TEMPLATES = frozenset(
    {"add_generation_prompt", "max_length", "padding", "restore_suffix", "return_dict", "return_tensors", "tokenize"}
    | {"truncation"}
)
"""Settings beside a template's own variables."""


class ModelCard(msgspec.Struct, kw_only=True, frozen=True):
    """What the files say; None where they say nothing."""

    prompt: str | None = None
    """With places, as `functions.rerank.prompt.Prompt` takes it; it has all special tokens in it."""
    instruction: str | None = None
    """What stands in the prompt's place for one when nobody says any."""
    answers: tuple[int, int | None] | None = None
    """Ids of yes and no; without a no the logit of yes is the score."""
    activation: str | None = None
    """A dotted path."""


def read(folder: Folder, config: Mapping[str, Any]) -> ModelCard:
    """Return what the folder says; raises `LoadFailed` for a template of its own that cannot be used.

    `config` is the model's `config.json`.
    """
    settings = folder.mapping(_SETTINGS)
    prompt, instruction = _prompt(folder, settings)
    return ModelCard(
        prompt=prompt,
        instruction=instruction,
        answers=_answers(folder),
        activation=score_mapping.stated(config, settings),
    )


def _answers(folder: Folder) -> tuple[int, int | None] | None:
    for entry in folder.json("modules.json") or []:
        if str(entry.get("type", "")).endswith(".LogitScore"):
            found = folder.inside(str(entry.get("path", ""))).mapping("config.json")
            yes, no = found.get("true_token_id"), found.get("false_token_id")
            if not isinstance(yes, int) or not isinstance(no, int | None):
                raise LoadFailed("modules.json names a LogitScore whose config.json has no token ids")
            return yes, no
    return None


def _prompt(folder: Folder, settings: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the prompt and the instruction that belongs in it, if there is a place for one."""
    source = _source(folder)
    if source is None or not all(role.search(source) for role in _ROLES):
        return None, None
    stated = folder.mapping("sentence_bert_config.json")
    bare = _rendered(folder, source, stated, instructed=False)
    placed = _rendered(folder, source, stated, instructed=True)
    named = settings.get("default_prompt_name")
    default = (settings.get("prompts") or {}).get(named) if named else None
    if placed is not None and "{instruction}" in placed:
        own = default or _between(bare, placed)
        if own is not None:
            return placed, own
    if bare is None:
        raise LoadFailed(
            "the folder's chat template has the roles query and document, and shows no text of theirs: "
            "set options.prompt, with {query} and {document} in it",
            param="options.prompt",
        )
    return bare, None


def _between(bare: str | None, placed: str) -> str | None:
    """Return the instruction that a template has of its own: what stands in the place of a stated one."""
    before, _, behind = placed.partition("{instruction}")
    if bare is None or not (bare.startswith(before) and bare.endswith(behind)):
        return None
    return bare[len(before) : len(bare) - len(behind)] or None


def _rendered(folder: Folder, source: str, stated: Mapping[str, Any], *, instructed: bool) -> str | None:
    """Return the template around the places; None where it does not show them."""
    settings = (stated.get("processing_kwargs") or {}).get("chat_template") or {}
    extra = {name: value for name, value in settings.items() if name not in _NOT_FOR_TEMPLATES}
    names = folder.mapping("tokenizer_config.json")
    try:
        template = ChatTemplate(source, bos=_spelled(names.get("bos_token")), eos=_spelled(names.get("eos_token")))
        for wrap in (_flat, _structured):
            messages = [{"role": role, "content": wrap(f"{{{role}}}")} for role in ("query", "document")]
            if instructed:
                messages.insert(0, {"role": "system", "content": wrap("{instruction}")})
            try:
                text = template.render(messages, extra, open_answer=bool(settings.get("add_generation_prompt")))
            except InvalidRequest:
                continue
            if fault(text) is None:
                return text
    except TemplateError as error:
        raise LoadFailed(f"the folder's chat template cannot be read: {error}") from error
    return None


def _flat(text: str) -> Any:
    return text


def _structured(text: str) -> Any:
    return [{"type": "text", "text": text}]


def _source(folder: Folder) -> str | None:
    """Return the folder's chat template, which newer files have beside the tokenizer and older ones inside it."""
    if folder.has("chat_template.jinja"):
        return (folder.path / "chat_template.jinja").read_text("utf-8", "replace")
    for name in ("chat_template.json", "tokenizer_config.json"):
        found = folder.mapping(name).get("chat_template")
        if isinstance(found, list):
            found = next((entry.get("template") for entry in found if entry.get("name") == "default"), None)
        if isinstance(found, str):
            return found
    return None


def _spelled(token: Any) -> str:
    return str(token.get("content", "") if isinstance(token, dict) else token or "")
