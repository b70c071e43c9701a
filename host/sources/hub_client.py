"""The hub over HTTP, by huggingface_hub's API client: a commit's files, a file's bytes, and each failure by its name.

This is the only module that imports huggingface_hub, when it is first asked. It writes nothing to disk.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from host.errors import (
    GatedRepository,
    HubOffline,
    HubUnreachable,
    ModelFileNotFound,
    RepositoryNotFound,
    SourceError,
)
from host.sources.cache import Entry, Listing, is_commit

T = TypeVar("T")
TIMEOUT = 10.0
"""Seconds to connect, and to wait for the next bytes of an answer."""
PAUSES = (0.5, 1.0)
"""Seconds before the second and third attempt at a short request."""
_ETAG = re.compile(r"[A-Za-z0-9._-]{1,128}")
_HEX = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Hub:
    """The hub at `HF_ENDPOINT`, with the token of `HF_TOKEN` or of `hf auth login`; both as they are now."""

    def __init__(self) -> None:
        from huggingface_hub import HfApi, get_token

        endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        place = urlsplit(endpoint)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise HubUnreachable("the environment variable HF_ENDPOINT is no http or https address")
        self.host = place.hostname
        with self._errors("", "", None):
            token = os.environ.get("HF_TOKEN", "").strip() or get_token()
        self.api = HfApi(endpoint=endpoint, token=token or False, library_name="coldframe")

    def listing(self, repo: str, revision: str) -> Listing:
        """Return the files of the commit that a branch, tag or commit names now; three attempts, 30 s at most."""

        def ask() -> Listing:
            with self._errors(repo, revision, None):
                info = self.api.model_info(repo, revision=revision, files_metadata=True, timeout=TIMEOUT)
                return _listing(info)

        return _patiently(ask)

    def described(self, repo: str, commit: str, entry: Entry) -> Entry:
        """Return the entry with size and ETag, asked for by HEAD where a mirror's listing had none."""
        if entry.blob is not None and entry.size is not None:
            return entry
        from huggingface_hub import get_hf_file_metadata

        def ask() -> Entry:
            with self._errors(repo, commit, entry.name):
                found = get_hf_file_metadata(
                    self._url(repo, commit, entry.name),
                    timeout=TIMEOUT,
                    headers=self._headers(),
                    endpoint=self.api.endpoint,
                )
            if found.etag is None or found.size is None or not _ETAG.fullmatch(found.etag):
                raise HubUnreachable(f"{self.host} gives no size or ETag of {entry.name}: it cannot serve downloads")
            return Entry(name=entry.name, size=found.size, etag=found.etag)

        return _patiently(ask)

    def read(
        self, repo: str, commit: str, name: str, start: int, stop: int, whole: int
    ) -> Generator[tuple[int, bytes], None, None]:
        """Yield a file's bytes from `start` to before `stop` in pieces, each with its offset.

        A server without support for ranges begins at 0. Raises `HubUnreachable` when the connection breaks.
        """
        from huggingface_hub.utils import get_session, hf_raise_for_status  # type: ignore[attr-defined]

        headers = {**self._headers(), "Accept-Encoding": "identity"}
        if start or stop < whole:
            headers["Range"] = f"bytes={start}-{stop - 1}"
        url = self._url(repo, commit, name)
        with (
            self._errors(repo, commit, name),
            get_session().stream("GET", url, headers=headers, timeout=TIMEOUT, follow_redirects=True) as response,
        ):
            if response.status_code == 416:
                raise HubUnreachable(f"{self.host} has other bytes of {name} than it said")
            hf_raise_for_status(response)
            offset = _offset(response.headers.get("Content-Range")) if response.status_code == 206 else 0
            for piece in response.iter_bytes():
                yield offset, piece
                offset += len(piece)

    def _url(self, repo: str, commit: str, name: str) -> str:
        from huggingface_hub import hf_hub_url

        return hf_hub_url(repo, name, revision=commit, endpoint=self.api.endpoint)

    def _headers(self) -> dict[str, str]:
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        headers: dict[str, str] = build_hf_headers(token=self.api.token, library_name="coldframe")
        return headers

    @contextmanager
    def _errors(self, repo: str, revision: str, file: str | None) -> Iterator[None]:
        """Raise what huggingface_hub raises inside as an error of ours, without its URLs and texts."""
        from huggingface_hub import errors

        transport = cast("type[Exception]", errors.HfHubHTTPError.__bases__[0])  # httpx's root, whichever httpx it is
        try:
            yield
        except errors.OfflineModeIsEnabled:
            raise HubOffline(
                "offline mode was on when the host started; nothing is downloaded", param="model"
            ) from None
        except errors.HfHubHTTPError as error:
            raise self._answered(error, repo, revision, file) from None
        except transport as error:
            raise HubUnreachable(f"{self.host} {_broken(error)}") from None
        except (KeyError, TypeError, ValueError, AttributeError):
            raise HubUnreachable(f"{self.host} answered with something that is no answer of a hub") from None

    def _answered(self, error: Any, repo: str, revision: str, file: str | None) -> SourceError:
        """Return the error for an answer that was a refusal."""
        status = error.response.status_code
        code = error.response.headers.get("X-Error-Code", "")
        if code == "GatedRepo" or (status == 403 and code != "RepoNotFound"):
            return GatedRepository(
                f"{repo} is gated or closed to this token: accept its terms on the hub, then set HF_TOKEN",
                param="model",
            )
        if code == "RevisionNotFound":
            return RepositoryNotFound(f"{repo} has no revision {revision!r}", param="revision")
        if code == "EntryNotFound" or (status == 404 and file and code != "RepoNotFound"):
            return ModelFileNotFound(f"{repo} has no file {file}", param="model")
        if status in (401, 404) or code == "RepoNotFound":
            hint = "the token is not valid" if self.api.token and status == 401 else "if it is private, set HF_TOKEN"
            return RepositoryNotFound(f"{self.host} knows no model {repo}; {hint}", param="model")
        wait = error.response.headers.get("Retry-After", "")
        after = float(wait) if wait.isdigit() and int(wait) <= 120 else None
        return HubUnreachable(f"{self.host} answered {status}", retry_after=after)


def _patiently(ask: Callable[[], T]) -> T:
    """Return the answer of a short request, asked again after `PAUSES` while the hub is unreachable."""
    for pause in PAUSES:
        try:
            return ask()
        except HubUnreachable:
            time.sleep(pause)
    return ask()


def _listing(info: Any) -> Listing:
    """Return the hub's answer as a listing; names that would leave the folder are not taken."""
    commit = info.sha
    if not isinstance(commit, str) or not is_commit(commit):
        raise ValueError("no commit")
    return Listing(commit=commit, files=tuple(_entry(file) for file in info.siblings or () if _is_safe(file.rfilename)))


def _entry(file: Any) -> Entry:
    sha256 = _hash(file.lfs.sha256) if file.lfs else None
    size = file.lfs.size if file.lfs else file.size
    return Entry(name=file.rfilename, size=size, sha1=None if file.lfs else _hash(file.blob_id), sha256=sha256)


def _hash(value: Any) -> str | None:
    return value if isinstance(value, str) and _HEX.fullmatch(value) else None


def _is_safe(name: str) -> bool:
    return not any(part in ("", ".", "..") for part in name.split("/")) and "\\" not in name and "\0" not in name


def _offset(content_range: str | None) -> int:
    match = re.match(r"bytes (\d+)-", content_range or "")
    if match is None:
        raise ValueError("no range")
    return int(match[1])


def _broken(error: Exception) -> str:
    """Return in words how a connection failed; the library's own text may hold addresses and credentials."""
    kind = type(error).__name__
    if "Timeout" in kind:
        return f"did not answer within {TIMEOUT:g} s"
    if kind in ("ConnectError", "ProxyError", "UnsupportedProtocol", "InvalidURL"):
        return "cannot be reached: no connection"
    return "cut the connection"
