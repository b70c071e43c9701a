"""The manifest's keys, their types and defaults, and how a manifest is read from a file or made in code."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from host.errors import ManifestError
from host.manifest.document import Document, read
from host.manifest.duration import Duration
from host.manifest.syntax import Tree

# `$` alone would let a line end through, in Python though not in JSON schema.
NAME = r"^[A-Za-z0-9][A-Za-z0-9._/:@+-]*$(?!\n)"
_DEVICE = r"^(auto|cpu|mps|cuda(:(0|[1-9][0-9]?))?)$(?!\n)"
_LINE = r"^[^\u0000-\u001f\u007f]+$(?!\n)"

Name = Annotated[
    str,
    msgspec.Meta(
        pattern=NAME,
        max_length=200,
        extra={"expected": "a name of at most 200 letters, digits and ._/:@+- that begins with a letter or digit"},
    ),
]
Line = Annotated[
    str, msgspec.Meta(pattern=_LINE, max_length=4096, extra={"expected": "text on one line, and not empty"})
]
Device = Annotated[
    str,
    msgspec.Meta(pattern=_DEVICE, extra={"expected": "`auto`, `cpu`, `cuda`, `cuda:1` (or another number) or `mps`"}),
]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=(1 << 31) - 1)]
Slots = Annotated[int, msgspec.Meta(ge=1, le=4096)]
Waiting = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class Queue(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How many requests may wait for the model, and how long."""

    size: Waiting = 64
    """Requests that may wait; one more is refused with 429."""
    wait: Duration = 60.0
    """Longest wait for a slot of a loaded model, or for memory; then 503."""


class Manifest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One served model: a function bound to weights."""

    task: Line
    """The function: `chat`, `embeddings`, …, or a Hugging Face pipeline name such as `text-generation`."""
    model: Line
    """`package:dist_or_module/path`, a path relative to this file, or a hub id `org/repo[:QUANT][/file]`."""
    name: Name = ""
    """What clients send as `model`. Default: the file's name."""
    revision: Line | None = None
    """Hub only: the branch, tag or commit to pin."""
    device: Device = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1` or `mps`."""
    quantization: Line | None = None
    """GGUF: which file of the repository. Transformers: `bf16`, `fp32` or `int8`."""
    context: Tokens | Literal["auto"] = "auto"
    """Tokens per slot; `auto` is what the model was trained for, as far as memory allows."""
    aliases: tuple[Name, ...] = ()
    """Other names clients may send."""
    engine: Line = "auto"
    """`llama`, `transformers`, `onnx`, …; `auto` goes by the files: `.gguf` runs on llama, `.onnx` on onnx, folders of
    safetensors on transformers."""
    slots: Slots | Literal["auto"] = "auto"
    """Sequences decoded side by side."""
    idle: Duration = 300.0
    """Evict after this long without work; `0` at once, `never` not at all."""
    preload: bool = False
    """Load at the host's start instead of at the first call."""
    placement: Line = "process"
    """Where the instance lives: `process`, `inline`, or what a plug-in registers."""
    queue: Queue = Queue()
    """How many requests may wait, and how long."""
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """The engine's own options; docs/manifest.md lists them."""


def of_manifest(manifest: Manifest, base: Path | None = None) -> tuple[Manifest, Document]:
    """Return a manifest made in code, checked as a file's would be, and its document; raises `ManifestError`.

    `base` is the folder that relative model paths start from (default: the working directory).
    """
    said = msgspec.to_builtins(manifest)
    for times, key in ((said, "idle"), (said["queue"], "wait")):
        times[key] = "never" if math.isinf(times[key]) else times[key]
    tree = Tree((base or Path.cwd()) / "manifest made in code")
    tree.data = {key: value for key, value in said.items() if value not in (None, "")}
    document = Document(tree)
    checked = document.convert(Manifest)
    if not checked.name:
        raise ManifestError("a manifest made in code needs a `name`", key="name")
    return checked, document


def load(path: Path) -> tuple[Manifest, Document]:
    """Read and check one manifest file; raises `ManifestError` with file, line and key.

    The document comes with it, so that the engine's `options` can be checked later with lines as good.
    """
    document = read(path)
    manifest = document.convert(Manifest)
    if not manifest.name:
        manifest = msgspec.structs.replace(manifest, name=path.stem)
        if not re.match(NAME, manifest.name) or len(manifest.name) > 200:
            raise ManifestError(
                f"the file's name {path.stem!r} cannot be a model's name: rename it "
                "(letters, digits and ._:@+-), or set `name`",
                file=path,
                key="name",
            )
    return manifest, document
