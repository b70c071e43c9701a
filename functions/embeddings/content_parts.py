"""Parses inputs that are objects: a text, or an image as a data URI or base64.

Accepted are `{"text": …}` and `{"image": …}`, and the content parts of OpenAI's messages (`text`, `input_text`,
`image_url`, `input_image`). Nothing is downloaded: URLs and file paths are refused.
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
    """An image as it was sent; it is decoded in the worker."""

    data: str
    """Base64."""
    param: str
    """Its path in the request."""

    def decoded(self) -> bytes:
        """Return the file's bytes; raises `InvalidRequest` for what is not base64. Megabytes take milliseconds."""
        try:
            found = base64.b64decode(self.data, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidRequest(f"{self.param} is not base64 of an image", param=self.param) from None
        if not found:
            raise InvalidRequest(f"{self.param} is an empty image", param=self.param)
        return found


def parse(item: dict[str, Any], param: str) -> str | Image:
    """Return the text or image of one object; raises `InvalidRequest` naming the field."""
    fields = {key: value for key, value in item.items() if value is not None}
    part_type = fields.get("type")
    if part_type is not None and part_type not in _TEXTS + _IMAGES:
        raise InvalidRequest(f"{param}.type is not known: expected 'text' or 'image_url'", param=f"{param}.type")
    found = [key for key in ("text", "image", "image_url") if key in fields]
    if len(found) != 1:
        what = "has both a text and an image: send two inputs" if found else f"has neither: expected {_FORMS}"
        raise InvalidRequest(f"{param} {what}", param=param)
    (key,) = found
    if part_type is not None and (part_type in _TEXTS) is not (key == "text"):
        raise InvalidRequest(f"{param} has the type {part_type!r} and the field {key!r}", param=f"{param}.{key}")
    return _text(fields[key], f"{param}.text") if key == "text" else _image(fields[key], f"{param}.{key}")


def _text(text: Any, param: str) -> str:
    if not isinstance(text, str):
        raise InvalidRequest(f"{param} must be a text", param=param)
    if not text:
        raise InvalidRequest(f"{param} is an empty text", param=param)
    return text


def _image(value: Any, param: str) -> Image:
    if isinstance(value, dict):
        param = f"{param}.url"
        value = value.get("url")
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{param} must be a data URI or base64", param=param)
    head, comma, data = value.partition(",")
    if value[:5].lower() == "data:":
        if not comma or not head.lower().endswith(";base64"):
            raise InvalidRequest(f"{param} must be a data URI in base64: data:image/png;base64,…", param=param)
        return Image(data, param)
    if "://" in value[:40]:
        raise InvalidRequest(
            f"{param} is an address, and images are not fetched: send a data URI (data:image/png;base64,…) or base64",
            param=param,
        )
    return Image(value, param)
