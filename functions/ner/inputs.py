"""A ner request's texts and fields: checked for the client, then read by the model's side.

`check` runs in the host, once; `field_of` and `texts_of` read requests that it accepted.
"""

from __future__ import annotations

from functions.ner.api import TEXTS_MAX, NerRequest
from functions.ner.redaction import fault
from host.checks import check_choice, check_count, check_range, item_params, json_type, set_field
from host.errors import InvalidRequest

FIELDS = ("input", "texts")
STRATEGIES = ("simple", "first", "average", "max")
UNITS = ("codepoint", "utf16", "byte")
_REDACTION_MAX = 200


def check(request: NerRequest) -> None:
    """Raise `InvalidRequest` for all that is wrong with a request whatever the model."""
    field = set_field(request, FIELDS)
    _check_texts(getattr(request, field), field)
    strategy = request.aggregation_strategy
    hint = "; none would cut words" if strategy == "none" else ""
    check_choice(strategy, "aggregation_strategy", STRATEGIES, hint)
    check_choice(request.offset_unit, "offset_unit", UNITS)
    check_range(request.threshold, "threshold", 0, 1)
    check_range(request.stride, "stride", 0)
    check_range(request.max_length, "max_length", 1)
    if request.labels is not None and not request.labels:
        raise InvalidRequest("labels is an empty list: leave it out, or name labels", param="labels")
    if request.redaction is not None:
        if request.redact is False:
            raise InvalidRequest(
                "redaction says how to redact, and redact is false: send one of them", param="redaction"
            )
        _check_redaction(request.redaction)


def field_of(request: NerRequest) -> str:
    """Return the name of the field that holds the texts."""
    return "input" if request.input is not None else "texts"


def texts_of(given: str | list[str]) -> list[str]:
    """Return the texts of a field as a list."""
    return [given] if isinstance(given, str) else given


def _check_texts(given: object, field: str) -> None:
    """Check a text or a list of texts; a text may be empty, and has no entities then."""
    if isinstance(given, list):
        check_count(given, field, TEXTS_MAX)
        for param, item in zip(item_params(field, given), given, strict=True):
            if not isinstance(item, str):
                raise InvalidRequest(f"{param} must be a text, got {json_type(item)}", param=param)


def _check_redaction(template: str) -> None:
    """Raise `InvalidRequest` for what is not a template of replacements."""
    if not 1 <= len(template) <= _REDACTION_MAX:
        raise InvalidRequest(
            f"redaction must have 1 to {_REDACTION_MAX} characters, got {len(template)}", param="redaction"
        )
    wrong = fault(template)
    if wrong is not None:
        raise InvalidRequest(f"redaction {wrong}", param="redaction")
