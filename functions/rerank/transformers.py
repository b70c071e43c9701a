"""Rerankers on torch: what a model's folder is made for decides how it scores, or the manifest does."""

from __future__ import annotations

from typing import Literal, Self

import msgspec

from functions.engines.checkpoint import tokenizer
from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence import layout as layouts
from functions.engines.checkpoint.sentence.layout import Layout
from functions.engines.checkpoint.tokenizer import FastTokenizer
from functions.engines.transformers import encoder as encoders
from functions.engines.transformers import prompt_kv_cache
from functions.engines.transformers.classifier import TransformersClassifierModel
from functions.engines.transformers.next_token import NextTokenScorer
from functions.engines.transformers.options import TransformersOptions
from functions.engines.transformers.sentence.model import SentenceModel
from functions.rerank import model_card as cards
from functions.rerank import score_mapping
from functions.rerank.cosine import CosineScorer
from functions.rerank.factory import prompted, scorer
from functions.rerank.instance import RerankInstance
from functions.rerank.model_card import ModelCard
from functions.rerank.options import RerankOptions
from functions.rerank.prompt import asked
from functions.rerank.scorer import Scorer
from functions.rerank.yes_no import YesNoScorer, token
from host.errors import LoadFailed
from host.function import Load, Plan, Progress

Method = Literal["cross_encoder", "yes_no", "cosine"]

_CAUSAL = "AutoModelForCausalLM"
_COSINE = "options.method: cosine ranks by the cosine of its vectors, and task: embeddings gives the vectors"
_OTHERS = {
    "ForTokenClassification": ("this model labels tokens", "task: ner serves it"),
    "ForQuestionAnswering": ("this model finds answers in texts", "rank with a cross-encoder or an embedder"),
    "ForConditionalGeneration": (
        "this model writes texts from an encoder's view of them",
        "rank with a cross-encoder, a decoder that is asked for yes or no, or an embedder",
    ),
}
"""Heads by the ending of the architecture's name: what such a model does, and what to do instead."""


class TransformersRerank(RerankInstance):
    """A reranker of a Transformers folder."""

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        method, why = choose(load)
        plan = SentenceModel.plan(load, _layout(load)) if method == "cosine" else TransformersClassifierModel.plan(load)
        if method == "yes_no":
            plan = prompt_kv_cache.planned(plan, load)
        return msgspec.structs.replace(plan, notes=(*plan.notes, f"method: {method} ({why})"))

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load tokenizer and weights, and test them; raises `LoadFailed` and `OutOfMemory`."""
        method, _ = choose(load)
        make = {"cross_encoder": _cross_encoder, "yes_no": _yes_no, "cosine": _cosine}[method]
        return cls.checked(load, make(load, plan, progress, load.task_options(RerankOptions)))


def choose(load: Load) -> tuple[Method, str]:
    """Return how the folder's model scores, and who says so; raises `LoadFailed` for a model that is no reranker."""
    wanted = load.task_options(RerankOptions).method
    if wanted != "auto":
        return wanted, "the manifest's options"
    folder = Folder(load.path)
    kinds = [str(entry.get("type", "")).rpartition(".")[2] for entry in folder.json("modules.json") or []]
    names = [str(name) for name in folder.config().get("architectures") or ()] if folder.has("config.json") else []
    if "Pooling" in kinds:
        raise LoadFailed(_no_reranker("this model embeds texts", "modules.json: it pools tokens into vectors", _COSINE))
    for name in names:
        if name.endswith("ForSequenceClassification"):
            return "cross_encoder", f"config.json: {name}"
        if name.endswith("ForCausalLM"):
            return "yes_no", f"config.json: {name}"
    said = f"config.json: {', '.join(names)}" if names else "config.json names no architecture"
    for ending, (what, instead) in _OTHERS.items():
        if any(name.endswith(ending) for name in names):
            raise LoadFailed(_no_reranker(what, said, instead))
    raise LoadFailed(_no_reranker("this model embeds texts", said, _COSINE))


def _no_reranker(what: str, said: str, instead: str) -> str:
    return f"{what} and has no head that scores pairs ({said}); {instead}"


def _cross_encoder(load: Load, plan: Plan, progress: Progress, own: RerankOptions) -> Scorer:
    model = TransformersClassifierModel.load(load, plan, progress, "sequence")
    return scorer(model, model.tokenizer, Folder(load.path), own)


def _yes_no(load: Load, plan: Plan, progress: Progress, own: RerankOptions) -> Scorer:
    folder = Folder(load.path)
    card = cards.read(folder, folder.config())
    tokens = tokenizer.load(folder, load.threads, trusted=_engine(load).trust_remote_code)
    kind = str(folder.config().get("model_type", ""))
    template = asked(own.prompt or card.prompt, kind, tokens.special())
    prompt = prompted(template, tokens, own, card)
    judge = score_mapping.judge(("yes",), own, card.activation)
    answers = _answers(card, own, tokens)
    encoder = encoders.load(load, plan, _engine(load), folder, progress, auto=_CAUSAL, tokens=tokens)
    model = NextTokenScorer(plan, encoder, _engine(load), *answers)
    return YesNoScorer(model, tokens, prompt, plan.context or 0, judge)


def _answers(card: ModelCard, own: RerankOptions, tokens: FastTokenizer) -> tuple[int, int | None]:
    """Return the ids of yes and no: those of the files where the manifest names no others."""
    if card.answers is not None and (own.yes_word, own.no_word) == ("yes", "no"):
        return card.answers
    return token(tokens, own.yes_word, "options.yes_word"), token(tokens, own.no_word, "options.no_word")


def _cosine(load: Load, plan: Plan, progress: Progress, own: RerankOptions) -> Scorer:
    layout = _layout(load)
    if "dense" not in layout.kinds:
        raise LoadFailed(
            f"this model makes {' and '.join(layout.kinds)} vectors: cosine needs one vector for each text"
        )
    model = SentenceModel.load(load, plan, layout, progress)
    return CosineScorer(
        model.vectors,
        model.tokenizer,
        longest=model.longest,
        prompts=model.layout.prompts,
        default=model.layout.default_prompt,
        detail=model.detail(),
        close=model.close,
    )


def _layout(load: Load) -> Layout:
    said = layouts.LayoutOverrides(pooling=_engine(load).pooling, prompts=load.task_options(RerankOptions).prompts)
    return layouts.read(Folder(load.path), said)


def _engine(load: Load) -> TransformersOptions:
    return load.engine_options(TransformersOptions)
