"""Imports ONNX Runtime with telemetry off, and shortens its error messages.

Official builds start an uploader thread at import that reports usage to the vendor; it is never started here."""

from __future__ import annotations

import os
import re

# Read once, when the library is loaded: no uploader, no events, no identifier on disk. Not a default that a variable
# may overrule: the thread alone would make the forkserver unsafe to fork.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
# Read when numpy is imported: OpenBLAS would start its threads right then, and a process with threads is not safe to
# fork. What multiplies matrices here is ONNX Runtime.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import onnxruntime

from host.errors import OutOfMemory

_MEMORY = ("bad_alloc", "bad allocation", "failed to allocate memory", "not enough memory", "cannot allocate memory")
_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_SOURCE = re.compile(r"\S*onnxruntime\S*\.(?:cc|h):\d+ (?:.*?\) )?")
_PLACE = re.compile(r"[\"']?(?<![\w.])/[^\s\"']*/([^\s/\"']*)[\"']?")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out."""
    if isinstance(error, MemoryError | OutOfMemory):
        return True
    return any(words in str(error).lower() for words in _MEMORY)


def message_of(error: BaseException) -> str:
    """Return the library's reason in one line, without the places of files on this machine."""
    first = str(error).strip().split("\n")[0]
    bare = _SOURCE.sub("", _PREFIX.sub("", first))
    return " ".join(_PLACE.sub(r"\1", bare).split())[:300]


__all__ = ("is_out_of_memory", "message_of", "onnxruntime")
