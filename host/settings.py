"""The host's own settings: the `[host]` and `[granian]` tables of granian.toml, typed and checked.

It knows names, types and defaults; what they do is up to whoever reads them.
"""

from __future__ import annotations

import difflib
import inspect
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec

from host import machine
from host.errors import ManifestError
from host.manifest.duration import seconds

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)")
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
MEMORY_SHARE = 0.9
"""Of the machine's RAM (or cgroup limit), when `memory` is `auto`."""
OURS = ("target", "address", "port", "interface", "factory")
"""Parameters of granian that are not settings of `[granian]`: the host gives them itself."""

Positive = Annotated[float, msgspec.Meta(gt=0)]


class HostSettings(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The `[host]` table."""

    manifests: str = "manifests"
    """The folder of manifests (or one file), relative to the working directory; the shipped ones where it is missing."""
    address: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8000
    """Port to listen on."""
    memory: int | str = "auto"
    """RAM for all instances together: `8GiB`, a number of bytes, or `auto` for nine tenths of what there is."""
    vram: dict[str, int | str] = msgspec.field(default_factory=dict)
    """Accelerator memory by device, `{"cuda:0" = "20GiB"}`; a device that is not named gives 95 % of its own."""
    threads: Annotated[int, msgspec.Meta(ge=1)] | str = "auto"
    """Cores an engine may use; `auto` is what cgroup quota and affinity allow."""
    grace: float | str = "30s"
    """On shutdown, how long streams may go on before they are ended."""
    drain: float | str = "30s"
    """How long calls in flight may go on when their manifest changed or `unload` was asked."""
    stop: float | str = "5s"
    """How long a worker has to end after SIGTERM before SIGKILL."""
    stall: float | str = "5m"
    """How long a load may make no progress before it is given up."""
    max_body: int | str = "32MiB"
    """Largest request body."""
    log: str = "auto"
    """`json`, `console`, or `auto`: console on a terminal."""
    log_level: str = "info"
    """`debug`, `info`, `warning` or `error`."""


class Settings(msgspec.Struct, kw_only=True, frozen=True):
    """All settings, in the units the code wants: bytes and seconds."""

    manifests: Path
    address: str = "127.0.0.1"
    port: int = 8000
    budget: dict[str, int]
    threads: int
    grace: float = 30.0
    drain: float = 30.0
    stop: float = 5.0
    stall: float = 300.0
    max_body: int = 32 << 20
    log: str = "auto"
    log_level: str = "info"
    granian: dict[str, Any] = msgspec.field(default_factory=dict)


def read(file: Path | None) -> Settings:
    """Return the settings of a file (defaults for None); raises `ManifestError` with file and key."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")) if file else {}
    except OSError as error:
        raise ManifestError(f"cannot be read: {error.strerror}", file=file) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ManifestError(f"is not TOML: {error}", file=file) from None
    for key in table:
        if key not in ("host", "granian"):
            raise ManifestError(_unknown(key, ("host", "granian")), file=file, key=key)
    host = _table(file, table, "host")
    known = [field.name for field in msgspec.structs.fields(HostSettings)]
    for key in host:
        if key not in known:
            raise ManifestError(_unknown(key, known), file=file, key=f"host.{key}")
    try:
        said = msgspec.convert(host, HostSettings)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        raise ManifestError(message[0].lower() + message[1:], file=file, key=f"host.{where.rstrip('`')}") from None
    return _settings(file, said, _granian(file, _table(file, table, "granian")))


def size(value: int | str) -> int:
    """Return bytes for `8GiB`, `500MB` or a number; raises `ValueError` that says what would be right."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"expected a size such as 8GiB or 500MB, got {value!r}")
    return int(float(match[1]) * _UNITS[match[2]])


def _settings(file: Path | None, said: HostSettings, granian: dict[str, Any]) -> Settings:
    def told(key: str, parse: Any, value: Any) -> Any:
        try:
            return parse(value)
        except ValueError as error:
            raise ManifestError(str(error), file=file, key=f"host.{key}") from None

    auto = int(machine.memory_total() * MEMORY_SHARE)
    budget = {"ram": auto if said.memory == "auto" else told("memory", size, said.memory)}
    budget |= {device: told("vram", size, value) for device, value in said.vram.items()}
    if isinstance(said.threads, str) and said.threads != "auto":
        raise ManifestError("expected a number or `auto`", file=file, key="host.threads")
    for key, value, allowed in (
        ("log", said.log, ("auto", "json", "console")),
        ("log_level", said.log_level, ("debug", "info", "warning", "error")),
    ):
        if value not in allowed:
            raise ManifestError(f"expected one of {', '.join(allowed)}, got {value!r}", file=file, key=f"host.{key}")
    return Settings(
        manifests=Path(said.manifests),
        address=said.address,
        port=said.port,
        budget=budget,
        threads=machine.cores() if isinstance(said.threads, str) else said.threads,
        grace=told("grace", seconds, said.grace),
        drain=told("drain", seconds, said.drain),
        stop=told("stop", seconds, said.stop),
        stall=told("stall", seconds, said.stall),
        max_body=told("max_body", size, said.max_body),
        log=said.log,
        log_level=said.log_level,
        granian=granian,
    )


def _granian(file: Path | None, table: dict[str, Any]) -> dict[str, Any]:
    """Return the `[granian]` table as keyword arguments of granian's embedded server, each checked to be one."""
    from granian.server.embed import Server

    known = [name for name in inspect.signature(Server.__init__).parameters if name not in ("self", *OURS)]
    for key in table:
        if key in OURS:
            raise ManifestError("is set by the host; address and port stand in [host]", file=file, key=f"granian.{key}")
        if key not in known:
            raise ManifestError(_unknown(key, known), file=file, key=f"granian.{key}")
    hints = inspect.get_annotations(Server.__init__, eval_str=True)
    try:
        return {key: msgspec.convert(value, hints[key], strict=True) for key, value in table.items()}
    except msgspec.ValidationError as error:
        raise ManifestError(str(error), file=file, key="granian") from None


def _table(file: Path | None, data: dict[str, Any], name: str) -> dict[str, Any]:
    table = data.get(name, {})
    if not isinstance(table, dict):
        raise ManifestError("expected a table", file=file, key=name)
    return table


def _unknown(key: str, known: Any) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"unknown key `{key}`" + (f"; did you mean `{near[0]}`?" if near else f"; known: {', '.join(known)}")
