"""Computes a first batch while loading, so that a graph that cannot run fails the load and not the first request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from functions.engines.batching.item import Item
from functions.engines.checkpoint.tokenizer import FastTokenizer
from functions.engines.onnx.native_library import is_out_of_memory, message_of
from host.errors import LoadFailed, OutOfMemory

R = TypeVar("R")


def probe(compute: Callable[[Sequence[Item]], Sequence[R]], tokens: FastTokenizer, file: str) -> Sequence[R]:
    """Return what becomes of two inputs of different lengths; raises `LoadFailed` and `OutOfMemory`."""
    words = tokens.bare("a b") or [0]
    items = [Item(ids=tokens.frame([*words, *words])), Item(ids=tokens.frame(words))]
    try:
        return compute(items)
    except Exception as error:
        if is_out_of_memory(error):
            raise OutOfMemory("memory ran out while first inputs were computed") from error
        raise LoadFailed(f"{file} cannot compute first inputs: {message_of(error)}") from error
