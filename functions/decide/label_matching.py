"""How a classifier's labels answer questions: by their names, or as what a text entails. It knows names and logits."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from functions.decide.api import Question
from functions.decide.spellings import total
from functions.decide.texts import plainly, text, values

_APART = re.compile(r"[\s_]|-(?!\d)|(?<=\w)-")
"""White space, underscores, and hyphens that are no minus sign."""
_WORDS = (("yes", "no"), ("true", "false"))
"""Labels that say whether a statement is true."""


def name(label: str) -> str:
    """Return a label without what spellings differ in: case, spaces, underscores, hyphens; `-1` is not `1`."""
    return _APART.sub("", label).lower()


class Labels:
    """The labels of one classifier, in the order of its logits."""

    def __init__(self, labels: Sequence[str], *, several: bool = False) -> None:
        """`several` may be true of one text, so that each has a probability of its own (sigmoid)."""
        self._exact = _places(labels)
        self._places = _places([name(label) for label in labels])
        self._several = several
        entails = next((at for label, at in self._places.items() if label.startswith("entail")), None)
        denies = next((at for label, at in self._places.items() if label.startswith("contradict")), None)
        if denies is None:
            denies = next((at for label, at in self._places.items() if label.startswith("notentail")), None)
        self.inference = None if entails is None else (entails, denies)
        """Where the logits of entailment and of its opposite are, of a model of natural language inference."""

    def matching(self, question: Question) -> list[int] | None:
        """Return the label of each possible answer; None where any has none, or two have the same."""
        if question.type == "predicate":
            wanted: Sequence[str] = next((pair for pair in _WORDS if set(pair) <= set(self._places)), ("", ""))
        else:
            wanted = [plainly(value) for value in values(question)]
        places = [self._exact.get(one, self._places.get(name(one))) for one in wanted]
        found = [place for place in places if place is not None]
        return found if len(set(found)) == len(places) else None

    def logs(self, logits: Sequence[float], places: Sequence[int]) -> list[float]:
        """Return the log-probability of some labels."""
        if self._several:
            return [-math.log1p(math.exp(-logits[at])) if logits[at] > -30 else logits[at] for at in places]
        whole = total(logits)
        return [logits[at] - whole for at in places]


def _places(names: Sequence[str]) -> dict[str, int]:
    """Return where each name stands; one that several labels have, or none, means no label."""
    counts = Counter(names)
    return {one: at for at, one in enumerate(names) if one and counts[one] == 1}


def hypotheses(question: Question) -> list[str]:
    """Return what a text would entail if an answer were right: the statement, or the question with each choice."""
    said = text(question.instructions).strip()
    if question.type == "predicate":
        return [said]
    return [f"{said} {plainly(value).strip()}." for value in values(question)]


def inferred(question: Question, rows: Sequence[Sequence[float]], inference: tuple[int, int | None]) -> list[float]:
    """Return log-weights of a question's answers from the logits of its hypotheses.

    A predicate weighs entailment against contradiction, choices and levels weigh their entailments against each other,
    as zero-shot classification does (Yin et al. 2019, arXiv:1909.00161).
    """
    entails, denies = inference
    if question.type != "predicate":
        return [row[entails] for row in rows]
    row = rows[0]
    other = row[denies] if denies is not None else total([log for at, log in enumerate(row) if at != entails])
    return [row[entails], other]
