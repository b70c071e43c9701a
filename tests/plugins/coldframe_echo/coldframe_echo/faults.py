"""Ways to break a process on purpose: to die, to ignore a signal, to take memory. It knows nothing of functions."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
from typing import NoReturn

from coldframe_echo.api import Crash
from host.errors import ColdframeError, ErrorBody, InvalidRequest, descendants, from_body

_PAGE = 4096
_IGNORE = 1


def die(how: Crash) -> NoReturn:
    """End this process at once and without any cleaning up."""
    if how == "segv":
        ctypes.string_at(0)
    if how == "abort":
        os.abort()
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(how if isinstance(how, int) else 70)


def ignore_sigterm() -> None:
    """Ignore SIGTERM in the whole process; Python's own `signal.signal` cannot from a thread, and loads run in one."""
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    libc.signal.restype = ctypes.c_void_p
    libc.signal(signal.SIGTERM, _IGNORE)


def touch(memory: mmap.mmap, start: int, end: int) -> None:
    """Write to every page between the two offsets, so that the kernel really hands them out."""
    for page in range(start - start % _PAGE, end, 1 << 20):
        stop = min(end, page + (1 << 20))
        memory[page:stop:_PAGE] = b"\1" * len(range(page, stop, _PAGE))


def hoard(size: int) -> mmap.mmap | None:
    """Return untouched anonymous memory, which `close()` gives back at once; None for 0 bytes."""
    return mmap.mmap(-1, size) if size else None


def error(code: str) -> Exception:
    """Return the exception for a request's `error`; raises `InvalidRequest` for a code that nobody knows."""
    if code == "bug":
        return ZeroDivisionError("an echo plug-in's bug; its text is for the log alone")
    known = sorted({cls.code for cls in descendants(ColdframeError)})
    if code not in known:
        raise InvalidRequest(f"`error`: no such code {code!r}; known: bug, {', '.join(known)}", param="error")
    return from_body(ErrorBody(code=code, message=f"The request asked for the error {code}."))
