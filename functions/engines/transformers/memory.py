"""How torch says that memory ran out, in the host's words."""

from __future__ import annotations

import torch

from host.errors import OutOfMemory

_CPU = ("not enough memory", "can't allocate memory", "cannot allocate memory")


def ran_out(error: BaseException) -> bool:
    """Say whether an error means that RAM or a device's memory ran out."""
    if isinstance(error, MemoryError | OutOfMemory | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError | OSError) and any(words in str(error).lower() for words in _CPU)


def release() -> None:
    """Give back what torch keeps for itself on an accelerator."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def out_of_memory(message: str) -> OutOfMemory:
    """Return the error a caller gets; torch's cache on an accelerator is given back first."""
    release()
    return OutOfMemory(message)
