"""Rerankers on torch; the scoring method is the manifest's, by default that of the model's architecture."""

from __future__ import annotations

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
from functions.rerank import reranker_config, score_mapping
from functions.rerank.cosine import CosineScorer
from functions.rerank.instance import Method, RerankInstance, with_method
from functions.rerank.options import RerankOptions
from functions.rerank.prompt import resolve_template
from functions.rerank.reranker_config import RerankerConfig
from functions.rerank.scorer import Scorer
from functions.rerank.scorer_factory import create_prompt, create_scorer
from functions.rerank.yes_no import YesNoScorer, single_token_id
from host.errors import LoadFailed
from host.function import Load, Plan, Progress

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
"""Architectures by the end of their name: what such a model does, and what to do instead."""


class TransformersRerank(RerankInstance):
    """A reranker of a Transformers folder."""

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        method, reason = choose_method(load)
        plan = SentenceModel.plan(load, _layout(load)) if method == "cosine" else TransformersClassifierModel.plan(load)
        if method == "yes_no":
            plan = prompt_kv_cache.planned(plan, load)
        return with_method(plan, method, reason)

    @classmethod
    def load_scorer(cls, load: Load, plan: Plan, progress: Progress) -> Scorer:
        """Load tokenizer and weights; raises `LoadFailed` and `OutOfMemory`."""
        method, _ = choose_method(load)
        create = {"cross_encoder": _cross_encoder, "yes_no": _yes_no, "cosine": _cosine}[method]
        return create(load, plan, progress, load.task_options(RerankOptions))


def choose_method(load: Load) -> tuple[Method, str]:
    """Return the scoring method and the reason for it; raises `LoadFailed` for a model that is no reranker."""
    method = load.task_options(RerankOptions).method
    if method != "auto":
        return method, "the manifest's options"
    folder = Folder(load.path)
    modules = [str(entry.get("type", "")).rpartition(".")[2] for entry in folder.json("modules.json") or []]
    names = [str(name) for name in folder.config().get("architectures") or ()] if folder.has("config.json") else []
    if "Pooling" in modules:
        raise LoadFailed(_no_reranker("this model embeds texts", "modules.json: it pools tokens into vectors", _COSINE))
    for name in names:
        if name.endswith("ForSequenceClassification"):
            return "cross_encoder", f"config.json: {name}"
        if name.endswith("ForCausalLM"):
            return "yes_no", f"config.json: {name}"
    reason = f"config.json: {', '.join(names)}" if names else "config.json names no architecture"
    for ending, (what, instead) in _OTHERS.items():
        if any(name.endswith(ending) for name in names):
            raise LoadFailed(_no_reranker(what, reason, instead))
    raise LoadFailed(_no_reranker("this model embeds texts", reason, _COSINE))


def _no_reranker(what: str, reason: str, instead: str) -> str:
    return f"{what} and has no head that scores pairs ({reason}); {instead}"


def _cross_encoder(load: Load, plan: Plan, progress: Progress, options: RerankOptions) -> Scorer:
    model = TransformersClassifierModel.load(load, plan, progress, "sequence")
    return create_scorer(model, model.tokenizer, Folder(load.path), options)


def _yes_no(load: Load, plan: Plan, progress: Progress, options: RerankOptions) -> Scorer:
    folder = Folder(load.path)
    config = reranker_config.read(folder, folder.config())
    tokens = tokenizer.load(folder, load.threads, trusted=_engine(load).trust_remote_code)
    model_type = str(folder.config().get("model_type", ""))
    template = resolve_template(options.prompt or config.prompt, model_type, tokens.special())
    prompt = create_prompt(template, tokens, options, config)
    mapping = score_mapping.create(("yes",), options, config.activation)
    answers = _answer_ids(config, options, tokens)
    encoder = encoders.load(load, plan, _engine(load), folder, progress, auto=_CAUSAL, tokens=tokens)
    model = NextTokenScorer(plan, encoder, _engine(load), *answers)
    return YesNoScorer(model, tokens, prompt, plan.context or 0, mapping)


def _answer_ids(config: RerankerConfig, options: RerankOptions, tokens: FastTokenizer) -> tuple[int, int | None]:
    """Return the ids of yes and no: the manifest's words, else those of the model's files."""
    if config.answers is not None and (options.yes_word, options.no_word) == ("yes", "no"):
        return config.answers
    yes = single_token_id(tokens, options.yes_word, "options.yes_word")
    return yes, single_token_id(tokens, options.no_word, "options.no_word")


def _cosine(load: Load, plan: Plan, progress: Progress, options: RerankOptions) -> Scorer:
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
    overrides = layouts.LayoutOverrides(pooling=_engine(load).pooling, prompts=load.task_options(RerankOptions).prompts)
    return layouts.read(Folder(load.path), overrides)


def _engine(load: Load) -> TransformersOptions:
    return load.engine_options(TransformersOptions)
