"""Inputs that are objects, in the forms clients send: a text, or an image as a data URI or base64.

Served are `{"text": …}` and `{"image": …}`, and the parts of OpenAI's messages (`text`, `input_text`, `image_url`,
`input_image`). Nothing is fetched: an address on the network or a file of this machine is refused.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from host.errors import InvalidRequest

_FORMS = '{"text": "…"} or {"image": "data:image/png;base64,…"}'
_TEXTS = ("text", "input_text")
_IMAGES = ("image_url", "input_image", "image")


class Image(msgspec.Struct, frozen=True):
    """An image as it was sent; what is in it is for the model's side to see."""

    data: str
    """Base64."""
    place: str
    """The field it came in."""

    def decoded(self) -> bytes:
        """Return the file's bytes; raises `InvalidRequest` for what is not base64. Megabytes take milliseconds."""
        try:
            found = base64.b64decode(self.data, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidRequest(f"{self.place} is not base64 of an image", param=self.place) from None
        if not found:
            raise InvalidRequest(f"{self.place} is an empty image", param=self.place)
        return found


def read(item: dict[str, Any], place: str) -> str | Image:
    """Return the text or the image of one object; raises `InvalidRequest` that names the field."""
    given = {key: value for key, value in item.items() if value is not None}
    kind = given.get("type")
    if kind is not None and kind not in _TEXTS + _IMAGES:
        raise InvalidRequest(f"{place}.type is not known: expected 'text' or 'image_url'", param=f"{place}.type")
    found = [key for key in ("text", "image", "image_url") if key in given]
    if len(found) != 1:
        what = "has both a text and an image: send two inputs" if found else f"has neither: expected {_FORMS}"
        raise InvalidRequest(f"{place} {what}", param=place)
    (key,) = found
    if kind is not None and (kind in _TEXTS) is not (key == "text"):
        raise InvalidRequest(f"{place} has the type {kind!r} and the field {key!r}", param=f"{place}.{key}")
    return _text(given[key], f"{place}.text") if key == "text" else _image(given[key], f"{place}.{key}")


def _text(text: Any, place: str) -> str:
    if not isinstance(text, str):
        raise InvalidRequest(f"{place} must be a text", param=place)
    if not text:
        raise InvalidRequest(f"{place} is an empty text", param=place)
    return text


def _image(given: Any, place: str) -> Image:
    if isinstance(given, dict):
        place = f"{place}.url"
        given = given.get("url")
    if not isinstance(given, str) or not given:
        raise InvalidRequest(f"{place} must be a data URI or base64", param=place)
    head, comma, data = given.partition(",")
    if given[:5].lower() == "data:":
        if not comma or not head.lower().endswith(";base64"):
            raise InvalidRequest(f"{place} must be a data URI in base64: data:image/png;base64,…", param=place)
        return Image(data, place)
    if "://" in given[:40]:
        raise InvalidRequest(
            f"{place} is an address, and images are not fetched: send a data URI (data:image/png;base64,…) or base64",
            param=place,
        )
    return Image(given, place)
