"""Scores by a model with a head that reads query and document together, on any engine that gives a head's logits.

The query is tokenised once, and documents beside each other; a pair is the two put together as the model wants them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from functions.engines.batching.classifier import Logits
from functions.engines.batching.item import Ids, Item, PairFrame
from functions.rerank.prompt import Prompt
from functions.rerank.score_mapping import Judge
from functions.rerank.scorer import Mark, Reading, after
from host.errors import UnsupportedParameter


class Tokenizer(Protocol):
    """What is asked of a tokenizer here."""

    prefix: list[int]
    suffix: list[int]
    pair: PairFrame

    async def encode(self, texts: Sequence[str]) -> list[Ids]: ...  # noqa: D102


class Head(Protocol):
    """What is asked of a `ClassifierModel` here, and of GGUF files that rank."""

    longest: int

    @property
    def config(self) -> Mapping[str, Any]:
        """The model's `config.json`."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The engine's own kind."""

    async def logits(self, items: Sequence[Item]) -> list[Logits]: ...  # noqa: D102
    def detail(self) -> dict[str, Any]: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class CrossEncoderScorer:
    """See `functions.rerank.scorer.Scorer`. `prompt` is for models that read a prompt instead of a plain pair."""

    def __init__(self, model: Head, judge: Judge, prompt: Prompt | None = None) -> None:
        self.longest = model.longest
        self._model = model
        self._judge = judge
        self._prompt = prompt
        self._pair = _frame(model)

    async def read(self, query: str, documents: Sequence[str], instruction: str | None) -> Reading:
        """Tokenise query and documents."""
        prompt = self._prompt
        if instruction is not None and (prompt is None or not prompt.instructed):
            raise UnsupportedParameter("instruction: this model's input has no place for one", param="instruction")
        if prompt is None:
            return await self._paired(query, documents)
        opening, lead = prompt.opening(query, instruction)
        head, *wholes = await self._bare([lead, *(lead + document for document in documents)])
        kept, parts = after(head.tolist(), wholes)
        return self._reading(PairFrame([*opening, *kept], [], prompt.tail), [], parts)

    async def marks(self, reading: Reading, parts: Sequence[Ids]) -> list[Mark]:
        """Return a mark for each part."""
        logits = await self._model.logits(self.items(reading, parts))
        return [self._judge(row.tolist()) for row in logits]

    @staticmethod
    def items(reading: Reading, parts: Sequence[Ids]) -> list[Item]:
        """Return the inputs of the parts."""
        frame, query = reading.state
        return [frame.item(query, part) for part in parts]

    def detail(self) -> dict[str, Any]:
        """Return what was chosen."""
        return {"method": "cross_encoder", "prompted": self._prompt is not None} | self._model.detail()

    def close(self) -> None:
        """End the threads."""
        self._model.close()

    async def _paired(self, query: str, documents: Sequence[str]) -> Reading:
        first, *parts = await self._bare([query, *documents])
        return self._reading(self._pair, first, parts)

    def _reading(self, frame: PairFrame, query: Sequence[int] | Ids, parts: list[Ids]) -> Reading:
        size = frame.extra + len(query)
        return Reading(parts=parts, frame=size, room=self.longest - size, state=(frame, query))

    async def _bare(self, texts: Sequence[str]) -> list[Ids]:
        """Return the texts' tokens without special ones."""
        tokenizer = self._model.tokenizer
        begin, end = len(tokenizer.prefix), len(tokenizer.suffix)
        return [ids[begin : len(ids) - end] for ids in await tokenizer.encode(texts)]


def _frame(model: Head) -> PairFrame:
    """Return what stands around a pair, without segments where the model knows only one."""
    pair = model.tokenizer.pair
    kinds = model.config.get("type_vocab_size")
    return PairFrame(pair.before, pair.between, pair.after) if isinstance(kinds, int) and kinds < 2 else pair
