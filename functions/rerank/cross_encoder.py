"""Scores by a cross-encoder: a model with a head that reads query and document together, on any engine.

The query is tokenised once; the sequences pair it with each document, or fill in the model's prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from functions.engines.batching.classifier import Logits
from functions.engines.batching.item import Ids, Item, PairFrame
from functions.rerank.prompt import Prompt
from functions.rerank.score_mapping import ScoreMapping
from functions.rerank.scorer import (
    RelevanceScore,
    RerankTokenizer,
    TokenizedRequest,
    encode_without_special,
    split_common_prefix,
)
from host.errors import UnsupportedParameter


class PairTokenizer(RerankTokenizer, Protocol):
    """A tokenizer with a template for pairs of texts."""

    pair: PairFrame


class CrossEncoderModel(Protocol):
    """A model with a sequence classification head, of a folder or a GGUF file."""

    longest: int

    @property
    def config(self) -> Mapping[str, Any]:
        """The model's `config.json`."""

    @property
    def tokenizer(self) -> PairTokenizer:
        """The engine's own tokenizer."""

    async def logits(self, items: Sequence[Item]) -> list[Logits]: ...  # noqa: D102
    def detail(self) -> dict[str, Any]: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class CrossEncoderScorer:
    """See `functions.rerank.scorer.Scorer`. `prompt` is for models that read a prompt instead of a plain pair."""

    def __init__(self, model: CrossEncoderModel, mapping: ScoreMapping, prompt: Prompt | None = None) -> None:
        self.longest = model.longest
        self._model = model
        self._mapping = mapping
        self._prompt = prompt
        self._pair = _pair_frame(model)

    async def tokenize(self, query: str, documents: Sequence[str], instruction: str | None) -> TokenizedRequest:
        """Tokenise query and documents."""
        prompt = self._prompt
        if instruction is not None and (prompt is None or not prompt.takes_instruction):
            raise UnsupportedParameter("instruction: this model's input has no place for one", param="instruction")
        if prompt is None:
            first, *parts = await encode_without_special(self._model.tokenizer, [query, *documents])
            return self._request(self._pair, first, parts)
        opening, lead = prompt.opening(query, instruction)
        texts = [lead, *(lead + document for document in documents)]
        lead_ids, *wholes = await encode_without_special(self._model.tokenizer, texts)
        kept, parts = split_common_prefix(lead_ids.tolist(), wholes)
        return self._request(PairFrame([*opening, *kept], [], prompt.tail), [], parts)

    async def score(self, request: TokenizedRequest, chunks: Sequence[Ids]) -> list[RelevanceScore]:
        """Score each chunk by the head's logits."""
        logits = await self._model.logits(self.items(request, chunks))
        return [self._mapping(row.tolist()) for row in logits]

    @staticmethod
    def items(request: TokenizedRequest, chunks: Sequence[Ids]) -> list[Item]:
        """Return the sequence of each chunk."""
        frame, query = request.state
        return [frame.item(query, chunk) for chunk in chunks]

    def detail(self) -> dict[str, Any]:
        """Return the method, whether there is a prompt, and the model's detail."""
        return {"method": "cross_encoder", "prompted": self._prompt is not None} | self._model.detail()

    def close(self) -> None:
        """End the threads."""
        self._model.close()

    def _request(self, frame: PairFrame, query: Sequence[int] | Ids, documents: list[Ids]) -> TokenizedRequest:
        overhead = frame.extra + len(query)
        return TokenizedRequest(
            documents=documents,
            overhead=overhead,
            document_tokens=self.longest - overhead,
            state=(frame, query),
        )


def _pair_frame(model: CrossEncoderModel) -> PairFrame:
    """Return the special tokens around a pair, without token type ids for a model that has a single type."""
    pair = model.tokenizer.pair
    types = model.config.get("type_vocab_size")
    return PairFrame(pair.before, pair.between, pair.after) if isinstance(types, int) and types < 2 else pair
