"""A request's fields, checked before any model is asked: what is wrong is told with its name and index."""

from __future__ import annotations

from typing import Any, NamedTuple

from functions.classify.api import LABELS_MAX, TEXTS_MAX, ClassifyRequest, ModerationRequest
from host.errors import InvalidRequest

FIELDS = ("input", "texts", "inputs")
WINDOWS = ("mean", "max", "first", "off")
ACTIVATIONS = ("softmax", "sigmoid", "none")
_KINDS = {"str": "a text", "int": "a number", "float": "a number", "NoneType": "null", "bool": "true or false"}
_KINDS |= {"dict": "an object", "list": "a list"}


class Pair(NamedTuple):
    """Two texts that are read as one input."""

    text: str
    text_pair: str


Given = str | Pair
"""What gets a classification: a text or a pair."""


def check(request: ClassifyRequest) -> None:
    """Raise `InvalidRequest` for all that can be seen to be wrong without the model."""
    texts(request)
    labels(request)
    if request.hypothesis_template is not None and "{}" not in request.hypothesis_template:
        raise InvalidRequest(
            "hypothesis_template must have {} in it, where the label goes", param="hypothesis_template"
        )
    for name in ("top_k", "max_length"):
        number = getattr(request, name)
        if number is not None and number < 1:
            raise InvalidRequest(f"{name} must be at least 1, got {number}", param=name)
    _check_thresholds(request.threshold)
    _check_word("function_to_apply", request.function_to_apply, ACTIVATIONS)
    _check_word("windows", request.windows, WINDOWS)
    if request.windows is not None and request.truncate is not None:
        raise InvalidRequest("set windows or truncate, not both", param="truncate")


def texts(request: ClassifyRequest) -> tuple[str, list[Given]]:
    """Return the name of the field that holds the texts and pairs, and them; raises `InvalidRequest`."""
    given = [(name, getattr(request, name)) for name in FIELDS if getattr(request, name) is not None]
    if not given:
        raise InvalidRequest("input is missing: send a text or a list of texts", param="input")
    if len(given) > 1:
        raise InvalidRequest(f"set {given[0][0]} or {given[1][0]}, not both", param=given[1][0])
    name, found = given[0]
    if isinstance(found, dict):
        return name, [_pair(name, found)]
    if isinstance(found, str):
        _check_text(name, found)
        return name, [found]
    _check_count(name, found)
    return name, [_given(f"{name}[{at}]", item) for at, item in enumerate(found)]


def places(name: str, given: object) -> list[str]:
    """Return what each text or pair of a field is called: the field alone, or `texts[3]` of a list."""
    return [f"{name}[{at}]" for at in range(len(given))] if isinstance(given, list) else [name]


def labels(request: ClassifyRequest) -> list[str] | None:
    """Return the labels of a zero-shot request, None for none; raises `InvalidRequest`."""
    given = request.labels
    if given is None:
        return None
    if isinstance(given, str):
        given = [label.strip() for label in given.split(",") if label.strip()]
    if not given:
        raise InvalidRequest("labels is empty: send at least one label", param="labels")
    if len(given) > LABELS_MAX:
        raise InvalidRequest(f"labels has {len(given)} items, at most {LABELS_MAX} are taken", param="labels")
    found: dict[str, None] = {}
    for at, label in enumerate(given):
        _check_text(f"labels[{at}]", label)
        if label in found:
            raise InvalidRequest(f"labels[{at}] is {label!r}, which stands before it already", param=f"labels[{at}]")
        found[label] = None
    return list(found)


def moderated(request: ModerationRequest) -> tuple[list[str], bool]:
    """Return the texts to judge, and whether they are the parts of one input; raises `InvalidRequest`."""
    given = request.input
    if isinstance(given, str):
        _check_text("input", given)
        return [given], False
    _check_count("input", given)
    if isinstance(given[0], dict):
        return [_part(part, at) for at, part in enumerate(given)], True
    for at, text in enumerate(given):
        _check_text(f"input[{at}]", text)
    return given, False


def _check_count(name: str, given: list[Any]) -> None:
    if not given:
        raise InvalidRequest(f"{name} is an empty list: send at least one text", param=name)
    if len(given) > TEXTS_MAX:
        raise InvalidRequest(f"{name} has {len(given)} items, at most {TEXTS_MAX} are taken at once", param=name)


def _given(place: str, item: Any) -> Given:
    """Return a text or a pair of a list."""
    if isinstance(item, dict):
        return _pair(place, item)
    if not isinstance(item, list):
        _check_text(place, item)
        return str(item)
    if len(item) not in (1, 2):
        raise InvalidRequest(f"{place} is a list of {len(item)}: a pair is a list of two texts", param=place)
    for at, text in enumerate(item):
        _check_text(f"{place}[{at}]", text)
    return Pair(*item) if len(item) == 2 else str(item[0])


def _pair(place: str, item: dict[str, Any]) -> Given:
    """Return what an object says: two texts, or one where `text_pair` is left out."""
    unknown = next((key for key in item if key not in Pair._fields), None)
    if unknown is not None:
        raise InvalidRequest(
            f"{place}.{unknown} is not known: a pair is an object of text and text_pair", param=f"{place}.{unknown}"
        )
    text, second = item.get("text"), item.get("text_pair")
    _check_text(f"{place}.text", text)
    if second is None:
        return str(text)
    _check_text(f"{place}.text_pair", second)
    return Pair(str(text), second)


def _part(part: Any, at: int) -> str:
    place = f"input[{at}]"
    if not isinstance(part, dict):
        raise InvalidRequest(f"{place} must be a part like input[0], got {_kind(part)}", param=place)
    if part.get("type") == "image_url":
        raise InvalidRequest(f"{place} is an image, and this model reads text only", param=place)
    if part.get("type") != "text":
        raise InvalidRequest(f"{place}.type must be 'text', got {part.get('type')!r}", param=f"{place}.type")
    _check_text(f"{place}.text", part.get("text"))
    return str(part["text"])


def _check_text(place: str, text: Any) -> None:
    if not isinstance(text, str):
        raise InvalidRequest(f"{place} must be a text, got {_kind(text)}", param=place)
    if not text:
        raise InvalidRequest(f"{place} is an empty text", param=place)


def _check_word(name: str, given: str | None, words: tuple[str, ...]) -> None:
    if given is not None and given not in words:
        known = ", ".join(map(repr, words[:-1]))
        raise InvalidRequest(f"{name} must be {known} or {words[-1]!r}, got {given!r}", param=name)


def _check_thresholds(given: float | dict[str, float] | None) -> None:
    numbers = given if isinstance(given, dict) else {} if given is None else {"": given}
    for label, number in numbers.items():
        if not 0 <= number <= 1:
            name = f"threshold.{label}" if label else "threshold"
            raise InvalidRequest(f"{name} must be from 0 to 1, got {number:g}", param=name)


def _kind(given: Any) -> str:
    return _KINDS.get(type(given).__name__, type(given).__name__)
