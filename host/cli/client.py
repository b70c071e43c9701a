"""HTTP client of the command line: requests to a running host, whose failures become one line with the URL.

httpx is imported by the first request, so that other commands start without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from host.cli import Failure
from host.lifecycle.status import Status

if TYPE_CHECKING:
    import httpx

QUICK = 5.0
"""Seconds for what a host answers at once."""


class Served(msgspec.Struct, kw_only=True, frozen=True):
    """The answer of `GET /v1/functions`."""

    data: list[Status]
    problems: list[dict[str, Any]] = msgspec.field(default_factory=list)

    def find(self, name: str) -> Status | None:
        """Return the deployment of that name or alias."""
        return next((status for status in self.data if name == status.name or name in status.aliases), None)


class NoHost(Failure):
    """Nothing that is a coldframe host answers at the URL."""


def functions(url: str) -> Served:
    """Return what the host at the URL serves; raises `NoHost`."""
    return served(url, get(url, "/v1/functions"))


def get(url: str, path: str) -> bytes:
    """Return the body of a quick request; raises `NoHost` when the URL is no coldframe host's, `Failure` for errors."""
    import httpx

    with failures(url), httpx.Client(timeout=QUICK, trust_env=False) as client:
        return answer(client.get(url + path), url)


def post(url: str, path: str) -> bytes:
    """Return the body of a request that takes as long as it takes."""
    import httpx

    with failures(url), httpx.Client(timeout=httpx.Timeout(None, connect=QUICK), trust_env=False) as client:
        return answer(client.post(url + path), url)


def served(url: str, body: bytes) -> Served:
    """Decode the answer of `GET /v1/functions`."""
    try:
        return msgspec.json.decode(body, type=Served)
    except msgspec.DecodeError:
        raise NoHost(f"what answers at {url} is no coldframe host") from None


@contextmanager
def failures(url: str) -> Iterator[None]:
    """Tell failed connections by the URL that was tried."""
    import httpx

    try:
        yield
    except httpx.ConnectError:
        raise NoHost(f"no host answers at {url}; `coldframe serve` starts one, --url names another") from None
    except httpx.TimeoutException:
        raise NoHost(f"the host at {url} did not answer in time") from None
    except httpx.RemoteProtocolError:
        raise Failure(f"what answers at {url} speaks no HTTP, or ended in the middle of an answer") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Failure(f"the connection to {url} failed: {str(error) or type(error).__name__}") from None


def answer(response: httpx.Response, url: str) -> bytes:
    """Return the body of a response that has been read; raises what it says went wrong."""
    if response.is_success:
        return response.content
    raise refusal(response.content, response.status_code, url)


def refusal(body: bytes, status: int, url: str) -> Failure:
    """Return the error object of a body as a failure; `NoHost` for what no coldframe host sends."""
    try:
        error = msgspec.json.decode(body)["error"]
    except (msgspec.DecodeError, TypeError, KeyError):
        return NoHost(f"what answers at {url} is no coldframe host: it says {status}")
    return from_error(error)


def from_error(error: Any) -> Failure:
    """Return OpenAI's error object as a failure: the message, and the code in brackets."""
    if not isinstance(error, dict):
        return Failure(str(error))
    code = error.get("code")
    return Failure(f"{error.get('message')}" + (f" ({code})" if code else ""))
