"""A hub on 127.0.0.1 that speaks the model hub's HTTP API as its own client uses it; with options for each way to fail.

`with FakeHub() as hub: hub.add("org/repo", {"a.gguf": b"…"})`, then set `HF_ENDPOINT` to `hub.url`.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

Content = bytes | Path


@dataclass
class File:
    """One file: its bytes and hashes."""

    content: Content
    sha1: str = ""
    sha256: str = ""
    size: int = 0
    large: bool = False

    def __post_init__(self) -> None:
        data = self.read()
        self.size = len(data)
        self.large = self.size > 100_000
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.sha1 = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()

    def read(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()

    @property
    def etag(self) -> str:
        return self.sha256 if self.large else self.sha1


@dataclass
class Seen:
    """One request that arrived."""

    method: str
    path: str
    range: str | None
    authorization: str | None
    host: str


@dataclass
class Knobs:
    """What goes wrong; changed while the server runs."""

    gated: set[str] = field(default_factory=set)
    status: int = 0
    """Every answer has this status, `status_times` times."""
    status_times: int = 10**9
    cut_after: int = 0
    """Close the connection after so many bytes of a file, `cut_times` times."""
    cut_times: int = 10**9
    delay: float = 0.0
    """Seconds before each answer."""
    slow: float = 0.0
    """Seconds after each 64 KiB of a file."""
    no_ranges: bool = False
    damaged: int = 0
    """So many downloads get a wrong byte."""
    no_hashes: bool = False
    """A mirror: the listing has names only."""
    cdn: bool = False
    """Large files are redirected to another host name, as the hub does."""
    not_json: bool = False
    retry_after: str = ""
    token: str = ""
    """When set, requests without it get 401."""


class FakeHub:
    """The server, what it holds, and what it has seen."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, dict[str, File]]] = {}
        self.refs: dict[str, dict[str, str]] = {}
        self.seen: list[Seen] = []
        self.connections = 0
        self.options = Knobs()
        hub = self

        class Handler(_Handler):
            fake = hub

            def setup(self) -> None:
                hub.connections += 1
                super().setup()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, repo: str, files: dict[str, Content], revision: str = "main") -> str:
        """Put a commit on a branch, or tag; returns its hash."""
        made = {name: File(content) for name, content in files.items()}
        whole = json.dumps([repo, sorted((name, file.sha256) for name, file in made.items())])
        commit = hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest()
        self.repos.setdefault(repo, {})[commit] = made
        self.refs.setdefault(repo, {})[revision] = commit
        return commit

    def downloads(self, name: str = "") -> list[Seen]:
        """Return the GETs of files whose path ends in `name`."""
        return [one for one in self.seen if one.method == "GET" and "/resolve/" in one.path and one.path.endswith(name)]


class _RefusedError(Exception):
    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        self.status, self.code, self.message = status, code, message


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeHub

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def _serve(self) -> None:
        options, headers = self.fake.options, self.headers
        path = unquote(urlsplit(self.path).path)
        host = headers.get("Host", "")
        self.fake.seen.append(Seen(self.command, path, headers.get("Range"), headers.get("Authorization"), host))
        time.sleep(options.delay)
        try:
            if options.status and options.status_times > 0:
                options.status_times -= 1
                raise _RefusedError(options.status)
            if path.startswith("/cdn/"):
                self._content(self._by_hash(path.removeprefix("/cdn/")))
                return
            if options.token and headers.get("Authorization") != f"Bearer {options.token}":
                raise _RefusedError(401, message="Invalid username or password.")
            self._route(path)
        except _RefusedError as refused:
            self._refuse(refused)

    def _route(self, path: str) -> None:
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            self._json(self._info(match[1], match[2] or "main"))
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+).*", path):
            self._json(self._tree(match[1], match[2]))
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(match[1], match[2], match[3])
        else:
            raise _RefusedError(404)

    def _files(self, repo: str, revision: str) -> tuple[str, dict[str, File]]:
        if repo not in self.fake.repos:
            raise _RefusedError(
                401 if not self.headers.get("Authorization") else 404, "RepoNotFound", "Repository not found"
            )
        commit = self.fake.refs[repo].get(revision, revision)
        if commit not in self.fake.repos[repo]:
            raise _RefusedError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit, self.fake.repos[repo][commit]

    def _info(self, repo: str, revision: str) -> dict[str, Any]:
        commit, files = self._files(repo, revision)
        siblings: list[dict[str, Any]] = []
        for name, file in files.items():
            told: dict[str, Any] = {"rfilename": name}
            if "blobs" in self.path and not self.fake.options.no_hashes:
                told |= {"size": file.size, "blobId": file.sha1}
                if file.large:
                    told["lfs"] = {"size": file.size, "sha256": file.sha256, "pointerSize": 134}
            siblings.append(told)
        return {"id": repo, "modelId": repo, "sha": commit, "siblings": siblings, "tags": [], "private": False}

    def _tree(self, repo: str, revision: str) -> list[dict[str, Any]]:
        _, files = self._files(repo, revision)
        return [
            {"type": "file", "oid": file.sha1, "size": file.size, "path": name}
            | ({"lfs": {"oid": file.sha256, "size": file.size, "pointerSize": 134}} if file.large else {})
            for name, file in files.items()
        ]

    def _resolve(self, repo: str, revision: str, name: str) -> None:
        commit, files = self._files(repo, revision)
        if repo in self.fake.options.gated:
            raise _RefusedError(403, "GatedRepo", f"Access to model {repo} is restricted")
        if name not in files:
            raise _RefusedError(404, "EntryNotFound", "Entry not found")
        file = files[name]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{file.etag}"'}
        if file.large:
            headers |= {"X-Linked-Size": str(file.size), "X-Linked-Etag": f'"{file.etag}"'}
        if self.fake.options.cdn and file.large:
            location = f"http://localhost:{self.fake.port}/cdn/{file.sha256}"
            self._answer(302, b"", headers | {"Location": location})
            return
        self._content(file, headers)

    def _by_hash(self, sha256: str) -> File:
        for commits in self.fake.repos.values():
            for files in commits.values():
                for file in files.values():
                    if file.sha256 == sha256:
                        return file
        raise _RefusedError(404)

    def _content(self, file: File, headers: dict[str, str] | None = None) -> None:
        options, data, status = self.fake.options, file.read(), 200
        headers = {"Accept-Ranges": "bytes", **(headers or {})}
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if match and not options.no_ranges:
            start, stop = int(match[1]), int(match[2] or file.size - 1) + 1
            if start >= file.size:
                raise _RefusedError(416)
            data, status = data[start:stop], 206
            headers["Content-Range"] = f"bytes {start}-{start + len(data) - 1}/{file.size}"
        if options.damaged and self.command == "GET" and data:
            options.damaged -= 1
            data = bytes([data[0] ^ 1]) + data[1:]
        self._answer(status, data, headers, limit=options.cut_after)

    def _answer(self, status: int, data: bytes, headers: dict[str, str], limit: int = 0) -> None:
        options = self.fake.options
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "HEAD":
            return
        cut = 0 < limit < len(data) and options.cut_times > 0
        if cut:
            options.cut_times -= 1
        for start in range(0, limit if cut else len(data), 65536):
            self.wfile.write(data[start : min(start + 65536, limit if cut else len(data))])
            if options.slow and limit >= 0 and len(data) > 65536:
                time.sleep(options.slow)
        if cut:
            self.close_connection = True

    def _json(self, value: Any) -> None:
        body = (
            b"<html>sign in to the hotel network</html>" if self.fake.options.not_json else json.dumps(value).encode()
        )
        self._answer(200, body, {"Content-Type": "application/json"})

    def _refuse(self, refused: _RefusedError) -> None:
        headers = {"X-Error-Code": refused.code, "X-Error-Message": refused.message}
        headers["Retry-After"] = self.fake.options.retry_after
        self._answer(refused.status, b'{"error":"no"}', {name: value for name, value in headers.items() if value})
