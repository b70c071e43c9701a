"""A prompt of the manifest, filled in: what the user says behind the input, and where the model goes on from.

It knows the three placeholders, and nothing of chat templates or tokens.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from functions.decide.api import Question
from functions.decide.options import ANSWER, CHOICES, INSTRUCTIONS, DecideOptions
from functions.decide.texts import listed, text

_PLACES = re.compile(f"({re.escape(INSTRUCTIONS)}|{re.escape(CHOICES)})")


class Asked(NamedTuple):
    """A question in words."""

    user: str
    """What the user says behind the input."""
    model: str
    """How the model's answer begins."""


def asked(question: Question, options: DecideOptions) -> Asked:
    """Return a question in the words of its type's prompt."""
    return filled(getattr(options, f"{question.type}_prompt"), text(question.instructions).strip(), listed(question))


def filled(prompt: str, instructions: str, choices: str) -> Asked:
    """Return the prompt with its placeholders filled in; what is filled in is not looked at again."""
    user, _, model = prompt.partition(ANSWER)
    known = {INSTRUCTIONS: instructions, CHOICES: choices}

    def fill(part: str) -> str:
        return "".join(known.get(piece, piece) for piece in _PLACES.split(part))

    return Asked(fill(user).strip(), fill(model))
