"""The manifest's `options` for the ner function, on any engine."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from functions.ner.redaction import template_error


class NerOptions(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The manifest's `options` when the task is `ner`, beside the engine's."""

    aggregation_strategy: Literal["simple", "first", "average", "max"] = "simple"
    """How the labels of a word's tokens are combined; a request's value goes first."""
    threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Least score of an entity; a request's value goes first."""
    redaction: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] = "[{label}]"
    """The replacement of entities in redacted texts; a request's value goes first. `{label}` is the entity's type,
    `{n}` its number; a single character is repeated as often as the entity has characters."""
    stride: Annotated[int, msgspec.Meta(ge=0)] | Literal["auto"] = "auto"
    """Tokens that neighbouring windows of a long text share; never more than half of one. `auto` is a quarter, at most
    128."""
    join: bool = False
    """Make one entity of those of one type that touch, with no character between them: for models that begin anew at
    every part of an e-mail address or a number."""
    words: Literal["auto", "spaces"] = "auto"
    """What is never cut: `auto` takes punctuation off words and leaves what is written without spaces, such as Chinese,
    to the tokens; `spaces` is all between two spaces, as Transformers guesses it for tokenizers other than WordPiece.
    """
    rename: dict[str, str] = {}
    """Other names for the model's labels, prefix and all, where its own say nothing: `{LABEL_0: O, LABEL_1: B-PER}`."""

    def __post_init__(self) -> None:
        """Check the redaction's placeholders; raises `ValueError`, which the manifest reader reports with its line."""
        wrong = template_error(self.redaction)
        if wrong is not None:
            raise ValueError(f"`redaction` {wrong}")
