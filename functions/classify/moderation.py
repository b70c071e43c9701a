"""A classifier's labels as OpenAI's categories of harmful content, by the table in the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from functions.classify.api import Moderation
from functions.classify.categories import CATEGORIES
from functions.classify.options import Rule, Table, categories
from functions.classify.selection import Predictions

_HALF = 0.5


class ModerationJudge:
    """Judges texts by what each label stands for and from which score it flags."""

    def __init__(self, table: Table, thresholds: float | Mapping[str, float] | None) -> None:
        self._rules = [
            (label, category, _threshold(label, rule, thresholds))
            for label, rule in table.items()
            for category in categories(rule)
        ]
        covered = {category for _, category, _ in self._rules}
        self._applied = {category: ["text"] if category in covered else [] for category in CATEGORIES}

    def judge(self, found: Predictions, *, one: bool = False) -> list[Moderation]:
        """Return a verdict on each text, or a single one where they are the parts of `one` input.

        The worst part decides. Raises `KeyError` for a label that was not read.
        """
        places = {label: at for at, label in enumerate(found.labels)}
        rows = found.scores.max(axis=0, keepdims=True) if one else found.scores
        return [self._verdict(row, places) for row in rows.tolist()]

    def _verdict(self, row: Sequence[float], places: Mapping[str, int]) -> Moderation:
        scores = dict.fromkeys(CATEGORIES, 0.0)
        flags = dict.fromkeys(CATEGORIES, False)
        for label, category, least in self._rules:
            score = row[places[label]]
            scores[category] = max(scores[category], score)
            flags[category] = flags[category] or score >= least
        return Moderation(
            flagged=any(flags.values()),
            categories=flags,
            category_scores=scores,
            category_applied_input_types=self._applied,
        )


def _threshold(label: str, rule: str | list[str] | Rule, said: float | Mapping[str, float] | None) -> float:
    if isinstance(rule, Rule) and rule.threshold is not None:
        return rule.threshold
    return said.get(label, _HALF) if isinstance(said, Mapping) else _HALF if said is None else said
