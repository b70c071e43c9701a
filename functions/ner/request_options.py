"""Resolves a request's options: its own fields, else the manifest's, checked against the model."""

from __future__ import annotations

import msgspec

from functions.ner.aggregation import Strategy
from functions.ner.api import NerRequest
from functions.ner.options import NerOptions
from functions.ner.tags import TagScheme
from host.errors import InvalidRequest

_OVERLAP_MAX = 128
"""Default tokens that windows share at most. Longer entities than half of this may lose context; they are rare."""


class ResolvedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one request."""

    strategy: Strategy
    threshold: float
    types: frozenset[int] | None
    """Indexes of the entity types to return; None for all."""
    redaction: str | None
    """The replacement template; None for no redaction."""
    window: int
    """Tokens of a window, without special ones."""
    overlap: int
    """Tokens that neighbouring windows share."""
    offset_unit: str


def resolve_options(
    request: NerRequest, options: NerOptions, tags: TagScheme, *, max_length: int, special_tokens: int
) -> ResolvedOptions:
    """Return a request's options; raises `InvalidRequest`.

    `max_length` is the model's limit in tokens, of which `special_tokens` are around every window.
    """
    window = _window(request, max_length, special_tokens)
    redacts = request.redaction is not None if request.redact is None else request.redact
    return ResolvedOptions(
        strategy=request.aggregation_strategy or options.aggregation_strategy,  # type: ignore[arg-type]  # was checked
        threshold=options.threshold if request.threshold is None else request.threshold,
        types=None if request.labels is None else _types(request.labels, tags),
        redaction=(request.redaction or options.redaction) if redacts else None,
        window=window,
        overlap=_overlap(request.stride, options, window),
        offset_unit=request.offset_unit or "codepoint",
    )


def default_overlap(options: NerOptions, window: int) -> int:
    """Return the tokens that windows share by default: never more than half of one."""
    return min(window // 4, _OVERLAP_MAX) if options.stride == "auto" else min(options.stride, window // 2)


def _window(request: NerRequest, max_length: int, special_tokens: int) -> int:
    if request.max_length is not None and request.max_length > max_length:
        raise InvalidRequest(
            f"max_length is {request.max_length}, the model takes {max_length} tokens", param="max_length"
        )
    window = (request.max_length or max_length) - special_tokens
    if window < 1:
        raise InvalidRequest(
            f"max_length must be more than the {special_tokens} special tokens of this model, got {request.max_length}",
            param="max_length",
        )
    return window


def _overlap(stride: int | None, options: NerOptions, window: int) -> int:
    if stride is None:
        return default_overlap(options, window)
    if stride > window // 2:
        raise InvalidRequest(
            f"stride must be at most half of a window, which is {window // 2} tokens here, got {stride}", param="stride"
        )
    return stride


def _types(labels: list[str], tags: TagScheme) -> frozenset[int]:
    for at, label in enumerate(labels):
        if label not in tags.names:
            raise InvalidRequest(
                f"labels[{at}] is {label!r}, which this model does not find; it finds: {', '.join(sorted(tags.names))}",
                param=f"labels[{at}]",
            )
    return frozenset(tags.names.index(label) for label in labels)
