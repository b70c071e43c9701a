"""The host's own settings: the `[host]` and `[granian]` tables of granian.toml, typed and checked.

docs/settings.md describes each setting.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import ipaddress
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec

from host import machine
from host.byte_size import size
from host.errors import ManifestError
from host.manifest import expectation
from host.manifest.duration import seconds

T = TypeVar("T")
MEMORY_SHARE = 0.9
"""Of the machine's RAM (or cgroup limit), when `memory` is `auto`."""
REFUSED = {
    **dict.fromkeys(("target", "interface", "factory"), "is set by the host"),
    **dict.fromkeys(("address", "port"), "stands in [host]"),
    "uds": "is not served: the host listens on an address and a port",
}
"""Parameters of granian that are not settings of `[granian]`, and why."""
_BOUNDS = {"blocking_threads": (1, 1), "blocking_threads_idle_timeout": (5, 600), "static_path_expires": (0, 1 << 31)}
"""Of granian's whole numbers; the others are at least 1."""
_DEVICE = re.compile(r"[a-z]+:(0|[1-9][0-9]*)|mps")
_STEP = re.compile(r"[^.\[\]]+")


class HostSettings(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The `[host]` table."""

    manifests: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """The folder of manifests (or one file), relative to the working directory; default: `manifests` where that exists,
    else the manifests shipped with coldframe."""
    address: Annotated[str, msgspec.Meta(min_length=1)] = "127.0.0.1"
    """Address to listen on: an IP address, or `localhost`."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    """Port to listen on, 0 for any free one; default: the environment variable `PORT`, else 8000."""
    memory: int | str = "auto"
    """RAM for all instances together: `8GiB`, a number of bytes, or `auto` for nine tenths of what there is."""
    vram: dict[str, Any] = msgspec.field(default_factory=dict)
    """Accelerator memory by device, `{"cuda:0" = "20GiB"}`; a device that is not named gives 95 % of its own."""
    threads: Annotated[int, msgspec.Meta(ge=1, le=4096)] | Literal["auto"] = "auto"
    """Cores an engine may use; `auto` is what cgroup quota and affinity allow."""
    grace: int | float | str = "30s"
    """On shutdown, how long streams may go on before they are ended."""
    drain: int | float | str = "30s"
    """How long calls in flight may go on when their manifest changed or `unload` was asked."""
    stop: int | float | str = "5s"
    """How long a worker has to end after SIGTERM before SIGKILL."""
    stall: int | float | str = "5m"
    """How long a load may make no progress before it is given up."""
    cors: tuple[str, ...] = ()
    """Origins whose pages may call this host from a browser: `["https://app.example"]`, or `["*"]` for all."""
    max_body: int | str = "32MiB"
    """Largest request body."""
    log: Literal["auto", "json", "console"] = "auto"
    """`json`, `console`, or `auto`: console on a terminal."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """`debug`, `info`, `warning` or `error`."""


class Settings(msgspec.Struct, kw_only=True, frozen=True):
    """All settings, in the units the code wants: bytes and seconds."""

    manifests: Path
    manifests_said: bool = False
    """Whether a file or an option named the folder; one that is only the default may be missing."""
    address: str = "127.0.0.1"
    port: int = 8000
    budget: dict[str, int]
    threads: int
    grace: float = 30.0
    drain: float = 30.0
    stop: float = 5.0
    stall: float = 300.0
    cors: tuple[str, ...] = ()
    max_body: int = 32 << 20
    log: str = "auto"
    log_level: str = "info"
    granian: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def loopback(self) -> bool:
        """Whether only programs on this machine can connect."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def url(self) -> str:
        """Where a client on this machine finds the host; an address that means all of them is the loopback one."""
        address = ipaddress.ip_address(self.address)
        if address.is_unspecified:
            address = ipaddress.ip_address("::1" if address.version == 6 else "127.0.0.1")
        place = f"[{address}]" if address.version == 6 else str(address)
        scheme = "https" if self.granian.get("ssl_cert") else "http"
        prefix = (self.granian.get("url_path_prefix") or "").strip("/")
        return f"{scheme}://{place}:{self.port}" + (f"/{prefix}" if prefix else "")


def read(file: Path | None, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of a file (defaults for None); raises `ManifestError` with file and key.

    Of the environment, where one is given, `PORT` counts when the file sets no port.
    """
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8-sig")) if file else {}
    except OSError as error:
        raise ManifestError(f"cannot be read: {error.strerror}", file=file) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ManifestError(f"is not TOML: {error}", file=file) from None
    _refuse_unknown(file, table, ("host", "granian"), "")
    host = _table(file, table, "host")
    _refuse_unknown(file, host, [field.name for field in msgspec.structs.fields(HostSettings)], "host.")
    said = _convert(file, host, HostSettings, "host")
    return _Reading(file, said).settings(_port(said, environment or {}), _granian(file, _table(file, table, "granian")))


def address(value: str) -> str:
    """Return the IP address of `0.0.0.0`, `::1`, `localhost`; raises `ValueError` that says what would be right."""
    if value == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(value.strip("[]")))
    except ValueError:
        shown = expectation.shown(value)
        raise ValueError(f"expected an IP address such as 127.0.0.1 or 0.0.0.0, or localhost, got {shown}") from None


class _Reading:
    """One `[host]` table on its way to `Settings`: text becomes numbers; an error names the key."""

    def __init__(self, file: Path | None, said: HostSettings) -> None:
        self._file = file
        self._said = said

    def settings(self, port: int, granian: dict[str, Any]) -> Settings:
        said = self._said
        return Settings(
            manifests=Path(said.manifests or "manifests").expanduser(),
            manifests_said=said.manifests is not None,
            address=self._told("address", address, said.address),
            port=port,
            budget=self._budget(),
            threads=machine.cores() if isinstance(said.threads, str) else said.threads,
            grace=self._told("grace", seconds, said.grace),
            drain=self._told("drain", seconds, said.drain),
            stop=self._told("stop", _bounded, said.stop),
            stall=self._told("stall", seconds, said.stall),
            cors=said.cors,
            max_body=self._told("max_body", size, said.max_body),
            log=said.log,
            log_level=said.log_level,
            granian=granian,
        )

    def _budget(self) -> dict[str, int]:
        auto = int(machine.memory_total() * MEMORY_SHARE)
        budget = {"ram": auto if self._said.memory == "auto" else self._told("memory", size, self._said.memory)}
        for device, value in self._said.vram.items():
            key = f'vram."{device}"'
            if not _DEVICE.fullmatch(device):
                raise self._error(key, "expected a device with its number, such as cuda:0, or mps")
            budget[device] = self._told(key, size, value)
        return budget

    def _told(self, key: str, parse: Callable[[Any], T], value: Any) -> T:
        try:
            return parse(value)
        except ValueError as error:
            raise self._error(key, str(error)) from None

    def _error(self, key: str, message: str) -> ManifestError:
        return ManifestError(message, file=self._file, key=f"host.{key}")


def _bounded(value: Any) -> float:
    found = seconds(value)
    if math.isinf(found):
        raise ValueError("expected a time such as 5s; without end, a worker that hangs would never go")
    return found


def _port(said: HostSettings, environment: Mapping[str, str]) -> int:
    if said.port is not None:
        return said.port
    word = environment.get("PORT", "").strip()
    if not word:
        return 8000
    if not (word.isascii() and word.isdigit() and int(word) <= 65535):
        raise ManifestError(f"expected a whole number from 0 to 65535, got {expectation.shown(word)}", key="PORT")
    return int(word)


def _granian(file: Path | None, table: dict[str, Any]) -> dict[str, Any]:
    """Return the `[granian]` table as keyword arguments of granian's embedded server, each checked to be one."""
    if not table:
        return {}
    from granian.server.embed import Server

    known = [name for name in inspect.signature(Server.__init__).parameters if name not in ("self", *REFUSED)]
    for key, why in REFUSED.items():
        if key in table:
            raise ManifestError(why, file=file, key=f"granian.{key}")
    _refuse_unknown(file, table, known, "granian.")
    hints = inspect.get_annotations(Server.__init__, eval_str=True)
    for key, value in table.items():
        inner = next((member for member in get_args(hints[key]) if dataclasses.is_dataclass(member)), None)
        if inner is not None and isinstance(value, dict):
            _refuse_unknown(file, value, [field.name for field in dataclasses.fields(inner)], f"granian.{key}.")
    found = {key: _convert(file, value, hints[key], f"granian.{key}") for key, value in table.items()}
    _check_granian(file, found)
    return found


def _check_granian(file: Path | None, found: dict[str, Any]) -> None:
    """Refuse what granian would only stumble over later: numbers out of bounds, half of a key pair, missing files."""
    for key, value in found.items():
        low, high = _BOUNDS.get(key, (1, (1 << 31) - 1))
        if isinstance(value, int) and not isinstance(value, bool) and not low <= value <= high:
            message = f"expected a whole number from {low} to {high}, got `{value}`"
            raise ManifestError(message, file=file, key=f"granian.{key}")
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, Path) and not path.exists():
                raise ManifestError(f"no such file or folder: {path}", file=file, key=f"granian.{key}")
    if ("ssl_cert" in found) != ("ssl_key" in found):
        missing = "ssl_key" if "ssl_cert" in found else "ssl_cert"
        raise ManifestError("TLS needs both ssl_cert and ssl_key", file=file, key=f"granian.{missing}")


def _convert(file: Path | None, data: Any, type_: Any, at: str) -> Any:
    """Return TOML data as the type; raises `ManifestError` with the key and what it expects."""
    try:
        return msgspec.convert(data, type_, strict=True, dec_hook=_path)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        steps = tuple(_STEP.findall(where.rstrip("`")))
        wanted = expectation.within(msgspec.inspect.type_info(type_), steps)
        value = data
        for step in steps:
            value = value[step] if isinstance(value, dict) and step in value else value
        refusal = expectation.refusal(wanted, value, None) if wanted is not None else message[0].lower() + message[1:]
        refusal = refusal.replace("expected Path", "expected a path")
        raise ManifestError(refusal, file=file, key=".".join((at, *steps))) from None


def _path(type_: type, value: Any) -> Any:
    """Return text as a path: granian's settings have some, and TOML has none."""
    if type_ is Path and isinstance(value, str):
        return Path(value).expanduser()
    raise ValueError(f"expected a path, got {expectation.shown(value)}")


def _table(file: Path | None, data: dict[str, Any], name: str) -> dict[str, Any]:
    table = data.get(name, {})
    if not isinstance(table, dict):
        raise ManifestError(f"expected a table: write it as [{name}]", file=file, key=name)
    return table


def _refuse_unknown(file: Path | None, table: dict[str, Any], known: Iterable[str], at: str) -> None:
    names = list(known)
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            cure = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(names)}"
            raise ManifestError(f"unknown key; {cure}", file=file, key=f"{at}{key}")
