"""Zero-shot classification by natural language inference: does the text entail a sentence that names the label?

Scores are those of Transformers' `ZeroShotClassificationPipeline` (Yin et al., 2019, arXiv:1909.00161).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from functions.classify import scores as scores_
from functions.classify.scores import Aggregation, FloatArray, apply_activation, log_softmax

_CONTRADICTION = ("contra", "not_entail", "not entail", "not-entail", "non_entail", "non-entail", "nonentail")
"""Beginnings of a contradiction label's name."""


class NliLabels(msgspec.Struct, kw_only=True, frozen=True):
    """The indexes of an NLI model's entailment and contradiction logits."""

    entailment: int
    contradiction: int


def nli_labels(labels: Sequence[str], entailment: str | None = None) -> NliLabels | None:
    """Return the indexes of an NLI model's labels; None for a model of another kind.

    `entailment` names the label where it does not begin with `entail`. The pipeline takes the first or the last logit
    for contradiction; here it is the label with such a name, where there is one.
    """
    names = [label.strip().lower() for label in labels]
    if entailment is not None:
        yes = labels.index(entailment) if entailment in labels else None
    else:
        yes = next((at for at, name in enumerate(names) if name.startswith("entail")), None)
    if yes is None or len(names) < 2:
        return None
    no = (at for at, name in enumerate(names) if at != yes and name.startswith(_CONTRADICTION))
    return NliLabels(entailment=yes, contradiction=next(no, len(names) - 1 if yes == 0 else 0))


def hypothesis(template: str, label: str) -> str:
    """Return the sentence to be inferred; braces other than the first `{}` stay as they are."""
    return template.replace("{}", label, 1)


def aggregate_windows(
    windows: Sequence[npt.ArrayLike], tokens: Sequence[int], aggregation: Aggregation, nli: NliLabels
) -> FloatArray:
    """Return one row of logits for the windows of a text with one label.

    `max` is the row of the window with the highest probability of entailment: entailment and contradiction belong
    together.
    """
    if aggregation == "mean" or len(windows) == 1:
        return scores_.aggregate_windows(windows, tokens, "mean", "none")
    rows = np.asarray(windows, dtype=np.float64)
    best: FloatArray = rows[int(log_softmax(rows)[:, nli.entailment].argmax())]
    return best


def scores(logits: FloatArray, nli: NliLabels, *, multi_label: bool) -> FloatArray:
    """Return the score of each label (…, labels), from logits (…, labels, the model's own labels).

    With `multi_label`, or for one label, entailment against contradiction; else softmax over the labels' entailments.
    """
    if multi_label or logits.shape[-2] == 1:
        pairs = logits[..., [nli.contradiction, nli.entailment]]
        result: FloatArray = apply_activation(pairs, "softmax")[..., 1]
        return result
    return apply_activation(logits[..., nli.entailment], "softmax")
