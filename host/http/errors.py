"""The one place where an exception becomes what a client reads: status, OpenAI's error object, retry headers.

No traceback, path or token passes here: what is not one of our own errors becomes an opaque 500 and a log line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from host.errors import (
    ColdframeError,
    InvalidRequest,
    LoadFailed,
    MethodNotAllowed,
    NotFound,
    RequestTooLarge,
)
from host.http.response import JsonResponse
from host.suggestions import nearest

log = structlog.get_logger(__name__)
_BY_STATUS: Mapping[int, type[ColdframeError]] = {404: NotFound, 405: MethodNotAllowed, 413: RequestTooLarge}
_RETRY_AFTER = 1.0
"""Seconds, where the error itself knows nothing better."""


def error_object(error: ColdframeError) -> dict[str, Any]:
    """Return the inside of `{"error": …}`."""
    known = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return {**known, **{key: value for key, value in error.extra.items() if key not in known}}


def internal(error: BaseException) -> ColdframeError:
    """Log what nobody expected and return the opaque error the client gets instead."""
    log.error("unexpected error", exc_info=error)
    return ColdframeError("An internal error happened. The host's log has the details under this request's id.")


def headers(error: ColdframeError) -> dict[str, str]:
    """Return the headers SDKs obey: when to retry, and whether at all."""
    found: dict[str, str] = {}
    retry = False if error.status == 500 else error.retry  # what nobody expected happens again
    if retry is not None:
        found["x-should-retry"] = "true" if retry else "false"
    if error.status in (429, 503) and (error.retry is not False or isinstance(error, LoadFailed)):
        after = _RETRY_AFTER if error.retry_after is None else max(0.0, error.retry_after)
        found["retry-after"] = str(max(1, math.ceil(after)))
        found["retry-after-ms"] = str(round(after * 1000))
    return found


def from_http(error: HTTPException, fields: Sequence[str] = ()) -> ColdframeError:
    """Return our error for one of Litestar's: bad bodies, unknown paths, wrong methods.

    `fields` are those of the body that the path takes: of one that is not among them the nearest is told.
    """
    if error.status_code >= 500:
        return internal(error)
    if isinstance(error, ValidationException) and isinstance(error.extra, list) and error.extra:
        first: Any = error.extra[0]
        return _invalid(str(first.get("key") or ""), str(first.get("message", error.detail)), fields)
    cls = _BY_STATUS.get(error.status_code)
    if cls is not None:
        return cls(_SENTENCES.get(error.status_code, error.detail))
    return InvalidRequest(f"The body could not be read as JSON: {error.detail}")


_SENTENCES = {
    404: "There is nothing at this path. The endpoints are listed at /schema; is `/v1` in the base URL twice?",
    405: "This path does not take this HTTP method.",
    413: "The request's body is larger than this host accepts.",
}
_BODY = "data"
"""The name handlers give the body; no client knows it."""
_FIELD = re.compile(r"(?:missing required|contains unknown) field `([^`]+)`")
_TYPES = re.compile(r"(Expected|got) `([a-z |]+)`")
_WORDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


def _invalid(key: str, message: str, fields: Sequence[str]) -> InvalidRequest:
    """Return the error for what msgspec says of the field at `key`, in JSON's words."""
    if message == f"'{_BODY}'":
        return InvalidRequest("The body is empty; it must be a JSON object.")
    field = _FIELD.search(message)
    path = [] if key == _BODY else [key]
    param = ".".join([*path, *([field[1]] if field else [])]) or None
    place = f"`{key}`: " if path and key else "The body: "
    hint = f"; {nearest(field[1], fields, 'fields')}" if field and fields and "unknown" in message and not path else ""
    return InvalidRequest(place + _TYPES.sub(_plain, message) + hint, param=param)


def _fields(request: Request[Any, Any, Any]) -> tuple[str, ...]:
    """Return the names of the fields that the body of a request may have; none where no handler was found."""
    handler = request.scope.get("route_handler")
    body = handler.parsed_fn_signature.parameters.get(_BODY) if handler is not None else None
    kind = body.annotation if body is not None else None
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return ()
    return kind.__struct_encode_fields__


def _plain(found: re.Match[str]) -> str:
    """Return one of msgspec's `Expected …` or `got …` with the names of JSON's types."""
    return f"{found[1]} {' or '.join(_WORDS.get(word, word) for word in found[2].split(' | '))}"


def respond(error: ColdframeError) -> Response[bytes]:
    """Return the response for one of our errors."""
    return Response(
        content=msgspec.json.encode({"error": error_object(error)}),
        status_code=error.status,
        headers=headers(error),
        media_type="application/json",
    )


def of_exception(error: Exception, fields: Sequence[str]) -> JsonResponse:
    """Return the same response for what a handler raised as `exception_handlers` do; `fields` are its body's."""
    if isinstance(error, HTTPException):
        known = from_http(error, fields)
        allow = (error.headers or {}).get("allow") or (error.headers or {}).get("Allow")
        more = {"allow": allow} if allow else {}
    else:
        known, more = _known(error), {}
    return JsonResponse({"error": error_object(known)}, known.status, {**headers(known), **more})


def _known(error: Exception) -> ColdframeError:
    if isinstance(error, ColdframeError):
        return error
    if isinstance(error, RecursionError):  # of the JSON decoder: nothing of ours recurses with a request
        return InvalidRequest("The body is nested too deeply.")
    return internal(error)


def _ours(_: Request[Any, Any, Any], error: ColdframeError) -> Response[bytes]:
    return respond(error)


def _litestars(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    response = respond(from_http(error, _fields(request)))
    allow = (error.headers or {}).get("allow") or (error.headers or {}).get("Allow")
    if allow:
        response.set_header("allow", allow)
    return response


def _any(_: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    return respond(_known(error))


exception_handlers: dict[int | type[Exception], Any] = {
    ColdframeError: _ours,
    HTTPException: _litestars,
    Exception: _any,
}
"""Given to Litestar once, for the whole application."""
