"""What one request wants of one model: what it says itself, else what the manifest says, checked against the model."""

from __future__ import annotations

import msgspec

from functions.ner.api import NerRequest
from functions.ner.options import NerOptions
from functions.ner.strategies import Strategy
from functions.ner.tags import Tags
from host.errors import InvalidRequest

_OVERLAP_MAX = 128
"""An entity that is longer than the half of this can lose context at a seam; few are."""


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How entities are looked for, and told."""

    strategy: Strategy
    threshold: float
    kept: frozenset[int] | None
    """Places of the types that are kept; None for all."""
    redaction: str | None
    room: int
    """Tokens of a window, without special ones."""
    overlap: int
    unit: str


def request_options(
    request: NerRequest, options: NerOptions, tags: Tags, *, longest: int, extra: int
) -> RequestOptions:
    """Return what is wanted; `longest` is the model's tokens, `extra` of them special. Raises `InvalidRequest`."""
    room = _room(request, longest, extra)
    redacts = request.redaction is not None if request.redact is None else request.redact
    return RequestOptions(
        strategy=request.aggregation_strategy or options.aggregation_strategy,  # type: ignore[arg-type]  # was checked
        threshold=options.threshold if request.threshold is None else request.threshold,
        kept=None if request.labels is None else _kept(request.labels, tags),
        redaction=(request.redaction or options.redaction) if redacts else None,
        room=room,
        overlap=_overlap(request.stride, options, room),
        unit=request.offset_unit or "codepoint",
    )


def default_overlap(options: NerOptions, room: int) -> int:
    """Return the tokens that windows share where no request says how many: never more than half of one."""
    return min(room // 4, _OVERLAP_MAX) if options.stride == "auto" else min(options.stride, room // 2)


def _room(request: NerRequest, longest: int, extra: int) -> int:
    if request.max_length is not None and request.max_length > longest:
        raise InvalidRequest(
            f"max_length is {request.max_length}, the model takes {longest} tokens", param="max_length"
        )
    room = (request.max_length or longest) - extra
    if room < 1:
        raise InvalidRequest(
            f"max_length must be more than the {extra} special tokens of this model, got {request.max_length}",
            param="max_length",
        )
    return room


def _overlap(stride: int | None, options: NerOptions, room: int) -> int:
    if stride is None:
        return default_overlap(options, room)
    if stride > room // 2:
        raise InvalidRequest(
            f"stride must be at most half of a window, which is {room // 2} tokens here, got {stride}", param="stride"
        )
    return stride


def _kept(labels: list[str], tags: Tags) -> frozenset[int]:
    for at, label in enumerate(labels):
        if label not in tags.names:
            raise InvalidRequest(
                f"labels[{at}] is {label!r}, which this model does not find; it finds: {', '.join(sorted(tags.names))}",
                param=f"labels[{at}]",
            )
    return frozenset(tags.names.index(label) for label in labels)
