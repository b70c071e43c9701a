"""Builds the JSON body of a request from the arguments of `coldframe run NAME`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TextIO

import click
import msgspec

from host.cli import Failure
from host.function import Cli, Function, Operation

_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def operation(function: Function, name: str | None) -> Operation[Any, Any]:
    """Return the operation to ask: the one named, else the first that has a route; raises `Failure`."""
    routed = [operation for operation in function.operations if operation.path is not None]
    if name is None and routed:
        return routed[0]
    for found in routed:
        if found.name == name:
            return found
    names = ", ".join(found.name for found in routed)
    what = f"no operation `{name}` with a JSON route" if name else "no operation with a JSON route"
    raise Failure(f"the function `{function.name}` has {what}" + (f"; it has: {names}" if names else ""))


def body(name: str, words: Sequence[str], json: str | None, shell: Cli | None, stdin: TextIO) -> dict[str, Any]:
    """Return the body: of `json` (`-` reads it), of `key=value` pairs, of the other words by the function's shell.

    Pairs come last and win. Raises `Failure` and what the shell raises.
    """
    try:
        found = _body(name, words, json, shell, stdin)
        msgspec.json.encode(found)  # what the terminal gave us may not be text
    except UnicodeError:
        raise Failure("what is to be asked is not valid UTF-8 text") from None
    return found


def _body(name: str, words: Sequence[str], json: str | None, shell: Cli | None, stdin: TextIO) -> dict[str, Any]:
    pairs = [match for word in words if (match := _PAIR.fullmatch(word))]
    texts = [word for word in words if not _PAIR.fullmatch(word)]
    if json is not None and texts:
        raise click.UsageError(f"say words or --json, not both: {' '.join(texts)}")
    if json is None and not words:
        raise click.UsageError(
            "say what to ask: words, key=value pairs, --json, or - to read words from standard input"
        )
    found = _json(stdin.read() if json == "-" else json) if json is not None else {}
    if texts:
        if shell is None:
            raise Failure(f"`{name}` takes no plain words; ask it with key=value pairs or --json")
        between: str = getattr(shell, "between", " ")
        found = shell.body(between.join(stdin.read().strip() if text == "-" else text for text in texts))
    found |= {pair[1]: _value(pair[2]) for pair in pairs}
    if found.setdefault("model", name) != name:
        raise Failure(f"the body says model {found['model']!r}, and the command `{name}`")
    return found


def _json(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise Failure(f"--json is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Failure(f'--json is to be an object such as {{"input": "…"}}, got {text.strip()[:40]}')
    return found


def _value(text: str) -> Any:
    """Return a pair's value: JSON where it is some (`3`, `true`, `[1, 2]`), else the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
