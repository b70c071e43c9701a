"""Matches a classifier's labels with a question's answers: by their names, or by natural language inference (NLI)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from functions.decide.answer_spellings import logsumexp
from functions.decide.api import Question
from functions.decide.texts import answer_values, content_text, value_text

_SEPARATORS = re.compile(r"[\s_]|-(?!\d)|(?<=\w)-")
"""White space, underscores, and hyphens that are no minus sign."""
_YES_NO = (("yes", "no"), ("true", "false"))
"""Names of the two labels of a statement."""


def normalize_label(label: str) -> str:
    """Return a label in lower case without spaces, underscores and hyphens; `-1` stays different from `1`."""
    return _SEPARATORS.sub("", label).lower()


class LabelMatcher:
    """The labels of one classifier, in the order of its logits."""

    def __init__(self, labels: Sequence[str], *, multi_label: bool = False) -> None:
        """With `multi_label` each label has a probability of its own (sigmoid instead of softmax)."""
        self._exact = _indexes(labels)
        self._normalized = _indexes([normalize_label(label) for label in labels])
        self._multi_label = multi_label
        entailment = next((at for label, at in self._normalized.items() if label.startswith("entail")), None)
        contradiction = next((at for label, at in self._normalized.items() if label.startswith("contradict")), None)
        if contradiction is None:
            contradiction = next((at for label, at in self._normalized.items() if label.startswith("notentail")), None)
        self.nli = None if entailment is None else (entailment, contradiction)
        """The indexes of the entailment and contradiction logits; None for a model that is not an NLI model."""

    def match(self, question: Question) -> list[int] | None:
        """Return the index of each answer's label; None where an answer has none, or two have the same."""
        if question.type == "predicate":
            names: Sequence[str] = next((pair for pair in _YES_NO if set(pair) <= set(self._normalized)), ("", ""))
        else:
            names = [value_text(value) for value in answer_values(question)]
        indexes = [self._exact.get(name, self._normalized.get(normalize_label(name))) for name in names]
        found = [index for index in indexes if index is not None]
        return found if len(set(found)) == len(indexes) else None

    def logprobs(self, logits: Sequence[float], indexes: Sequence[int]) -> list[float]:
        """Return the log-probabilities of the labels at these indexes."""
        if self._multi_label:
            return [-math.log1p(math.exp(-logits[at])) if logits[at] > -30 else logits[at] for at in indexes]
        total = logsumexp(logits)
        return [logits[at] - total for at in indexes]


def _indexes(names: Sequence[str]) -> dict[str, int]:
    """Return the index of each name, without names that are empty or occur more than once."""
    counts = Counter(names)
    return {one: at for at, one in enumerate(names) if one and counts[one] == 1}


def hypotheses(question: Question) -> list[str]:
    """Return the NLI hypothesis of each answer: the statement, or the question with each choice."""
    instructions = content_text(question.instructions).strip()
    if question.type == "predicate":
        return [instructions]
    return [f"{instructions} {value_text(value).strip()}." for value in answer_values(question)]


def hypothesis_logits(question: Question, rows: Sequence[Sequence[float]], nli: tuple[int, int | None]) -> list[float]:
    """Return the logits of a question's answers from the NLI logits of its hypotheses.

    A predicate compares entailment with contradiction; choices and levels compare their entailments, as zero-shot
    classification does (Yin et al., 2019, arXiv:1909.00161).
    """
    entailment, contradiction = nli
    if question.type != "predicate":
        return [row[entailment] for row in rows]
    row = rows[0]
    if contradiction is not None:
        return [row[entailment], row[contradiction]]
    return [row[entailment], logsumexp([log for at, log in enumerate(row) if at != entailment])]
