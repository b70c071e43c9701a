"""How probable answers are when there is no input: what a model would say anyway. Kept, since questions come again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from functions.decide.question_tokens import Ask, Asker
from functions.decide.spellings import Ids
from functions.decide.tokenizer_pool import Threads
from functions.engines.llama.scoring.model import ScoringModel

_MOST = 4096
"""Questions kept, the one asked longest ago going first."""
_Key = tuple[str, str, tuple[Ids, ...]]


class Priors:
    """The priors of one model's questions."""

    def __init__(self, model: ScoringModel, asker: Asker, threads: Threads) -> None:
        self._model = model
        self._asker = asker
        self._threads = threads
        self._known: OrderedDict[_Key, list[float]] = OrderedDict()

    async def of(self, asks: Sequence[Ask]) -> list[list[float] | None]:
        """Return the log-probabilities of each question's answers; None for a predicate, which has no prior."""
        wanted = {_key(ask): ask for ask in asks if ask.question.type != "predicate"}
        found = {key: self._known[key] for key in wanted if key in self._known}
        missing = [ask for key, ask in wanted.items() if key not in found]
        if missing:
            prefix, branches = await self._threads.run(lambda check: self._asker.without_input(missing, check))
            scores = await self._model.score(prefix, branches)
            for ask, row in zip(missing, scores.logprobs, strict=True):
                found[_key(ask)] = ask.events.logs(row.tolist())
        for key, logs in found.items():
            self._known[key] = logs
            self._known.move_to_end(key)
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
        return [None if ask.question.type == "predicate" else found[_key(ask)] for ask in asks]


def _key(ask: Ask) -> _Key:
    return (ask.words.user, ask.words.model, tuple(ask.events.spellings))
