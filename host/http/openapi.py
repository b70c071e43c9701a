"""The OpenAPI document at `/schema`: Litestar's, with the errors this host really sends.

As JSON and not as a page: those load their scripts from the internet.
"""

from __future__ import annotations

from typing import Any

from litestar import MediaType, Request
from litestar.openapi.plugins import JsonRenderPlugin

_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


class SchemaPlugin(JsonRenderPlugin):
    """Renders the document as JSON at `/schema` itself."""

    def __init__(self) -> None:
        super().__init__(path=["/", "/openapi.json"], media_type=MediaType.JSON)

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """Return the document; every error response has OpenAI's shape."""
        for operations in openapi_schema.get("paths", {}).values():
            for operation in operations.values():
                for status, response in operation.get("responses", {}).items():
                    if status >= "400":
                        response["content"] = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        openapi_schema.setdefault("components", {}).setdefault("schemas", {})["Error"] = _ERROR
        return super().render(request, openapi_schema)
