"""The manifest's `options` for the rerank function, on any engine."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from functions.rerank.prompt import template_error

Count = Annotated[int, msgspec.Meta(ge=1)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class RerankOptions(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The manifest's `options` when the task is `rerank`, beside the engine's."""

    method: Literal["auto", "cross_encoder", "yes_no", "cosine"] = "auto"
    """How documents are scored. `cross_encoder`: a model with a head reads query and document together. `yes_no`: a
    language model's next token, by its odds of yes against no. `cosine`: an embedding model, by the
    cosine of query and document; quick and coarse, and taken only when named here. `auto` is what the files are made
    for."""
    truncate: bool = False
    """Cut documents that are longer than the model takes, instead of answering 400. What a request says goes first."""
    chunks: Count | None = None
    """Read over-long documents in up to so many pieces, of which the best one counts. A request's `max_chunks_per_doc`
    goes first."""
    label: Text | None = None
    """The label of a cross-encoder with several that means relevant, where its name is none of the usual ones."""
    activation: Literal["auto", "sigmoid", "identity"] = "auto"
    """The activation of a cross-encoder's single logit, or of the odds of yes. `auto` is what the model's files name,
    else `sigmoid`."""
    instruction: Text | None = None
    """What to look for, in prompts with a place for it, when the request does not say."""
    prompt: Text | None = None
    """What the model reads, with `{query}`, `{document}` and perhaps `{instruction}` in it. Default: the model's own,
    where it is known."""
    yes_word: Text = "yes"
    """`yes_no`: the token that means relevant."""
    no_word: Text = "no"
    """`yes_no`: the token that means irrelevant."""
    prompts: dict[str, str] = {}
    """`cosine`: texts to put before the `query` and before each `document`; they replace the model's own."""
    self_test: bool = True
    """Score a few plain English pairs when the model is loaded, and refuse a model that scores unrelated documents
    higher: its head was lost in a conversion. Switch it off for models that do not read English."""

    def __post_init__(self) -> None:
        """Check the prompt; raises `ValueError`, which the manifest reader reports with its line."""
        error = template_error(self.prompt) if self.prompt is not None else None
        if error is not None:
            raise ValueError(f"`prompt`: {error}")
