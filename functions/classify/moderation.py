"""Maps a classifier's labels to OpenAI's moderation categories, by the manifest's `moderation` table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from functions.classify.api import Moderation
from functions.classify.openai_categories import CATEGORIES
from functions.classify.options import Rule, Table, categories
from functions.classify.top_labels import Predictions

_HALF = 0.5


class ModerationMapper:
    """Computes moderation results from label scores, by each label's categories and threshold."""

    def __init__(self, table: Table, thresholds: float | Mapping[str, float] | None) -> None:
        self._rules = [
            (label, category, _threshold(label, rule, thresholds))
            for label, rule in table.items()
            for category in categories(rule)
        ]
        covered = {category for _, category, _ in self._rules}
        self._applied = {category: ["text"] if category in covered else [] for category in CATEGORIES}

    def moderate(self, predictions: Predictions, *, single_input: bool = False) -> list[Moderation]:
        """Return the moderation of each text, or with `single_input` one for all texts, its parts.

        Of several parts the highest score of each label counts. Raises `KeyError` for a label that was not scored.
        """
        indexes = {label: at for at, label in enumerate(predictions.labels)}
        rows = predictions.scores.max(axis=0, keepdims=True) if single_input else predictions.scores
        return [self._moderation(row, indexes) for row in rows.tolist()]

    def _moderation(self, row: Sequence[float], indexes: Mapping[str, int]) -> Moderation:
        scores = dict.fromkeys(CATEGORIES, 0.0)
        flags = dict.fromkeys(CATEGORIES, False)
        for label, category, least in self._rules:
            score = row[indexes[label]]
            scores[category] = max(scores[category], score)
            flags[category] = flags[category] or score >= least
        return Moderation(
            flagged=any(flags.values()),
            categories=flags,
            category_scores=scores,
            category_applied_input_types=self._applied,
        )


def _threshold(label: str, rule: str | list[str] | Rule, default: float | Mapping[str, float] | None) -> float:
    if isinstance(rule, Rule) and rule.threshold is not None:
        return rule.threshold
    return default.get(label, _HALF) if isinstance(default, Mapping) else _HALF if default is None else default
