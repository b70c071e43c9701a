"""Chat templates: renders a model's Jinja template in an immutable sandbox, with the functions that templates expect.

Raises `InvalidRequest` with the template's own message when it rejects the messages or fails on them.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from host.errors import InvalidRequest

Message = dict[str, Any]
_PROBE = "ⓢprobe"
_HERE = "ⓢhere"


class _Generation(Extension):
    """`{% generation %}`: marks what an assistant said, for training; here it only passes its body on."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateError(Exception):
    """The template is not Jinja."""


class ChatTemplate:
    """One compiled template."""

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise TemplateError(str(error)) from None
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self.knows_developer = "developer" in source
        self.knows_system = self._shows_system()

    def render(
        self, messages: Sequence[Message], extra: Mapping[str, Any] | None = None, *, open_answer: bool = True
    ) -> str:
        """Return the prompt for these messages.

        `extra` are further variables of the template; `open_answer` ends the prompt with the beginning of an
        assistant's message. Raises `InvalidRequest` with the template's own words when it refuses the messages, or
        fails on them.
        """
        values = {"tools": None, "documents": None, **(extra or {}), **self._tokens}
        values |= {"messages": list(messages), "add_generation_prompt": open_answer}
        try:
            return self._template.render(values)
        except jinja2.TemplateError as error:
            raise InvalidRequest(
                f"the model's chat template refuses these messages: {error}", param="messages"
            ) from None
        except Exception as error:  # noqa: BLE001 - a template is a program from elsewhere: it may fail in any way
            message = f"the model's chat template fails on these messages: {type(error).__name__}: {error}"
            raise InvalidRequest(message, param="messages") from None

    def render_open(self, messages: Sequence[Message], extra: Mapping[str, Any] | None = None) -> str:
        """Return the prompt that ends within the last message, for the model to go on with it."""
        *before, last = messages
        marked = {**last, "content": last["content"] + _HERE}
        text, found, _ = self.render([*before, marked], extra, open_answer=False).rpartition(_HERE)
        if not found:
            raise InvalidRequest("the model's chat template does not show the last message", param="messages")
        return text

    def _shows_system(self) -> bool:
        try:
            system, user = {"role": "system", "content": _PROBE}, {"role": "user", "content": "x"}
            return _PROBE in self.render([system, user])
        except InvalidRequest:
            return False


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _now(pattern: str) -> str:
    return dt.datetime.now().astimezone().strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML, which prompts must not have."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
