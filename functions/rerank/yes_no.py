"""Scores by a language model's next token: the chances of yes and no behind a prompt with query and document.

Method and prompt are those of the Qwen3-Reranker model card: https://huggingface.co/Qwen/Qwen3-Reranker-0.6B
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from functions.engines.batching.item import Ids
from functions.rerank.prompt import Prompt
from functions.rerank.score_mapping import Judge
from functions.rerank.scorer import Mark, Reading, after
from host.errors import LoadFailed, UnsupportedParameter


class Tokenizer(Protocol):
    """What is asked of a tokenizer here."""

    prefix: list[int]
    suffix: list[int]

    async def encode(self, texts: Sequence[str]) -> list[Ids]: ...  # noqa: D102
    def bare(self, text: str) -> list[int]: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class Answers(Protocol):
    """A loaded language model."""

    def shares(self, tokens: int) -> bool:
        """Say whether so many tokens before all documents are computed once."""

    async def odds(self, start: Sequence[int], suffixes: Sequence[Ids]) -> list[float]:
        """Return log P(yes) - log P(no) for the token behind the start and each suffix, or the logit of a lone yes."""

    def detail(self) -> dict[str, Any]:
        """Return what was chosen."""

    def close(self) -> None:
        """End the thread."""


class YesNoScorer:
    """See `functions.rerank.scorer.Scorer`."""

    def __init__(self, model: Answers, tokens: Tokenizer, prompt: Prompt, longest: int, judge: Judge) -> None:
        """`judge` makes a mark of an answer's logit."""
        self.longest = longest
        self._judge = judge
        self._model = model
        self._tokens = tokens
        self._prompt = prompt

    async def read(self, query: str, documents: Sequence[str], instruction: str | None) -> Reading:
        """Tokenise query and documents, each together with the words before it."""
        if instruction is not None and not self._prompt.instructed:
            raise UnsupportedParameter("instruction: this model's prompt has no place for one", param="instruction")
        opening, lead = self._prompt.opening(query, instruction)
        begin, end = len(self._tokens.prefix), len(self._tokens.suffix)
        encoded = await self._tokens.encode([lead, *(lead + document for document in documents)])
        head, *wholes = (ids[begin : len(ids) - end] for ids in encoded)
        kept, parts = after(head.tolist(), wholes)
        start = [*opening, *kept]
        frame = len(start) + len(self._prompt.tail)
        once = len(start) if self._model.shares(len(start)) else 0
        return Reading(parts=parts, frame=frame, room=self.longest - frame, once=once, state=start)

    async def marks(self, reading: Reading, parts: Sequence[Ids]) -> list[Mark]:
        """Return a mark for each part: the log of the odds of yes, and mostly yes' share of the two."""
        tail = np.array(self._prompt.tail, dtype=np.int32)
        suffixes = [np.concatenate([part, tail]) for part in parts]
        return [self._judge([odds]) for odds in await self._model.odds(reading.state, suffixes)]

    def detail(self) -> dict[str, Any]:
        """Return what was chosen."""
        prefix = "shared" if self._model.shares(1) else "repeated"
        return {"method": "yes_no", "prefix": prefix} | self._model.detail()

    def close(self) -> None:
        """End both threads."""
        self._model.close()
        self._tokens.close()


def token(tokens: Tokenizer, word: str, option: str) -> int:
    """Return the id of an answer; raises `LoadFailed` for one that is not a single token."""
    ids = tokens.bare(word)
    if len(ids) != 1:
        raise LoadFailed(f"{option} must be one token of the model, {word!r} is {len(ids)}: {ids[:8]}", param=option)
    return ids[0]
