"""The forkserver: a process that imported an engine once and forks a worker, ready to load, whenever it is asked.

Run as `python -P -m host.worker.forkserver FD HOST_PID MODULE…`. One thread, no device, no event loop: nothing that a
fork would break. A request is one byte and two descriptors (the worker's socket, its log) over a socket; answers are
the pid of every worker and, later, its exit status. It ends, with its workers, when that socket closes.

It stands in for multiprocessing's forkserver, which re-imports the host's main module in each worker, pickles what it
passes, adds a resource-tracker process and keeps exit statuses to itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
import traceback
from typing import NoReturn

from host.worker import main as worker

FORK = b"f"
REPLY = struct.Struct("!cii")
FORKED, REFUSED, ENDED, IMPORTED = b"p", b"n", b"x", b"i"
_PR_SET_PDEATHSIG = 1


def main(fd: int, host: int, preload: list[str]) -> int:
    """Import `preload`, then fork on request until the other end of the socket `fd` is closed."""
    _die_with(host)  # which matters while it imports, and does not look at the socket
    control = socket.socket(fileno=fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for module in preload:
        try:
            importlib.import_module(module)
        except Exception:  # noqa: BLE001 - a worker meets it again and reports it
            # A worker will fail at the same import and report it; this process must stay to fork it.
            traceback.print_exc()
    # What is imported by now is never freed: keep collections in workers from touching, and so copying, its pages.
    gc.collect()
    gc.freeze()
    control.sendall(REPLY.pack(IMPORTED, os.getpid(), 0))
    children: set[int] = set()
    try:
        while True:
            ready, _, _ = select.select([control.fileno(), wake_read], [], [])
            if wake_read in ready:
                os.read(wake_read, 512)
                _reap(control, children)
            if control.fileno() in ready and not _serve(control, children):
                return 0
    finally:
        for pid in children:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)


def _serve(control: socket.socket, children: set[int]) -> bool:
    """Fork one worker; returns False when the host is gone."""
    data, descriptors, _, _ = socket.recv_fds(control, 1, 2)
    if not data:
        return False
    sock, log = descriptors
    parent = os.getpid()
    # Held back until the worker has its handler: a SIGTERM in between would end it without a word.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        pid = os.fork()
    except OSError as error:  # no memory or no process ids left: the workers there are go on
        control.sendall(REPLY.pack(REFUSED, 0, error.errno or 0))
        return True
    finally:
        if os.getpid() == parent:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            os.close(sock)
            os.close(log)
    if pid == 0:
        _become_worker(control, sock, log, parent)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # on both sides: signals to the group must not come before the group is there
    children.add(pid)
    control.sendall(REPLY.pack(FORKED, pid, 0))
    return True


def _become_worker(control: socket.socket, sock: int, log: int, parent: int) -> NoReturn:
    """Turn the forked child into a worker in a process group of its own; never returns."""
    status = 70
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        control.close()
        _die_with(parent)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = worker.run(socket.socket(fileno=sock))
    except BaseException:  # noqa: BLE001 - this is the last frame of the process
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; elsewhere than on Linux the closed socket does it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def _reap(control: socket.socket, children: set[int]) -> None:
    while children:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        children.discard(pid)
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)  # what it started and left behind
        control.sendall(REPLY.pack(ENDED, pid, os.waitstatus_to_exitcode(status)))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
