"""What the host gives an instance to load itself with, made for tests that open instances without a host."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import msgspec

from host.function import Load
from host.manifest import Manifest, of_manifest
from host.manifest import options as options_
from host.registry import Registry


@functools.cache
def registry() -> Registry:
    return Registry.discover()


def given(
    task: str,
    path: Path,
    options: dict[str, Any] | None = None,
    *,
    engine: str = "transformers",
    attempt: int = 0,
    threads: int | None = None,
    **manifest: Any,
) -> Load:
    """Return the load of a model in a folder or file; `options` are checked and split as the host does it.

    On Transformers it is in fp32, so that numbers can be compared with those of libraries run directly; tests of bf16
    say `quantization=None` or `"bf16"`. It computes two batches at a time there, and with one thread elsewhere: ggml's
    threads wait for each other by spinning, which is slow where other processes compute too.
    """
    if engine == "transformers":
        manifest.setdefault("quantization", "fp32")
    made, document = of_manifest(Manifest(task=task, model="x", name="m", options=options or {}, **manifest))
    function = registry().function(task)
    own, functions = options_.read(document, registry().engines[engine].options, function.options)
    return Load(
        manifest=made,
        path=str(path),
        engine=engine,
        options=msgspec.Raw(msgspec.msgpack.encode(own)),
        function_options=msgspec.Raw(msgspec.msgpack.encode(functions)),
        threads=threads or (2 if engine == "transformers" else 1),
        memory={"ram": 8 << 30},
        attempt=attempt,
    )


def checked(instance: Any, task: str) -> Any:
    """Return the instance with requests checked before it gets them, as the host does it by their operation."""
    checks = {operation.request: operation.check for operation in registry().function(task).operations}
    answer = instance.answer

    def check_and_answer(request: Any) -> Any:
        checks[type(request)](request)
        return answer(request)

    instance.answer = check_and_answer
    return instance


def close(opened: list[Any], first: int = 0) -> None:
    """Close instances from the `first` on, and forget them: each holds its weights until then."""
    while len(opened) > first:
        opened.pop().close()


def ignore(stage: str, done: int = 0, total: int = 0) -> None:
    """Take progress and do nothing with it."""
