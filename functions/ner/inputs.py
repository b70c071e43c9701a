"""Checks and parses the texts and fields of ner requests.

`check` runs in the host; `input_field` and `parse_texts` expect requests that passed it.
"""

from __future__ import annotations

from functions.ner.api import TEXTS_MAX, NerRequest
from functions.ner.redaction import template_error
from host.errors import InvalidRequest
from host.request_checks import check_choice, check_count, check_range, item_params, json_type, set_field

FIELDS = ("input", "texts")
STRATEGIES = ("simple", "first", "average", "max")
UNITS = ("codepoint", "utf16", "byte")
_REDACTION_MAX = 200


def check(request: NerRequest) -> None:
    """Raise `InvalidRequest` for a request that no model could answer."""
    field = set_field(request, FIELDS)
    _check_texts(getattr(request, field), field)
    strategy = request.aggregation_strategy
    hint = "; none would split words" if strategy == "none" else ""
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


def input_field(request: NerRequest) -> str:
    """Return the name of the field that holds the texts."""
    return "input" if request.input is not None else "texts"


def parse_texts(value: str | list[str]) -> list[str]:
    """Return the texts of a field as a list."""
    return [value] if isinstance(value, str) else value


def _check_texts(value: object, field: str) -> None:
    """Check a text or a list of texts; a text may be empty, and has no entities then."""
    if isinstance(value, list):
        check_count(value, field, TEXTS_MAX)
        for param, item in zip(item_params(field, value), value, strict=True):
            if not isinstance(item, str):
                raise InvalidRequest(f"{param} must be a text, got {json_type(item)}", param=param)


def _check_redaction(template: str) -> None:
    """Raise `InvalidRequest` for a wrong replacement template."""
    if not 1 <= len(template) <= _REDACTION_MAX:
        raise InvalidRequest(
            f"redaction must have 1 to {_REDACTION_MAX} characters, got {len(template)}", param="redaction"
        )
    wrong = template_error(template)
    if wrong is not None:
        raise InvalidRequest(f"redaction {wrong}", param="redaction")
