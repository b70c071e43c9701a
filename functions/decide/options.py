"""What a manifest's `options` may say to the decide function, on any engine; it knows no library."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

ANSWER = "{answer}"
INSTRUCTIONS = "{instructions}"
CHOICES = "{choices}"

_PLACES = (ANSWER, INSTRUCTIONS, CHOICES)
_PLACE = re.compile(r"\{\w*\}")

Prompt = Annotated[str, msgspec.Meta(min_length=1)]
Spellings = Annotated[list[Annotated[str, msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)]


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
    yes_words: Spellings = msgspec.field(default_factory=lambda: ["Yes", "yes"])
    """What says that a statement is true. Probabilities of all spellings are added up."""
    no_words: Spellings = msgspec.field(default_factory=lambda: ["No", "no"])
    """What says that it is not."""
    predicate_prompt: Prompt = (
        "Answer questions about the text with Yes or No.{answer}"
        "Is this a text? Yes\nIs this a picture? No\n{instructions}"
    )
    """What follows the input: up to `{answer}` it is said by the user, behind that by the model, which goes on with the
    answer. `{instructions}` are the question's. What stands before it is computed once for all questions."""
    choice_prompt: Prompt = (
        "Answer questions about the text.{answer}Is this a text? Yes\nIs this a picture? No\n{instructions} ({choices})"
    )
    """The same for choices; `{choices}` are their values and descriptions."""
    score_prompt: Prompt = (
        "Answer questions about the text.{answer}Is this a text? Yes\nIs this a picture? No\n{instructions} ({choices})"
    )
    """The same for scores; `{choices}` are the levels' labels and descriptions."""

    def __post_init__(self) -> None:
        """Refuse prompts that cannot work; raises `ValueError`, which a manifest's reader tells with its line."""
        for name in ("predicate_prompt", "choice_prompt", "score_prompt"):
            text = getattr(self, name)
            if INSTRUCTIONS not in text:
                raise ValueError(f"`{name}` must say {INSTRUCTIONS}, where the question's text goes")
            if text.count(ANSWER) > 1:
                raise ValueError(f"`{name}` says {ANSWER} more than once: it is where the model begins to speak")
            unknown = next((place for place in _PLACE.findall(text) if place not in _PLACES), None)
            if unknown is not None:
                raise ValueError(f"`{name}` says {unknown}, which is not known; known are {', '.join(_PLACES)}")
        both = {text.strip() for text in self.yes_words} & {text.strip() for text in self.no_words}
        if both:
            raise ValueError(f"`yes_words` and `no_words` both have {sorted(both)[0]!r}: expected different words")
