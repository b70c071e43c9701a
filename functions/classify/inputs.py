"""Checks and parses the texts, pairs and labels of classify and moderation requests.

`check` and `check_moderation` run in the host; the `parse_` functions expect requests that passed them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from functions.classify.api import LABELS_MAX, TEXTS_MAX, ClassifyRequest, ModerationRequest
from host.errors import InvalidRequest
from host.request_checks import check_choice, check_count, check_range, check_text, item_params, json_type, set_field

FIELDS = ("input", "texts", "inputs")
WINDOWS = ("mean", "max", "first", "off")
ACTIVATIONS = ("softmax", "sigmoid", "none")


class Pair(NamedTuple):
    """Two texts that are classified together."""

    text: str
    text_pair: str


Input = str | Pair
"""A text or a pair."""


def check(request: ClassifyRequest) -> None:
    """Raise `InvalidRequest` for a request that no model could answer."""
    name = set_field(request, FIELDS)
    _check_inputs(name, getattr(request, name))
    _check_labels(request.labels)
    if request.hypothesis_template is not None and "{}" not in request.hypothesis_template:
        raise InvalidRequest(
            "hypothesis_template must have {} in it, where the label goes", param="hypothesis_template"
        )
    check_range(request.top_k, "top_k", 1)
    check_range(request.max_length, "max_length", 1)
    _check_thresholds(request.threshold)
    check_choice(request.function_to_apply, "function_to_apply", ACTIVATIONS)
    check_choice(request.windows, "windows", WINDOWS)
    if request.windows is not None and request.truncate is not None:
        raise InvalidRequest("set windows or truncate, not both", param="truncate")


def check_moderation(request: ModerationRequest) -> None:
    """Raise `InvalidRequest` unless the input is a text, a list of texts, or a list of text parts."""
    value = request.input
    if isinstance(value, str):
        check_text(value, "input")
        return
    check_count(value, "input", TEXTS_MAX)
    check_item = _check_part if isinstance(value[0], dict) else check_text
    for param, item in zip(item_params("input", value), value, strict=True):
        check_item(item, param)


def input_field(request: ClassifyRequest) -> str:
    """Return the name of the field that holds the texts."""
    return next(name for name in FIELDS if getattr(request, name) is not None)


def parse_inputs(value: Any) -> list[Input]:
    """Return the texts and pairs of a field."""
    return [_read(item) for item in value] if isinstance(value, list) else [_read(value)]


def parse_labels(request: ClassifyRequest) -> list[str] | None:
    """Return the labels of a zero-shot request, None where it has none."""
    value = request.labels
    return _split(value) if isinstance(value, str) else value


def moderation_texts(request: ModerationRequest) -> tuple[list[str], bool]:
    """Return the texts to moderate, and whether they are the parts of a single input."""
    value = request.input
    if isinstance(value, str):
        return [value], False
    if isinstance(value[0], dict):
        return [part["text"] for part in value], True
    return value, False


def _read(item: Any) -> Input:
    if isinstance(item, dict):
        second = item.get("text_pair")
        return str(item["text"]) if second is None else Pair(item["text"], second)
    if isinstance(item, list):
        return Pair(*item) if len(item) == 2 else str(item[0])
    return str(item)


def _split(labels: str) -> list[str]:
    return [label.strip() for label in labels.split(",") if label.strip()]


def _check_inputs(name: str, value: Any) -> None:
    if isinstance(value, dict):
        _check_pair(value, name)
    elif isinstance(value, str):
        check_text(value, name)
    else:
        check_count(value, name, TEXTS_MAX)
        for param, item in zip(item_params(name, value), value, strict=True):
            _check_input(item, param)


def _check_input(item: Any, param: str) -> None:
    """Check a text or a pair of a list."""
    if isinstance(item, dict):
        _check_pair(item, param)
    elif isinstance(item, list):
        if len(item) not in (1, 2):
            raise InvalidRequest(f"{param} is a list of {len(item)}: a pair is a list of two texts", param=param)
        for inner, text in zip(item_params(param, item), item, strict=True):
            check_text(text, inner)
    else:
        check_text(item, param)


def _check_pair(item: dict[str, Any], param: str) -> None:
    """Check an object: two texts, or one where `text_pair` is left out."""
    unknown = next((key for key in item if key not in Pair._fields), None)
    if unknown is not None:
        raise InvalidRequest(
            f"{param}.{unknown} is not known: a pair is an object of text and text_pair", param=f"{param}.{unknown}"
        )
    check_text(item.get("text"), f"{param}.text")
    if item.get("text_pair") is not None:
        check_text(item["text_pair"], f"{param}.text_pair")


def _check_part(part: Any, param: str) -> None:
    if not isinstance(part, dict):
        raise InvalidRequest(f"{param} must be a part like input[0], got {json_type(part)}", param=param)
    if part.get("type") == "image_url":
        raise InvalidRequest(f"{param} is an image, and this model reads text only", param=param)
    if part.get("type") != "text":
        raise InvalidRequest(f"{param}.type must be 'text', got {part.get('type')!r}", param=f"{param}.type")
    check_text(part.get("text"), f"{param}.text")


def _check_labels(value: str | list[Any] | None) -> None:
    if value is None:
        return
    labels = _split(value) if isinstance(value, str) else value
    check_count(labels, "labels", LABELS_MAX, "label")
    seen: set[str] = set()
    for param, label in zip(item_params("labels", labels), labels, strict=True):
        check_text(label, param)
        if label in seen:
            raise InvalidRequest(f"{param} is {label!r}, which is listed already", param=param)
        seen.add(label)


def _check_thresholds(value: float | dict[str, float] | None) -> None:
    if isinstance(value, dict):
        for label, number in value.items():
            check_range(number, f"threshold.{label}", 0, 1)
    else:
        check_range(value, "threshold", 0, 1)
