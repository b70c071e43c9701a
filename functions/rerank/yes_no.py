"""Scores by a language model's next token: the odds of yes against no after a prompt with query and document.

Method and prompt are those of the Qwen3-Reranker model card: https://huggingface.co/Qwen/Qwen3-Reranker-0.6B
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from functions.engines.batching.item import Ids
from functions.rerank.prompt import Prompt
from functions.rerank.score_mapping import ScoreMapping
from functions.rerank.scorer import (
    RelevanceScore,
    RerankTokenizer,
    TokenizedRequest,
    encode_without_special,
    split_common_prefix,
)
from host.errors import LoadFailed, UnsupportedParameter


class PromptTokenizer(RerankTokenizer, Protocol):
    """A tokenizer that also encodes single texts without special tokens."""

    def bare(self, text: str) -> list[int]: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class YesNoModel(Protocol):
    """A loaded language model with two answer tokens."""

    def shares(self, tokens: int) -> bool:
        """Return whether a prefix of so many tokens is computed once for all documents."""

    async def odds(self, start: Sequence[int], suffixes: Sequence[Ids]) -> list[float]:
        """Return log P(yes) - log P(no) of the token after `start` and each suffix; without a no, the logit of yes."""

    def detail(self) -> dict[str, Any]:
        """Return what is known of the model."""

    def close(self) -> None:
        """End the thread."""


class YesNoScorer:
    """See `functions.rerank.scorer.Scorer`."""

    def __init__(
        self, model: YesNoModel, tokenizer: PromptTokenizer, prompt: Prompt, longest: int, mapping: ScoreMapping
    ) -> None:
        """`mapping` turns the odds into a score."""
        self.longest = longest
        self._mapping = mapping
        self._model = model
        self._tokenizer = tokenizer
        self._prompt = prompt

    async def tokenize(self, query: str, documents: Sequence[str], instruction: str | None) -> TokenizedRequest:
        """Tokenise query and documents, each document together with the text before it."""
        if instruction is not None and not self._prompt.takes_instruction:
            raise UnsupportedParameter("instruction: this model's prompt has no place for one", param="instruction")
        opening, lead = self._prompt.opening(query, instruction)
        texts = [lead, *(lead + document for document in documents)]
        lead_ids, *wholes = await encode_without_special(self._tokenizer, texts)
        kept, parts = split_common_prefix(lead_ids.tolist(), wholes)
        start = [*opening, *kept]
        overhead = len(start) + len(self._prompt.tail)
        return TokenizedRequest(
            documents=parts,
            overhead=overhead,
            document_tokens=self.longest - overhead,
            shared_tokens=len(start) if self._model.shares(len(start)) else 0,
            state=start,
        )

    async def score(self, request: TokenizedRequest, chunks: Sequence[Ids]) -> list[RelevanceScore]:
        """Score each chunk by the log-odds of yes."""
        tail = np.array(self._prompt.tail, dtype=np.int32)
        suffixes = [np.concatenate([chunk, tail]) for chunk in chunks]
        return [self._mapping([odds]) for odds in await self._model.odds(request.state, suffixes)]

    def detail(self) -> dict[str, Any]:
        """Return the method, whether prefixes are shared, and the model's detail."""
        prefix = "shared" if self._model.shares(1) else "repeated"
        return {"method": "yes_no", "prefix": prefix} | self._model.detail()

    def close(self) -> None:
        """End both threads."""
        self._model.close()
        self._tokenizer.close()


def single_token_id(tokenizer: PromptTokenizer, word: str, option: str) -> int:
    """Return the id of an answer; raises `LoadFailed` naming the option for one that is not a single token."""
    ids = tokenizer.bare(word)
    if len(ids) != 1:
        raise LoadFailed(f"{option} must be one token of the model, {word!r} is {len(ids)}: {ids[:8]}", param=option)
    return ids[0]
