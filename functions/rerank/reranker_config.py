"""Reads what sentence-transformers writes beside a reranker's weights: prompt, answer tokens and activation.

The prompt is a chat template with the roles `query` and `document`, which is rendered once with placeholders for the
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
from functions.rerank.prompt import template_error
from host.errors import InvalidRequest, LoadFailed

_SETTINGS = "config_sentence_transformers.json"
_ROLES = tuple(re.compile(f"[\"']{role}[\"']") for role in ("query", "document"))
_NOT_FOR_TEMPLATES = frozenset(
    {"add_generation_prompt", "max_length", "padding", "restore_suffix", "return_dict", "return_tensors", "tokenize"}
    | {"truncation"}
)
"""Settings of `apply_chat_template` that are not the template's own variables."""


class RerankerConfig(msgspec.Struct, kw_only=True, frozen=True):
    """The settings in a model's files; None for those that are not there."""

    prompt: str | None = None
    """With placeholders, as `functions.rerank.prompt.Prompt` takes it; it has all special tokens in it."""
    instruction: str | None = None
    """The default instruction of the prompt."""
    answers: tuple[int, int | None] | None = None
    """Ids of yes and no; without a no the logit of yes is the score."""
    activation: str | None = None
    """A dotted path."""


def read(folder: Folder, config: Mapping[str, Any]) -> RerankerConfig:
    """Return a folder's settings; raises `LoadFailed` for a chat template that cannot be used.

    `config` is the model's `config.json`.
    """
    settings = folder.mapping(_SETTINGS)
    prompt, instruction = _prompt(folder, settings)
    return RerankerConfig(
        prompt=prompt,
        instruction=instruction,
        answers=_answers(folder),
        activation=score_mapping.configured_activation(config, settings),
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
    """Return the prompt and its default instruction, None where it has no placeholder for one."""
    source = _source(folder)
    if source is None or not all(role.search(source) for role in _ROLES):
        return None, None
    sbert_config = folder.mapping("sentence_bert_config.json")
    bare = _render(folder, source, sbert_config, with_instruction=False)
    with_place = _render(folder, source, sbert_config, with_instruction=True)
    named = settings.get("default_prompt_name")
    default = (settings.get("prompts") or {}).get(named) if named else None
    if with_place is not None and "{instruction}" in with_place:
        own = default or _default_instruction(bare, with_place)
        if own is not None:
            return with_place, own
    if bare is None:
        raise LoadFailed(
            "the folder's chat template has the roles query and document, and does not show their texts: "
            "set options.prompt, with {query} and {document} in it",
            param="options.prompt",
        )
    return bare, None


def _default_instruction(bare: str | None, with_place: str) -> str | None:
    """Return the template's own instruction: the text in the place of the placeholder."""
    before, _, behind = with_place.partition("{instruction}")
    if bare is None or not (bare.startswith(before) and bare.endswith(behind)):
        return None
    return bare[len(before) : len(bare) - len(behind)] or None


def _render(folder: Folder, source: str, sbert_config: Mapping[str, Any], *, with_instruction: bool) -> str | None:
    """Return the template rendered with placeholders; None where the placeholders are not in it."""
    settings = (sbert_config.get("processing_kwargs") or {}).get("chat_template") or {}
    extra = {name: value for name, value in settings.items() if name not in _NOT_FOR_TEMPLATES}
    names = folder.mapping("tokenizer_config.json")
    try:
        template = ChatTemplate(
            source, bos=_token_text(names.get("bos_token")), eos=_token_text(names.get("eos_token"))
        )
        for wrap in (_flat, _structured):
            messages = [{"role": role, "content": wrap(f"{{{role}}}")} for role in ("query", "document")]
            if with_instruction:
                messages.insert(0, {"role": "system", "content": wrap("{instruction}")})
            try:
                text = template.render(messages, extra, open_answer=bool(settings.get("add_generation_prompt")))
            except InvalidRequest:
                continue
            if template_error(text) is None:
                return text
    except TemplateError as error:
        raise LoadFailed(f"the folder's chat template cannot be read: {error}") from error
    return None


def _flat(text: str) -> Any:
    return text


def _structured(text: str) -> Any:
    return [{"type": "text", "text": text}]


def _source(folder: Folder) -> str | None:
    """Return the folder's chat template: a file of its own in newer folders, part of the tokenizer's in older ones."""
    if folder.has("chat_template.jinja"):
        return (folder.path / "chat_template.jinja").read_text("utf-8", "replace")
    for name in ("chat_template.json", "tokenizer_config.json"):
        found = folder.mapping(name).get("chat_template")
        if isinstance(found, list):
            found = next((entry.get("template") for entry in found if entry.get("name") == "default"), None)
        if isinstance(found, str):
            return found
    return None


def _token_text(token: Any) -> str:
    return str(token.get("content", "") if isinstance(token, dict) else token or "")
