"""Recognises torch's out-of-memory errors, frees its caches, and sets malloc's thresholds."""

from __future__ import annotations

import contextlib
import ctypes

import torch

from host.errors import OutOfMemory

_CPU = ("not enough memory", "can't allocate memory", "cannot allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that RAM or a device's memory ran out."""
    if isinstance(error, MemoryError | OutOfMemory | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError | OSError) and any(words in str(error).lower() for words in _CPU)


def release() -> None:
    """Free torch's memory cache on an accelerator."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def out_of_memory(message: str) -> OutOfMemory:
    """Return the error a caller gets; torch's cache on an accelerator is given back first."""
    release()
    return OutOfMemory(message)


def raise_malloc_thresholds() -> None:
    """Raise glibc's mmap and trim thresholds, so that freed memory is kept for the next batch.

    Otherwise it gives large tensors back to the system and gets them anew, page by page, in each layer.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, 32 << 20)
        mallopt(_TRIM_THRESHOLD, 256 << 20)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""As glibc's malloc.h numbers them."""
