"""LoRA adapters: loaded with the model from GGUF files, and switched per batch.

Errors name the adapter: `LoadFailed` for files that are no LoRA adapters of this model, `OutOfMemory`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from functions.engines.llama.model import gguf, log
from functions.engines.llama.model.native_library import lib
from functions.engines.llama.options import Adapter
from host.errors import InvalidRequest, LoadFailed, ModelNotFound, OutOfMemory

_Handle = lib.llama_adapter_lora_p_ctypes


class Adapters:
    """The adapters of one model, which frees them with itself."""

    def __init__(self, handles: Mapping[str, tuple[Any, float]]) -> None:
        self._handles = dict(handles)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the adapters."""
        return tuple(self._handles)

    @classmethod
    def open(cls, model: int, wanted: Mapping[str, Adapter], base: Path) -> Adapters:
        """Load the adapters of a model (its handle); raises `LoadFailed` or `OutOfMemory` with the adapter's name."""
        files = check(wanted, base)
        return cls({name: (_load(model, name, files[name]), adapter.scale) for name, adapter in wanted.items()})

    def use(self, context: int, name: str | None) -> None:
        """Set this adapter, or none, on `context` (its handle)."""
        if name is None:
            lib.llama_set_adapters_lora(context, None, 0, None)
            return
        handle, scale = self._handles[name]
        lib.llama_set_adapters_lora(context, (_Handle * 1)(handle), 1, (ctypes.c_float * 1)(scale))


def choose(model: str, asked: str | None, *, names: Collection[str], known: Collection[str]) -> str | None:
    """Return the adapter of `known` that a request wants, by `model: NAME@ADAPTER` or by name, or None.

    `names` are what the model itself is called. Raises `ModelNotFound` and `InvalidRequest` with what there is.
    """
    there = ", ".join(known) or "none"
    named: str | None = None
    if model not in names and "@" in model:
        named = model.rpartition("@")[2]
        if named not in known:
            raise ModelNotFound(f"The model has no adapter `{named}`; its adapters: {there}.", param="model")
    if asked is not None and asked not in known:
        raise InvalidRequest(f"`adapter` is {asked!r}: this model's adapters are: {there}", param="adapter")
    if named is not None and asked is not None and named != asked:
        message = f"`model` chooses the adapter {named!r} and `adapter` {asked!r}: expected one of the two"
        raise InvalidRequest(message, param="adapter")
    return named if asked is None else asked


def sizes(wanted: Mapping[str, Adapter], base: Path) -> dict[str, int]:
    """Return the bytes that each adapter will take; raises `LoadFailed` for a file that is no adapter."""
    return {name: sum(_read(name, file).tensors.values()) for name, file in check(wanted, base).items()}


def check(wanted: Mapping[str, Adapter], base: Path) -> dict[str, Path]:
    """Return the files by name, once each is known to be a LoRA adapter; raises `LoadFailed`."""
    found = {}
    for name, adapter in wanted.items():
        found[name] = base / Path(adapter.path).expanduser()
        texts = _read(name, found[name]).texts
        kind, what = texts.get("general.type", "model"), texts.get("adapter.type", "lora")
        if kind != "adapter" or what != "lora":
            raise _failed(name, f"the file is {_what(kind if kind != 'adapter' else what)}, not a LoRA adapter")
    return found


def _read(name: str, file: Path) -> gguf.GgufHeader:
    try:
        return gguf.read(file)
    except FileNotFoundError:
        raise _failed(name, f"the file {file.name} is not there") from None
    except gguf.GgufError as error:
        raise _failed(name, f"{file.name}: {error}") from None
    except (OSError, ValueError) as error:
        raise _failed(name, f"{file.name} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _load(model: int, name: str, file: Path) -> Any:
    with log.listen() as lines:
        handle = lib.llama_adapter_lora_init(model, str(file).encode())
    if not handle:
        message = log.reason(lines, str(file))
        if log.ran_out_of_memory(lines):
            raise OutOfMemory(f"the adapter `{name}` does not fit into memory: {message}")
        raise _failed(name, message or "llama.cpp gave no reason")
    if lib.llama_adapter_get_alora_n_invocation_tokens(handle):
        raise _failed(name, "it is activated by tokens of the prompt (aLoRA), which is not supported")
    return handle


def _failed(name: str, why: str) -> LoadFailed:
    return LoadFailed(f"options.adapters.{name} cannot be used: {why}")


def _what(kind: str) -> str:
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"
