"""A request's texts and fields, checked one by one: what is wrong is told with its place. It knows no model."""

from __future__ import annotations

from typing import Any, cast

from functions.ner.api import TEXTS_MAX, NerRequest
from functions.ner.redaction import fault
from host.errors import InvalidRequest

STRATEGIES = ("simple", "first", "average", "max")
UNITS = ("codepoint", "utf16", "byte")
_REDACTION_MAX = 200


def check(request: NerRequest) -> None:
    """Raise `InvalidRequest` for all that can be seen to be wrong without the model."""
    listed(request)
    _one_of(request.aggregation_strategy, STRATEGIES, "aggregation_strategy")
    _one_of(request.offset_unit, UNITS, "offset_unit")
    if request.threshold is not None and not 0 <= request.threshold <= 1:
        raise InvalidRequest(f"threshold must be from 0 to 1, got {request.threshold}", param="threshold")
    if request.stride is not None and request.stride < 0:
        raise InvalidRequest(f"stride must be at least 0, got {request.stride}", param="stride")
    if request.max_length is not None and request.max_length < 1:
        raise InvalidRequest(f"max_length must be at least 1, got {request.max_length}", param="max_length")
    if request.labels is not None and not request.labels:
        raise InvalidRequest("labels is an empty list: leave it out, or name labels", param="labels")
    if request.redaction is not None:
        if request.redact is False:
            raise InvalidRequest(
                "redaction says how to redact, and redact is false: send one of them", param="redaction"
            )
        _check_redaction(request.redaction)


def listed(request: NerRequest) -> list[str]:
    """Return the request's texts as a list; raises `InvalidRequest`."""
    if (request.input is None) == (request.texts is None):
        said = "both say the same: send one of them" if request.input is not None else "are missing: send input"
        raise InvalidRequest(f"input and texts {said}, a text or a list of texts", param="input")
    name = "input" if request.input is not None else "texts"
    given = request.input if request.input is not None else request.texts
    if isinstance(given, str):
        return [given]
    texts = cast("list[Any]", given)
    if not texts:
        raise InvalidRequest(f"{name} is an empty list: send at least one text", param=name)
    if len(texts) > TEXTS_MAX:
        raise InvalidRequest(f"{name} has {len(texts)} items, at most {TEXTS_MAX} are taken at once", param=name)
    for at, item in enumerate(texts):
        if not isinstance(item, str):
            place = f"{name}[{at}]"
            raise InvalidRequest(f"{place} must be a text, got {_kind(item)}", param=place)
    return texts


def places(request: NerRequest) -> list[str]:
    """Return what each text is called in the request: `input`, or `texts[3]`."""
    name = "input" if request.input is not None else "texts"
    given = request.input if request.input is not None else request.texts
    return [name] if isinstance(given, str) else [f"{name}[{at}]" for at in range(len(given or ()))]


def _check_redaction(template: str) -> None:
    """Raise `InvalidRequest` for what is not a template of replacements."""
    if not 1 <= len(template) <= _REDACTION_MAX:
        raise InvalidRequest(
            f"redaction must have 1 to {_REDACTION_MAX} characters, got {len(template)}", param="redaction"
        )
    wrong = fault(template)
    if wrong is not None:
        raise InvalidRequest(f"redaction {wrong}", param="redaction")


def _one_of(given: str | None, known: tuple[str, ...], field: str) -> None:
    if given is not None and given not in known:
        words = f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}"
        why = "; none would cut words" if given == "none" else ""
        raise InvalidRequest(f"{field} must be {words}, got {given!r}{why}", param=field)


def _kind(item: Any) -> str:
    names = {"int": "a number", "float": "a number with a fraction", "NoneType": "null", "bool": "true or false"}
    return (names | {"dict": "an object", "list": "a list"}).get(type(item).__name__, type(item).__name__)
