"""The function contract: what a plug-in registers (`Function`, `Engine`) and what answers in a worker (`Instance`).

Requests and answers are msgspec Structs and flow unchanged from a handler to an instance and back, whatever lies
between. HTTP, processes and model libraries are not imported here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import msgspec

from host.file_format import FileFormat
from host.manifest import Manifest

Request = TypeVar("Request")
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)
Options = TypeVar("Options", bound=msgspec.Struct)

RAM = "ram"
"""The memory pool that every machine has; accelerators are pools of their own, named as torch names the device."""


def accept(request: Any) -> None:
    """Accept any request: the `check` of operations whose types say all."""


class Operation(msgspec.Struct, Generic[Request, Answer], kw_only=True, frozen=True):
    """One thing a function can be asked: the request's type, the answer's type, and whether answers stream.

    A streaming operation answers with many `answer` values: `answer` is then one tagged Struct or a union of them.
    """

    name: str
    request: type[Request]
    answer: Any
    """`type[Answer]`, or a union of tagged Structs, which Python's typing cannot say."""
    streams: bool = False
    check: Callable[[Any], None] = accept
    """Raises `InvalidRequest` or `UnsupportedParameter`, naming the field, for what is wrong with a request whatever
    the model. The host runs it once for each call, over HTTP and direct, before it looks for a model: handlers and
    instances need no checks of that kind. It runs on the host's event loop and must be quick."""
    path: str | None = None
    """The route that takes its JSON by POST, such as `/v1/embeddings`: the command line asks it. None: it has none.
    Where no route of the function serves it, the host does, with the request as JSON in and the answer as JSON out."""
    option: str | None = None
    """The manifest's option without which a model does not answer it; None: every model of the function does."""


class Engine(msgspec.Struct, kw_only=True, frozen=True):
    """What runs weights; registered by `coldframe_engines`. All of it is importable without the engine's library."""

    name: str
    summary: str
    requires: tuple[str, ...] = ()
    """Import names that must be installed; when one is missing the engine is disabled, with that reason."""
    preload: tuple[str, ...] = ()
    """Modules imported once into the engine's forkserver. Importing them starts no thread and touches no device."""
    suffixes: tuple[str, ...] = ()
    """File endings this engine takes when the manifest says `engine: auto`; none means folders."""
    formats: tuple[FileFormat, ...] = ()
    """How its files are chosen among those of a repository or folder. Default: the only file with one of `suffixes`."""
    adapters: str | None = None
    """The option that maps names of adapters to what they are; clients choose one by `model: NAME@ADAPTER`."""
    consent: tuple[str, ...] = ()
    """Boolean options by which the operator lets code in the model's folder run; models that set one are listed by
    `coldframe ls` and `/health`."""
    distributions: tuple[str, ...] = ()
    """Installed distributions whose versions `/health` shows."""
    options: type[msgspec.Struct] = msgspec.Struct
    """The Struct of the manifest's `options`: each field typed, with a default and a docstring below it."""


class Function(msgspec.Struct, kw_only=True, frozen=True):
    """A capability; registered by `coldframe_functions`."""

    name: str
    """The manifest's `task`."""
    summary: str
    operations: tuple[Operation[Any, Any], ...]
    instances: dict[str, str]
    """Engine name -> `module:Class` of the `Instance`, imported only where the model runs. First one is preferred."""
    tasks: tuple[str, ...] = ()
    """Other words for the task, e.g. Hugging Face's pipeline names."""
    routes: tuple[Any, ...] = ()
    """Litestar route handlers; they ask for the dependency `host: Host`. Operations with one answer and a `path` need
    none."""
    options: type[msgspec.Struct] = msgspec.Struct
    """The Struct of what a manifest's `options` may say to it besides the engine's own keys; no key is in both."""
    cli: str | None = None
    """`module:Class` of its `Cli`, imported only by the command line; None: it is asked by JSON there."""

    def operation(self, name: str) -> Operation[Any, Any]:
        """Return the operation of that name; raises `KeyError`."""
        return next((op for op in self.operations if op.name == name), None) or _unknown(name)


def _unknown(name: str) -> Operation[Any, Any]:
    raise KeyError(name)


class Cli(Protocol):
    """How people speak to a function from a command line: plain words in, plain text out. What `Function.cli` names.

    Words are joined by spaces; a class with an attribute `between` has what it says between them instead.

    What is in between is the JSON of the route of the function's first operation that has a `path`. The texts of a
    stream's events are joined as they come.
    """

    def body(self, text: str) -> dict[str, Any]:
        """Return the JSON body that asks what a person means by these words; `model` is added by the caller."""

    def show(self, answer: Any) -> str:
        """Return what a person reads of one JSON answer, or of one event of a stream; empty where that is nothing."""


class Usage(msgspec.Struct, kw_only=True, frozen=True):
    """Tokens counted by the model's own tokenizer. Answers that know theirs carry a field `usage: Usage | None`.

    The host reads that field of every answer that passes, for `/metrics`.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """How many of the prompt's tokens were not computed again."""
    accepted_tokens: int = 0
    """Tokens guessed ahead of the model (speculation) that it took."""
    rejected_tokens: int = 0
    """Tokens guessed ahead that it did not take."""


class Load(msgspec.Struct, kw_only=True, frozen=True):
    """All an instance is given to plan and load itself with."""

    manifest: Manifest
    path: str
    """The resolved model: a file or a folder on this machine."""
    engine: str
    options: msgspec.Raw = msgspec.Raw(b"\x80")
    """The manifest's `options`, already checked, as msgpack of the engine's `options` Struct."""
    function_options: msgspec.Raw = msgspec.Raw(b"\x80")
    """The same of the function's `options` Struct."""
    threads: int = 1
    """Cores the engine may use: what cgroup quota and affinity mask allow, rounded down, at least 1."""
    memory: dict[str, int] = msgspec.field(default_factory=dict)
    """Bytes of each pool the budget has in all; a plan that chooses a size for itself keeps within them."""
    held: dict[str, int] = msgspec.field(default_factory=dict)
    """Bytes of each pool that the host's other instances hold now, and would give up if need be."""
    base: str = "."
    """The folder that relative paths in `options` start from: the manifest's own."""
    attempt: int = 0
    """0, or 1 when the first load ran out of memory: take less of whatever the manifest leaves open."""

    def engine_options(self, type_: type[Options]) -> Options:
        """Return the manifest's `options` for the engine, as the engine's own `options` Struct."""
        return msgspec.msgpack.decode(self.options, type=type_)

    def task_options(self, type_: type[Options]) -> Options:
        """Return the manifest's `options` for the function, as the function's own `options` Struct."""
        return msgspec.msgpack.decode(self.function_options, type=type_)


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """What an instance will take, computed before any weight is read."""

    bytes: dict[str, int]
    """Pool -> bytes: `{"ram": 120_000_000}`, `{"cuda:0": …, "ram": …}`."""
    device: str = "cpu"
    slots: int = 1
    context: int | None = None
    """Tokens per slot."""
    notes: tuple[str, ...] = ()
    """What was chosen, and why, in sentences a person can read."""
    detail: dict[str, int | float | str] = msgspec.field(default_factory=dict)
    """The engine's own numbers: weights, cache, compute buffers in bytes, …"""
    pools: dict[str, int] = msgspec.field(default_factory=dict)
    """Total bytes of the accelerators this worker sees, by pool; the host budgets with them."""


class InstanceInfo(msgspec.Struct, kw_only=True, frozen=True):
    """What a loaded instance says of itself; shown in `/v1/models` and `/v1/functions`."""

    capacity: int = 1
    """Requests it takes side by side; the host queues the others."""
    context: int | None = None
    """Tokens per slot as really served."""
    slots: int = 1
    detail: dict[str, Any] = msgspec.field(default_factory=dict)


class Progress(Protocol):
    """Called from any thread while loading; cheap, and dropped where it is not shown."""

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        """Report the stage (one word: `weights`, `cache`) and, where known, bytes done of bytes in all."""


class Instance(ABC):
    """A loaded manifest, able to answer. Lives in a worker process, or in this one when placed `inline`.

    `plan` and `load` are plain blocking code and run in a thread, once each and in that order. `answer` runs on the
    worker's event loop and must never block it; many calls run side by side, up to `info().capacity`. A caller that
    goes away cancels the coroutine or closes the generator: `finally` is where work is given up.
    """

    @classmethod
    @abstractmethod
    def plan(cls, load: Load) -> Plan:
        """Compute what will be taken, without reading weights or touching a device's memory."""

    @classmethod
    @abstractmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load the weights. Raises `OutOfMemory` when memory ran out, `LoadFailed` for what else is wrong."""

    @abstractmethod
    def answer(self, request: Any) -> Awaitable[Any] | AsyncIterator[Any]:
        """Answer one request Struct: an awaitable of one answer, or an async iterator where the operation streams.

        The operation's `check` has accepted the request before.

        Raise the errors of `host.errors` for what the client can know; anything else reaches it as an opaque 500.
        """

    def info(self) -> InstanceInfo:
        """Return what is true of the instance now that it is loaded."""
        return InstanceInfo()

    def close(self) -> None:  # noqa: B027 - closing is optional
        """Give back what outlives the process's memory (files, threads); called once, blocking code."""


class Stream(Protocol[Answer_co]):
    """The answers of one streaming call. Nothing happens before the first `__anext__`; `aclose` cancels anywhere."""

    def __aiter__(self) -> AsyncIterator[Answer_co]:
        """Return itself."""

    async def __anext__(self) -> Answer_co:
        """Return the next answer; the first waits for admission and load. Raises `ColdframeError`."""

    async def aclose(self) -> None:
        """Stop the call, wherever it is: queued, loading, computing. Safe to call twice and before the start."""

    def stage(self) -> str:
        """Return in a few words what is being waited for: `queued`, `loading weights 12/98 MB`."""


class Host(Protocol):
    """What a route handler, a test or another program asks for answers. The dependency `host` of every handler."""

    def served_name(self, model: str | None, operation: Operation[Any, Any]) -> str:
        """Return the name that the client gave, or where it gave none, that of the one model that serves `operation`.

        Raises `InvalidRequest` where none or several do.
        """

    async def call(self, model: str, operation: Operation[Any, Answer], request: Any) -> Answer:
        """Answer one request of a non-streaming operation; loads the model when it is cold.

        An empty `model` is the one model that serves the operation, where there is only one.

        Raises `ModelNotFound`, `InvalidRequest`, `QueueFull`, `Unavailable` and what the instance raises.
        """

    async def collect(self, model: str, operation: Operation[Any, Answer], request: Any) -> list[Answer]:
        """Answer one request of a streaming operation with all its answers at once; raises as `call` does.

        They leave the model's process in one message at the end, so this is cheaper than to iterate a `stream`.
        """

    def stream(self, model: str, operation: Operation[Any, Answer], request: Any) -> Stream[Answer]:
        """Return the stream of answers of a streaming operation; the errors of `call` come from its first answer."""


class Source(ABC):
    """Where models come from; registered by `coldframe_sources`. Runs in the host, blocking code in a thread."""

    name: ClassVar[str]

    @abstractmethod
    def claims(self, model: str) -> bool:
        """Return, from the text of the manifest's `model` alone, whether this source resolves it."""

    @abstractmethod
    def resolve(self, wanted: ModelRequest, progress: Progress) -> Path:
        """Return the file or folder, bringing it here first when need be. Raises the `SourceError`s."""

    def check(self, wanted: ModelRequest) -> None:  # noqa: B027 - most sources have nothing cheap to check
        """Raise `SourceError` or `ManifestError` for what can be seen to be wrong without network and at once."""


class ModelRequest(msgspec.Struct, kw_only=True, frozen=True):
    """A model to resolve."""

    model: str
    base: Path
    """Relative paths are relative to this folder: the manifest's own."""
    quantization: str | None = None
    revision: str | None = None
    formats: Sequence[FileFormat] = ()
    """File formats to choose among: the chosen engine's, or those of all engines when the files decide."""
    required: bool = False
    """Whether a folder without files of these formats is an error; else it is returned as it is."""
    endings: Sequence[str] = ()
    """File endings of all engines: `folder/file` with one of them is a path, not a hub repository."""
