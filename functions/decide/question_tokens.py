"""Requests as tokens: the prefix that is computed once, and behind it each question with all that may answer it.

It knows the model's template and vocabulary, and nothing of probabilities or of how they are computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from functions.decide.api import DecisionRequest, Question
from functions.decide.options import DecideOptions
from functions.decide.prompt import Asked, asked, filled
from functions.decide.prompt_tokens import Script
from functions.decide.spellings import Ids, Spellings
from functions.decide.texts import spelled, values, written
from functions.decide.tokenizer_pool import Check
from functions.decide.turns import Turn, turns
from functions.engines.batching import length_guard
from functions.engines.chat_template import ChatTemplate
from functions.engines.llama.model.vocabulary import Vocabulary
from functions.engines.llama.scoring.branch import Branch
from functions.engines.prefix_cache.common_prefix import common_prefix
from host.errors import ContextLengthExceeded

T = TypeVar("T")

SYSTEM = "You answer questions about a text."
"""What models are told where neither the input nor the manifest has a system message."""


class Ask(msgspec.Struct, frozen=True):
    """A question ready to be computed."""

    question: Question
    words: Asked
    branch: Branch
    events: Spellings


class Asker:
    """A model's way of being asked."""

    def __init__(
        self, template: ChatTemplate, words: Vocabulary, options: DecideOptions, *, longest: int, system: str | None
    ) -> None:
        """`longest` are the tokens of an input with one question and an answer to it."""
        self._template = template
        self._words = words
        self._options = options
        self._longest = longest
        self._system = system or SYSTEM

    def request(self, request: DecisionRequest, check: Check) -> tuple[list[int], list[Ask]]:
        """Return the prefix and the questions; what all of them begin with belongs to the prefix.

        It takes seconds for many long choices; `check` is called before each question and each choice. Raises
        `InvalidRequest` where the template refuses the input, `ContextLengthExceeded`, and `InputTooLong` for what is
        so long that it is not even tokenised.
        """
        spoken = turns(request, self._system)
        self._check_brief(request, spoken)
        script = Script(self._template, self._words, spoken)
        said = [asked(question, self._options) for question in request.questions]
        suffixes = [script.suffix(one) for one in _wanted(said, check)]
        count = self._lead(script, {question.type for question in request.questions}, suffixes)
        prefix = [*script.prefix, *suffixes[0][:count]]
        asks = []
        for question, words, suffix in _wanted(zip(request.questions, said, suffixes, strict=True), check):
            events = self._events(question, check)
            asks.append(Ask(question, words, Branch(suffix[count:], events.spellings), events))
            self._check_room(prefix, asks[-1], len(asks) - 1)
        return prefix, asks

    def without_input(self, asks: Sequence[Ask], check: Check) -> tuple[list[int], list[Branch]]:
        """Return the same questions about an empty input."""
        script = Script(self._template, self._words, [Turn("system", self._system), Turn("user", "")])
        branches = [Branch(script.suffix(ask.words), ask.events.spellings) for ask in _wanted(asks, check)]
        return script.prefix, branches

    def _lead(self, script: Script, kinds: set[str], suffixes: Sequence[Sequence[int]]) -> int:
        """Return how many tokens questions of these types begin with in common, whatever they ask.

        A single question shares all with itself: what would be shared with others is found by asking such.
        """
        probes = [
            script.suffix(filled(getattr(self._options, f"{kind}_prompt"), *words))
            for kind in kinds
            for words in (("Is", "a"), ("0", "1"))
        ]
        return min(min(common_prefix(suffixes[0], other), len(other) - 1) for other in [*probes, *suffixes])

    def _events(self, question: Question, check: Check) -> Spellings:
        """Return what may be answered, each spelled as it is behind a word and at the beginning of a line."""
        if question.type == "predicate":
            return Spellings([self._spellings(self._options.yes_words), self._spellings(self._options.no_words)])
        return Spellings([self._spellings([one]) for one in _wanted(spelled(values(question)), check)])

    def _spellings(self, texts: Sequence[str]) -> list[Ids]:
        return [tuple(self._words.tokenize(space + text, special=False)) for text in texts for space in (" ", "")]

    def _check_brief(self, request: DecisionRequest, said: Sequence[Turn]) -> None:
        length_guard.check("\n".join(turn.text for turn in said), self._longest, "input")
        for at, question in enumerate(request.questions):
            length_guard.check(written(question), self._longest, f"questions[{at}]")

    def _check_room(self, prefix: Sequence[int], ask: Ask, at: int) -> None:
        own = len(ask.branch.suffix) + max(map(len, ask.events.spellings))
        if len(prefix) + own > self._longest:
            raise ContextLengthExceeded(
                f"the input has {len(prefix)} tokens, and `questions[{at}]` with its longest answer {own} more: "
                f"this model's context holds {self._longest}",
                param="input" if len(prefix) >= own else f"questions[{at}]",
                extra={"n_prompt_tokens": len(prefix) + own, "n_ctx": self._longest},
            )


def _wanted(items: Iterable[T], check: Check) -> Iterator[T]:
    """Yield the items while somebody waits for what is made of them."""
    for item in items:
        check()
        yield item
