"""The manifest's `options` for the decide function, on any engine."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

ANSWER = "{answer}"
INSTRUCTIONS = "{instructions}"
CHOICES = "{choices}"

_PLACEHOLDERS = (ANSWER, INSTRUCTIONS, CHOICES)
_PLACEHOLDER = re.compile(r"\{\w*\}")

Prompt = Annotated[str, msgspec.Meta(min_length=1)]
Words = Annotated[list[Annotated[str, msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)]


class DecideOptions(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The manifest's `options` when the task is `decide`, beside the engine's."""

    temperature: Annotated[float, msgspec.Meta(gt=0, le=100)] = 1.0
    """Divides log-probabilities before they are normalised over the allowed answers; the order stays. Above 1 makes
    answers less certain: choose what makes them as often right as they say, on examples of your own."""
    min_mass: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """The least probability that the allowed answers have together, among all that the model could say. A question
    below it is answered with a refusal; 0 refuses none for that."""
    prior: bool = False
    """Divide each choice's and level's probability by the one it has when the input is empty. It takes away what the
    model prefers anyway, such as short or common words, and helps small models; it computes these questions twice.
    Chat models only."""
    yes_words: Words = msgspec.field(default_factory=lambda: ["Yes", "yes"])
    """Answers that mean that a statement is true; the probabilities of all spellings are added up."""
    no_words: Words = msgspec.field(default_factory=lambda: ["No", "no"])
    """Answers that mean that it is not."""
    predicate_prompt: Prompt = (
        "Answer questions about the text with Yes or No.{answer}"
        "Is this a text? Yes\nIs this a picture? No\n{instructions}"
    )
    """The text after the input: up to `{answer}` it is the end of the user's message, after that the beginning of the
    model's, which goes on with the answer. `{instructions}` are the question's. Text before it is computed once for
    all questions."""
    choice_prompt: Prompt = (
        "Answer questions about the text.{answer}Is this a text? Yes\nIs this a picture? No\n{instructions} ({choices})"
    )
    """The same for choices; `{choices}` are their values and descriptions."""
    score_prompt: Prompt = (
        "Answer questions about the text.{answer}Is this a text? Yes\nIs this a picture? No\n{instructions} ({choices})"
    )
    """The same for scores; `{choices}` are the levels' labels and descriptions."""

    def __post_init__(self) -> None:
        """Check the prompts' placeholders; raises `ValueError`, which the manifest reader reports with its line."""
        for option in ("predicate_prompt", "choice_prompt", "score_prompt"):
            text = getattr(self, option)
            if INSTRUCTIONS not in text:
                raise ValueError(f"`{option}` must have {INSTRUCTIONS}, where the question's text goes")
            if text.count(ANSWER) > 1:
                raise ValueError(f"`{option}` has {ANSWER} more than once: it is where the model's message begins")
            unknown = next((name for name in _PLACEHOLDER.findall(text) if name not in _PLACEHOLDERS), None)
            if unknown is not None:
                raise ValueError(f"`{option}` has {unknown}, which is not known; known are {', '.join(_PLACEHOLDERS)}")
        both = {text.strip() for text in self.yes_words} & {text.strip() for text in self.no_words}
        if both:
            raise ValueError(f"`yes_words` and `no_words` both have {sorted(both)[0]!r}: expected different words")
