"""The probabilities of answers without an input, which the option `prior` divides by; kept in an LRU cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from functions.decide.answer_spellings import Ids
from functions.decide.question_tokens import QuestionTokenizer, TokenizedQuestion
from functions.decide.tokenizer_pool import TokenizerPool
from functions.engines.llama.scoring.model import ScoringModel

_SIZE = 4096
"""Questions kept; the least recently used goes first."""
_Key = tuple[str, str, tuple[Ids, ...]]


class Priors:
    """The priors of one model's questions."""

    def __init__(self, model: ScoringModel, tokenizer: QuestionTokenizer, pool: TokenizerPool) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._pool = pool
        self._cache: OrderedDict[_Key, list[float]] = OrderedDict()

    async def get(self, questions: Sequence[TokenizedQuestion]) -> list[list[float] | None]:
        """Return the log-probabilities of each question's answers; None for a predicate, which has no prior."""
        by_key = {_key(question): question for question in questions if question.question.type != "predicate"}
        found = {key: self._cache[key] for key in by_key if key in self._cache}
        missing = [question for key, question in by_key.items() if key not in found]
        if missing:
            prefix, branches = await self._pool.run(
                lambda check: self._tokenizer.tokenize_without_input(missing, check)
            )
            scores = await self._model.score(prefix, branches)
            for question, row in zip(missing, scores.logprobs, strict=True):
                found[_key(question)] = question.spellings.answer_logprobs(row.tolist())
        for key, logprobs in found.items():
            self._cache[key] = logprobs
            self._cache.move_to_end(key)
        while len(self._cache) > _SIZE:
            self._cache.popitem(last=False)
        return [None if question.question.type == "predicate" else found[_key(question)] for question in questions]


def _key(question: TokenizedQuestion) -> _Key:
    return (question.prompt.user, question.prompt.model, tuple(question.spellings.token_ids))
