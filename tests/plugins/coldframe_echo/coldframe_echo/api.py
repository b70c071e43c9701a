"""What is asked of the function and what it answers: two operations with one list of options."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from host.function import Usage

Crash = Literal["segv", "abort", "kill"] | Annotated[int, msgspec.Meta(ge=0, le=255)]
"""How to die: a null pointer read, abort(3), SIGKILL as the kernel's OOM killer sends it, or `_exit` with that code."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]


class Call(msgspec.Struct, kw_only=True, frozen=True):
    """What to say, and what is to go wrong on the way. A token is a word with the blanks before it."""

    text: str | None = None
    """What to say; default: the model file's own text."""
    count: Tokens | None = None
    """How many tokens to say, beginning again when the text is at its end; default: all of them once."""
    delay: Seconds = 0.0
    """Wait this long before each token."""
    block: Seconds = 0.0
    """Before the first token, block the worker's event loop this long: a badly written instance."""
    allocate: Bytes = 0
    """Bytes of RAM taken, touched and held while the call lasts."""
    hang: bool = False
    """After the last token, wait for ever; only cancelling ends the call."""
    crash_after: Tokens | None = None
    """After so many tokens the process dies, in the way `crash` says. Never ask this of an instance placed `inline`."""
    crash: Crash = "segv"
    """How to die: `segv`, `abort`, `kill`, or an exit code."""
    error: str | None = None
    """Raise the error with this code of `host.errors`; `bug` raises an exception that is none of them."""
    error_after: Tokens = 0
    """Raise it after so many tokens."""
    report: bool = False
    """Say nothing; answer with the counts of all calls so far. Such calls are not counted themselves."""


class Echo(Call, kw_only=True, frozen=True):
    """Say it token by token; the request of the streaming operation."""


class EchoOnce(Call, kw_only=True, frozen=True):
    """Say it all at once."""


class EchoBody(Call, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /v1/echo`."""

    model: str
    """A manifest's name or alias."""
    stream: bool = False
    """Server-sent events instead of one JSON object."""


class Report(msgspec.Struct, kw_only=True, frozen=True):
    """What became of all calls this instance was given."""

    pid: int
    started: int = 0
    finished: int = 0
    cancelled: int = 0
    """Calls whose caller went away: the coroutine was cancelled or the generator closed."""
    failed: int = 0
    running: int = 0
    peak: int = 0
    """Most calls that ever ran side by side."""
    attempt: int = 0
    """`Load.attempt` of the load that made this instance."""


class Token(msgspec.Struct, kw_only=True, frozen=True, tag="token"):
    """One word more."""

    text: str


class End(msgspec.Struct, kw_only=True, frozen=True, tag="end"):
    """The stream's last event."""

    usage: Usage | None = None
    report: Report | None = None


class EchoAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """The answer of the operation that does not stream."""

    text: str
    usage: Usage | None = None
    report: Report | None = None


EchoEvent = Token | End
