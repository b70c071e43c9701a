"""Every error a person can meet, in one tree; rendered for clients in `host.http.errors` and nowhere else.

Each class has its HTTP status and its code::

    ColdframeError                     500  server_error
    ├── InvalidRequest                 400  invalid_request
    │   ├── ContextLengthExceeded      400  context_length_exceeded
    │   ├── InputTooLong               400  input_too_long
    │   └── UnsupportedParameter       400  unsupported_parameter
    ├── OriginRefused                  403  origin_refused
    ├── NotFound                       404  not_found
    │   └── ModelNotFound              404  model_not_found
    ├── MethodNotAllowed               405  method_not_allowed
    ├── RequestTooLarge                413  request_too_large
    ├── QueueFull                      429  queue_full
    ├── InstanceDied                   502  instance_died
    ├── NotFinite                      502  not_finite
    ├── Unavailable                    503  unavailable
    │   ├── QueueTimeout               503  queue_timeout
    │   ├── LoadFailed                 503  load_failed
    │   │   └── OutOfMemory            503  out_of_memory
    │   ├── InsufficientMemory         503  insufficient_memory
    │   ├── FunctionDisabled           503  function_disabled
    │   └── ShuttingDown               503  shutting_down
    ├── SourceError                    503  source_error
    │   ├── RepositoryNotFound         404  repository_not_found
    │   ├── GatedRepository            403  gated_repository
    │   ├── ModelFileNotFound          404  model_file_not_found
    │   ├── HubUnreachable             503  hub_unreachable
    │   ├── HubOffline                 503  hub_offline
    │   └── DiskFull                   507  disk_full
    └── ManifestError                  400  manifest_error      (file, line, key)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import msgspec


class ErrorBody(msgspec.Struct, kw_only=True, frozen=True):
    """An error as it crosses the wire from a worker: enough to raise the same class on the other side."""

    code: str
    message: str
    param: str | None = None
    retry_after: float | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


class ColdframeError(Exception):
    """Root of the tree. The message is for the client: no path, no traceback, no token belongs in it.

    `extra` are further JSON fields of the error object (the numbers of a context overflow, say); `retry_after` is in
    seconds. `retry` says whether trying again can help SDKs; `None` leaves it to them.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "server_error"
    retry: ClassVar[bool | None] = None

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.extra = extra or {}

    def body(self) -> ErrorBody:
        """Return what crosses the wire; `from_body` makes the same error of it again."""
        return ErrorBody(
            code=self.code, message=self.message, param=self.param, retry_after=self.retry_after, extra=self.extra
        )


class InvalidRequest(ColdframeError):
    """The request itself is wrong; `param` names the field."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class ContextLengthExceeded(InvalidRequest):
    """The prompt has more tokens than one slot holds; `extra` has `n_prompt_tokens` and `n_ctx`."""

    code = "context_length_exceeded"


class InputTooLong(InvalidRequest):
    """One input of several is longer than the model takes; `param` names its index."""

    code = "input_too_long"


class UnsupportedParameter(InvalidRequest):
    """A known parameter that this function does not serve was set."""

    code = "unsupported_parameter"


class OriginRefused(ColdframeError):
    """A browser asks for a page of another origin, which the settings do not name."""

    status = 403
    type = "permission_error"
    code = "origin_refused"
    retry = False


class NotFound(ColdframeError):
    """No such path or thing."""

    status = 404
    type = "invalid_request_error"
    code = "not_found"


class ModelNotFound(NotFound):
    """No manifest has this name or alias; the message lists what is served."""

    code = "model_not_found"


class MethodNotAllowed(ColdframeError):
    """The path exists, but not for this HTTP method."""

    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class RequestTooLarge(ColdframeError):
    """The body has more bytes than the host accepts."""

    status = 413
    type = "invalid_request_error"
    code = "request_too_large"


class QueueFull(ColdframeError):
    """As many requests wait for this model as its queue holds."""

    status = 429
    type = "rate_limit_error"
    code = "queue_full"


class InstanceDied(ColdframeError):
    """The process that was answering is gone (signal, abort, out of memory); the next call loads it anew."""

    status = 502
    code = "instance_died"


class NotFinite(ColdframeError):
    """The model gave numbers that are not finite for one input; `extra` has its `index`, where that is known."""

    status = 502
    code = "not_finite"
    retry = False


class Unavailable(ColdframeError):
    """It cannot be answered now."""

    status = 503
    type = "unavailable_error"
    code = "unavailable"


class QueueTimeout(Unavailable):
    """The request waited as long as the manifest's `queue.wait` allows."""

    code = "queue_timeout"


class LoadFailed(Unavailable):
    """The instance could not be loaded; loads are not tried again before the cool-down ends.

    Mostly files or options are at fault, so the answer says how long it lasts, and that SDKs need not wait for it.
    """

    code = "load_failed"
    retry: ClassVar[bool | None] = False


class OutOfMemory(LoadFailed):
    """A load ran out of memory, also when it was tried again with less."""

    code = "out_of_memory"
    retry = None


class InsufficientMemory(Unavailable):
    """The plan needs more bytes than the budget has in all: it can never fit."""

    code = "insufficient_memory"
    retry = False


class FunctionDisabled(Unavailable):
    """The function or engine of this model is missing or broken; `coldframe ls` and `/health` show why."""

    code = "function_disabled"
    retry = False


class ShuttingDown(Unavailable):
    """The host is stopping and admits nothing more."""

    code = "shutting_down"


class SourceError(ColdframeError):
    """A model could not be brought from where the manifest says it is."""

    status = 503
    type = "unavailable_error"
    code = "source_error"


class RepositoryNotFound(SourceError):
    """The hub knows no such repository or revision (or hides it from this token)."""

    status = 404
    type = "invalid_request_error"
    code = "repository_not_found"
    retry = False


class GatedRepository(SourceError):
    """The repository exists, but its terms have not been accepted with this token."""

    status = 403
    type = "permission_error"
    code = "gated_repository"
    retry = False


class ModelFileNotFound(SourceError):
    """The package, folder or repository exists, but not the file in it."""

    status = 404
    type = "invalid_request_error"
    code = "model_file_not_found"
    retry = False


class HubUnreachable(SourceError):
    """The hub did not answer, or not in a way that can be used."""

    code = "hub_unreachable"


class HubOffline(SourceError):
    """Offline mode is on and the model is not in the local cache."""

    code = "hub_offline"
    retry = False


class DiskFull(SourceError):
    """There is not enough free space for the files to download."""

    status = 507
    code = "disk_full"
    retry = False


class ManifestError(ColdframeError):
    """A manifest cannot be used; carries the file, the line (from 1) and the key, each where known."""

    status = 400
    type = "invalid_request_error"
    code = "manifest_error"

    def __init__(
        self, message: str, *, file: Path | None = None, line: int | None = None, key: str | None = None
    ) -> None:
        super().__init__(message, param=key)
        self.file = file
        self.line = line
        self.key = key

    def __str__(self) -> str:
        """Return `file:line: key: message`, as editors and terminals make links of."""
        place = f"{self.file}:{self.line}" if self.file and self.line else str(self.file or "")
        return ": ".join(part for part in (place, self.key or "", self.message) if part)


def descendants(root: type[ColdframeError] = ColdframeError) -> list[type[ColdframeError]]:
    """Return `root` and every error class below it, parents first."""
    return [root, *(leaf for child in root.__subclasses__() for leaf in descendants(child))]


def from_body(body: ErrorBody) -> ColdframeError:
    """Return the error a worker raised, as the same class where the code is known and as the root where not."""
    by_code = {cls.code: cls for cls in descendants()}
    cls = by_code.get(body.code, ColdframeError)
    if cls is ManifestError:
        return ManifestError(body.message, key=body.param)
    return cls(body.message, param=body.param, retry_after=body.retry_after, extra=body.extra)
