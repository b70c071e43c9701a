"""What a manifest may say: the keys, their types and defaults. It knows nothing of engines; `options` is theirs."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from host.errors import ManifestError
from host.manifest.document import Document, read

NAME = r"^[A-Za-z0-9][A-Za-z0-9._/:@+-]*$"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

Name = Annotated[str, msgspec.Meta(pattern=NAME, max_length=200)]
Duration = Annotated[
    float,
    msgspec.Meta(
        ge=0,
        description="A time: `30s`, `5m`, `2h`, a number of seconds, or `never`.",
        extra_json_schema={"type": ["number", "string"], "pattern": r"^(never|\d+(\.\d+)?\s*(ms|s|m|h|d))$"},
        extra={"duration": True},
    ),
]
Count = Annotated[int, msgspec.Meta(ge=1)]


class Queue(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How many requests may wait for the model, and how long."""

    size: Annotated[int, msgspec.Meta(ge=0)] = 64
    """Requests that may wait; one more is refused with 429."""
    wait: Duration = 60.0
    """Longest wait for a slot of a loaded model, or for memory; then 503."""


class Manifest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One served model: a function bound to weights."""

    task: str
    """The function: `chat`, `embeddings`, …, or a Hugging Face pipeline name such as `text-generation`."""
    model: Annotated[str, msgspec.Meta(min_length=1)]
    """`package:dist_or_module/path`, a path relative to this file, or a hub id `org/repo[:QUANT][/file]`."""
    name: Name = ""
    """What clients send as `model`. Default: the file's name."""
    revision: str | None = None
    """Hub only: the branch, tag or commit to pin."""
    device: Annotated[str, msgspec.Meta(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1` or `mps`."""
    quantization: str | None = None
    """GGUF: which file of the repository. Transformers: `bf16`, `int8` or `int4`."""
    context: Count | Literal["auto"] = "auto"
    """Tokens per slot; `auto` is what the model was trained for, as far as memory allows."""
    aliases: tuple[Name, ...] = ()
    """Other names clients may send."""
    engine: str = "auto"
    """`llama`, `transformers`, …; `auto` goes by the files: `.gguf` runs on llama, folders on transformers."""
    slots: Count | Literal["auto"] = "auto"
    """Sequences decoded side by side."""
    idle: Duration = 300.0
    """Evict after this long without work; `0` at once, `never` not at all."""
    preload: bool = False
    """Load at the host's start instead of at the first call."""
    placement: str = "process"
    """Where the instance lives: `process`, `inline`, or what a plug-in registers."""
    queue: Queue = Queue()
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """The engine's own knobs; docs/manifest.md lists them."""


def load(path: Path) -> tuple[Manifest, Document]:
    """Read and check one manifest file; raises `ManifestError` with file, line and key.

    The document comes with it, so that the engine's `options` can be checked later with lines as good.
    """
    document = read(path)
    document.data = _with_seconds(document)
    manifest = document.convert(Manifest)
    if not manifest.name:
        manifest = msgspec.structs.replace(manifest, name=path.stem)
        if not re.match(NAME, manifest.name):
            raise ManifestError(
                f"the file's name {path.stem!r} cannot be a model's name: use letters, digits and ._/:@+-, or set `name`",
                file=path,
                key="name",
            )
    return manifest, document


def seconds(value: Any) -> float:
    """Return seconds for `5m`, `90`, `never` (infinity); raises `ValueError` that says what would be right."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected a time such as 30s, 5m, 2h or never, got {value!r}")
    if isinstance(value, int | float):
        return float(value)
    if value.strip() == "never":
        return math.inf
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"expected a time such as 30s, 5m, 2h or never, got {value!r}")
    return float(match[1]) * _UNITS[match[2]]


def _with_seconds(document: Document) -> dict[str, Any]:
    """Return the document's data with `5m` and its like as seconds, wherever the types say a Duration stands."""
    data = dict(document.data)
    if "idle" in data:
        data["idle"] = _duration(document, ("idle",), data["idle"])
    queue = data.get("queue")
    if isinstance(queue, dict) and "wait" in queue:
        data["queue"] = {**queue, "wait": _duration(document, ("queue", "wait"), queue["wait"])}
    return data


def _duration(document: Document, path: tuple[str, ...], value: Any) -> float:
    try:
        return seconds(value)
    except ValueError as error:
        raise document.error(str(error), path) from None
