"""Fills in a prompt of the manifest: the user's text after the input, and the beginning of the model's answer."""

from __future__ import annotations

import re
from typing import NamedTuple

from functions.decide.api import Question
from functions.decide.options import ANSWER, CHOICES, INSTRUCTIONS, DecideOptions
from functions.decide.texts import content_text, format_choices

_PLACEHOLDERS = re.compile(f"({re.escape(INSTRUCTIONS)}|{re.escape(CHOICES)})")


class QuestionPrompt(NamedTuple):
    """A question as prompt text."""

    user: str
    """What the user's message ends with, after the input."""
    model: str
    """What the model's message begins with."""


def question_prompt(question: Question, options: DecideOptions) -> QuestionPrompt:
    """Return the prompt of a question by the template for its type."""
    template = getattr(options, f"{question.type}_prompt")
    return fill_prompt(template, content_text(question.instructions).strip(), format_choices(question))


def fill_prompt(template: str, instructions: str, choices: str) -> QuestionPrompt:
    """Return the template with its placeholders replaced; placeholders in the replacements stay as they are."""
    user, _, model = template.partition(ANSWER)
    values = {INSTRUCTIONS: instructions, CHOICES: choices}

    def fill(part: str) -> str:
        return "".join(values.get(piece, piece) for piece in _PLACEHOLDERS.split(part))

    return QuestionPrompt(fill(user).strip(), fill(model))
