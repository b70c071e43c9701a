"""Requests, answers and JSON bodies of `/v1/classify` and of OpenAI's `/v1/moderations`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from host.function import Usage

TEXTS_MAX = 2048
"""Texts of one request."""
LABELS_MAX = 256
"""Labels of one zero-shot request: each is computed with each text."""

Texts = Annotated[
    str | list[Any] | dict[str, Any],
    msgspec.Meta(
        description="A text or a pair, or a list of them. A pair is `{text, text_pair}`, or in a list `[text, text]`; "
        "`[text]` in a list is a text.",
        extra_json_schema={
            "type": ["string", "object", "array"],
            "items": {"type": ["string", "object", "array"]},
        },
    ),
]
"""Items are checked in `functions.classify.inputs`, whose errors name the item."""


class ClassifyRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /v1/classify`. `null` is the same as absent, and unknown fields are refused."""

    model: str | None = None
    """The manifest's name or an alias of it; may be left out where one model alone classifies."""
    input: Texts | None = None
    """What to classify: at most 2,048 texts or pairs."""
    texts: Texts | None = None
    """Another name for `input`, as the Universal Runtime has it."""
    inputs: Texts | None = None
    """Another name for `input`, as Hugging Face's clients have it. A list of texts is never a pair itself."""
    labels: str | list[Any] | None = None
    """Zero-shot: the labels to choose from, a list or separated by commas; for models of natural language inference."""
    multi_label: bool | None = None
    """Zero-shot: several labels may be right, and each is scored by itself."""
    hypothesis_template: str | None = None
    """Zero-shot: the sentence that is true of a text when the label, in the place of `{}`, is right."""
    top_k: int | None = None
    """The most labels listed for a text."""
    threshold: float | dict[str, float] | None = None
    """The score from 0 to 1 from which a label is listed, or one for each label by its name."""
    raw_scores: bool | None = None
    """Answer the model's own numbers (logits) as scores. Which labels are listed stays the same."""
    function_to_apply: str | None = None
    """The activation that turns logits into scores, in place of the model's: `softmax`, `sigmoid` or `none`."""
    windows: str | None = None
    """How to read a text that is longer than the model takes: `mean`, `max`, `first` or `off`."""
    truncate: bool | None = None
    """`true` is `windows: first`; `false` reads all of a text, or answers 400."""
    max_length: int | None = None
    """The most tokens computed at once, if fewer than the model takes; longer texts are read as `windows` says."""
    user: Any = None
    """Accepted and ignored."""


class LabelScore(msgspec.Struct, kw_only=True, frozen=True):
    """A label and its score."""

    label: str
    score: float


class Classification(msgspec.Struct, kw_only=True, frozen=True):
    """The labels of one text or pair."""

    index: int
    label: str
    """The best label, whatever the threshold."""
    score: float
    labels: list[LabelScore]
    """The labels that reach the threshold, best first, `top_k` of them at most."""
    all_scores: dict[str, float]
    """Every label's score, in the model's order or in that of `labels`."""
    windows: int = 1
    """How many windows the text was read in."""
    truncated: bool = False
    """Whether the end of the text was not read."""


class ClassifyAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """The classifications of one request, in the order of its texts."""

    model: str
    """The manifest's name."""
    data: list[Classification]
    usage: Usage
    """Tokens computed, special tokens included: overlaps and zero-shot's hypotheses count each time."""


class ClassifyUsage(msgspec.Struct, kw_only=True, frozen=True):
    """Tokens of all texts."""

    prompt_tokens: int
    total_tokens: int


class ClassificationList(msgspec.Struct, kw_only=True, frozen=True):
    """The body of the response."""

    object: Literal["list"] = "list"
    data: list[Classification]
    total_count: int
    model: str
    usage: ClassifyUsage


class ModerationRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The body of `POST /v1/moderations`, as OpenAI's SDKs send it."""

    input: Annotated[
        str | list[Any],
        msgspec.Meta(
            description="A text, a list of texts, or the text parts of one input: `{type: text, text: …}`.",
            extra_json_schema={"type": ["string", "array"], "items": {"type": ["string", "object"]}},
        ),
    ]
    model: str | None = None
    """The manifest's name or an alias of it; may be left out where one model alone moderates."""


class Moderation(msgspec.Struct, kw_only=True, frozen=True):
    """The moderation of one input. Every mapping has all of OpenAI's categories."""

    flagged: bool
    categories: dict[str, bool]
    category_scores: dict[str, float]
    category_applied_input_types: dict[str, list[str]]
    """`["text"]`, or an empty list for a category that no label of the model maps to."""


class ModerationAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """The moderations of one request, in the order of its inputs."""

    model: str
    """The manifest's name."""
    results: list[Moderation]
    usage: Usage


class ModerationList(msgspec.Struct, kw_only=True, frozen=True):
    """The body of the response."""

    id: str
    model: str
    results: list[Moderation]
