"""The lightest client there is: requests made beforehand over one socket, answers counted and not read.

Clients on the cores of what they measure should take next to nothing of them.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def post(port: int, path: str, bodies: Sequence[bytes]) -> None:
    """Send each body when the answer to the one before it is there; raises for anything but 200."""
    with socket.create_connection(("127.0.0.1", port), timeout=300) as connection:
        for body in bodies:
            head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
            connection.sendall(head.encode() + b"\r\n\r\n" + body)
            _answer(connection)


def _answer(connection: socket.socket) -> None:
    found = b""
    while b"\r\n\r\n" not in found:
        found += _more(connection)
    head, _, rest = found.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    if not head.startswith(b"HTTP/1.1 200") or length is None:
        raise RuntimeError(found.decode(errors="replace")[:300])
    missing = int(length[1]) - len(rest)
    while missing > 0:
        missing -= len(_more(connection))


def _more(connection: socket.socket) -> bytes:
    part = connection.recv(65536)
    if not part:
        raise ConnectionError("the answer broke off")
    return part
