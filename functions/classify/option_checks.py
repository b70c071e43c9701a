"""Checks the manifest's options against the model at load: its labels, scores and length."""

from __future__ import annotations

from collections import Counter

from functions.classify import zeroshot
from functions.classify.openai_categories import nearest
from functions.classify.options import ClassifyOptions, check_labels
from functions.classify.predictor import Predictor
from functions.classify.read_options import no_room_message
from functions.classify.scores import ActivationFunction
from functions.engines.batching import length_guard
from host.errors import LoadFailed


def check(options: ClassifyOptions, predictor: Predictor, activation: ActivationFunction) -> None:
    """Raise `LoadFailed` for options that do not suit the model's labels, scores or length."""
    own = predictor.model.labels
    is_nli = predictor.nli_labels is not None
    if len(set(own)) < len(own):
        twice = Counter(own).most_common(1)[0][0]
        raise LoadFailed(f"the model names the label `{twice}` twice, so that its scores are ambiguous")
    if options.entailment is not None and not is_nli:
        raise LoadFailed(
            f"options.entailment is `{options.entailment}`, which is no label; {nearest(options.entailment, own)}"
        )
    _check_context(predictor)
    _check_scores(options, activation, is_nli=is_nli)
    if is_nli:
        if options.moderation and not options.labels:
            raise LoadFailed(
                "options.labels is needed: `moderation` maps labels to categories, and this model has none"
            )
        _check_hypotheses(options, predictor)
        return
    if options.labels:
        raise LoadFailed(
            f"options.labels is for models of natural language inference; this one has {first_labels(own)}"
        )
    try:
        check_labels("moderation", options.moderation, own)
        check_labels("threshold", options.threshold if isinstance(options.threshold, dict) else (), own)
    except ValueError as error:
        raise LoadFailed(f"options: {error}") from None


def first_labels(labels: tuple[str, ...]) -> str:
    """Return the first 8 of a model's labels, for messages."""
    return ", ".join(labels[:8]) + (", …" if len(labels) > 8 else "")


def _check_context(predictor: Predictor) -> None:
    model = predictor.model
    split_text = len(model.tokenizer.prefix) + len(model.tokenizer.suffix)
    reserved = split_text if predictor.nli_labels is None else predictor.pair.extra
    if model.longest <= reserved:
        raise LoadFailed(
            f"context is {model.longest}: it must be more than the {reserved} special tokens of this model"
        )


def _check_scores(options: ClassifyOptions, activation: ActivationFunction, *, is_nli: bool) -> None:
    """Raise `LoadFailed` for options that need probabilities; zero-shot scores always are probabilities."""
    if activation != "none":
        return
    if options.moderation and not is_nli:
        raise LoadFailed("options.moderation needs probabilities, and this model's scores are plain numbers")
    if options.threshold != "auto":
        pairs = " for pairs of texts" if is_nli else ""
        raise LoadFailed(f"options.threshold needs probabilities, and this model's scores{pairs} are plain numbers")


def _check_hypotheses(options: ClassifyOptions, predictor: Predictor) -> None:
    """Raise `LoadFailed` for a template, or a label in it, that leaves no room for a text."""
    _check_room(predictor, zeroshot.hypothesis(options.hypothesis_template, ""), "options.hypothesis_template")
    for label in options.labels or ():
        shown = label if len(label) <= 40 else f"{label[:39]}…"
        hypothesis = zeroshot.hypothesis(options.hypothesis_template, label)
        _check_room(predictor, hypothesis, f"options.labels: `{shown}`")


def _check_room(predictor: Predictor, hypothesis: str, what: str) -> None:
    model = predictor.model
    if length_guard.too_long(hypothesis, model.longest):
        raise LoadFailed(f"{what} is too long for a model of {model.longest} tokens")
    reserved = predictor.pair.extra + len(model.tokenizer.bare(hypothesis))
    if model.longest <= reserved:
        raise LoadFailed(f"{what} {no_room_message(reserved, model.longest)}")
