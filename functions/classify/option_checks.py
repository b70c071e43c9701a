"""Whether a manifest's options suit the model that they are for: what does not is told when it is loaded."""

from __future__ import annotations

from collections import Counter

from functions.classify import zeroshot
from functions.classify.categories import nearest
from functions.classify.options import ClassifyOptions, check_labels
from functions.classify.predictor import Predictor
from functions.classify.read_options import no_room
from functions.classify.scores import Applied
from functions.engines.batching import length_guard
from host.errors import LoadFailed


def check(options: ClassifyOptions, labeller: Predictor, activation: Applied) -> None:
    """Raise `LoadFailed` for what does not suit the model's labels, scores or length."""
    own = labeller.model.labels
    inference = labeller.entailment is not None
    if len(set(own)) < len(own):
        twice = Counter(own).most_common(1)[0][0]
        raise LoadFailed(f"the model names the label `{twice}` twice, so that nobody can tell its scores apart")
    if options.entailment is not None and not inference:
        raise LoadFailed(
            f"options.entailment is `{options.entailment}`, which is no label; {nearest(options.entailment, own)}"
        )
    _check_context(labeller)
    _check_scores(options, activation, inference=inference)
    if inference:
        if options.moderation and not options.labels:
            raise LoadFailed("options.labels is needed: `moderation` says what labels mean, and this model has none")
        _check_sentences(options, labeller)
        return
    if options.labels:
        raise LoadFailed(f"options.labels is for models of natural language inference; this one has {few(own)}")
    try:
        check_labels("moderation", options.moderation, own)
        check_labels("threshold", options.threshold if isinstance(options.threshold, dict) else (), own)
    except ValueError as error:
        raise LoadFailed(f"options: {error}") from None


def few(labels: tuple[str, ...]) -> str:
    """Return the first of a model's labels, for messages."""
    return ", ".join(labels[:8]) + (", …" if len(labels) > 8 else "")


def _check_context(labeller: Predictor) -> None:
    model = labeller.model
    single = len(model.tokenizer.prefix) + len(model.tokenizer.suffix)
    taken = single if labeller.entailment is None else labeller.pair.extra
    if model.longest <= taken:
        raise LoadFailed(f"context is {model.longest}: it must be more than the {taken} special tokens of this model")


def _check_scores(options: ClassifyOptions, activation: Applied, *, inference: bool) -> None:
    """Raise `LoadFailed` for what needs probabilities; those of zero-shot always are some."""
    if activation != "none":
        return
    if options.moderation and not inference:
        raise LoadFailed("options.moderation needs probabilities, and this model's scores are plain numbers")
    if options.threshold != "auto":
        pairs = " for pairs of texts" if inference else ""
        raise LoadFailed(f"options.threshold needs probabilities, and this model's scores{pairs} are plain numbers")


def _check_sentences(options: ClassifyOptions, labeller: Predictor) -> None:
    """Raise `LoadFailed` for a template, or a label in it, that leaves no room for a text."""
    _check_room(labeller, zeroshot.hypothesis(options.hypothesis_template, ""), "options.hypothesis_template")
    for label in options.labels or ():
        shown = label if len(label) <= 40 else f"{label[:39]}…"
        sentence = zeroshot.hypothesis(options.hypothesis_template, label)
        _check_room(labeller, sentence, f"options.labels: `{shown}`")


def _check_room(labeller: Predictor, sentence: str, what: str) -> None:
    model = labeller.model
    if length_guard.too_long(sentence, model.longest):
        raise LoadFailed(f"{what} is too long for a model of {model.longest} tokens")
    taken = labeller.pair.extra + len(model.tokenizer.bare(sentence))
    if model.longest <= taken:
        raise LoadFailed(f"{what} {no_room(taken, model.longest)}")
