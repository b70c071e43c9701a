"""Labels that a model was never trained on, by natural language inference: does the text entail a sentence with them?

Scores are those of Transformers' `ZeroShotClassificationPipeline` (Yin et al., 2019, arXiv:1909.00161). It knows logits
and names; texts and windows are others' business.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from functions.classify.scores import Numbers, Together, applied, log_softmax, together

_AGAINST = ("contra", "not_entail", "not entail", "not-entail", "non_entail", "non-entail", "nonentail")


class Entailment(msgspec.Struct, kw_only=True, frozen=True):
    """Which of a model's logits say that the second text follows from the first, and that it does not."""

    yes: int
    no: int


def entailment(labels: Sequence[str], said: str | None = None) -> Entailment | None:
    """Return the places of an NLI model's labels; None for a model of another kind.

    `said` is the label of entailment where its name does not tell. The pipeline takes the first or the last logit for
    contradiction; here it is the one that is named so, where one is.
    """
    names = [label.strip().lower() for label in labels]
    if said is not None:
        yes = labels.index(said) if said in labels else None
    else:
        yes = next((at for at, name in enumerate(names) if name.startswith("entail")), None)
    if yes is None or len(names) < 2:
        return None
    against = (at for at, name in enumerate(names) if at != yes and name.startswith(_AGAINST))
    return Entailment(yes=yes, no=next(against, len(names) - 1 if yes == 0 else 0))


def hypothesis(template: str, label: str) -> str:
    """Return the sentence to be inferred; braces other than the first `{}` are left as they are."""
    return template.replace("{}", label, 1)


def read(windows: Sequence[npt.ArrayLike], tokens: Sequence[int], how: Together, places: Entailment) -> Numbers:
    """Return one row of logits for the windows of a text with one label.

    `max` is the window that entails the most, whole, since entailment and contradiction belong together.
    """
    if how == "mean" or len(windows) == 1:
        return together(windows, tokens, "mean", "none")
    rows = np.asarray(windows, dtype=np.float64)
    surest: Numbers = rows[int(log_softmax(rows)[:, places.yes].argmax())]
    return surest


def scores(logits: Numbers, places: Entailment, *, multi: bool) -> Numbers:
    """Return a score for each label, of logits (…, labels, the model's own).

    With `multi`, or for one label, entailment against contradiction; else the labels' entailments against each other.
    """
    if multi or logits.shape[-2] == 1:
        pairs = logits[..., [places.no, places.yes]]
        found: Numbers = applied(pairs, "softmax")[..., 1]
        return found
    return applied(logits[..., places.yes], "softmax")
