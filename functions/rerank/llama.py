"""Rerankers on llama.cpp: cross-encoders, language models with yes or no answers, and embedding models by cosine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from functions.engines.batching.item import Ids
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.pooled import plan as pooled
from functions.engines.llama.pooled.estimate import PooledEstimate
from functions.engines.llama.pooled.model import PooledModel
from functions.engines.llama.pooled.pooling import NUMBERS, ModelTraits
from functions.engines.llama.pooled.tokenizer import GgufTokenizer
from functions.engines.llama.scoring.branch import Branch
from functions.engines.llama.scoring.model import ScoringModel
from functions.rerank import score_mapping
from functions.rerank.cosine import CosineScorer
from functions.rerank.cross_encoder import CrossEncoderScorer
from functions.rerank.gguf_head import GgufHead, check, mapping
from functions.rerank.instance import Method, RerankInstance, with_method
from functions.rerank.options import RerankOptions
from functions.rerank.prompt import Prompt, resolve_template
from functions.rerank.scorer import Scorer
from functions.rerank.yes_no import YesNoScorer, single_token_id
from host.errors import LoadFailed, NotFinite
from host.function import Load, Plan, Progress


class LlamaRerank(RerankInstance):
    """A reranker of a GGUF file."""

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Estimate the memory; raises `LoadFailed` for a model that is no reranker."""
        method, reason = choose_method(load)
        if method == "yes_no":
            plan = ScoringModel.plan(load)
        else:
            plan = pooled.make(load, "scores" if method == "cross_encoder" else "vectors")
        return with_method(plan, method, reason)

    @classmethod
    def load_scorer(cls, load: Load, plan: Plan, progress: Progress) -> Scorer:
        """Load vocabulary and weights; raises `LoadFailed` and `OutOfMemory`."""
        method, _ = choose_method(load)
        create = {"cross_encoder": _cross_encoder, "yes_no": _yes_no, "cosine": _cosine}[method]
        return create(load, plan, progress, load.task_options(RerankOptions))


def choose_method(load: Load) -> tuple[Method, str]:
    """Return the scoring method and the reason for it; raises `LoadFailed` for a model that is no reranker."""
    method = load.task_options(RerankOptions).method
    if method != "auto":
        return method, "the manifest's options"
    options = load.engine_options(LlamaOptions)
    estimate = PooledEstimate(load.path, options)
    try:
        traits: ModelTraits = estimate.traits()
    finally:
        estimate.close()
    if options.pooling == "rank":
        return "cross_encoder", "options.pooling"
    if options.pooling == "auto" and traits.declared == NUMBERS["rank"]:
        return "cross_encoder", "the file's pooling is rank"
    if options.pooling == "auto" and traits.causal and traits.declared not in NUMBERS.values():
        return "yes_no", "the file is a language model and names no pooling"
    raise LoadFailed(
        "this file embeds texts and has no head that scores pairs; "
        "options.method: cosine ranks by the cosine of its vectors"
    )


def _cross_encoder(load: Load, plan: Plan, progress: Progress, options: RerankOptions) -> Scorer:
    model = PooledModel.load(load, plan, progress, "scores")
    try:
        head = GgufHead(model)
        check(head.architecture, Path(load.path))
        template = options.prompt or model.template
        prompt = Prompt(template, model.tokenizer.special(template), model.tokenizer.bare) if template else None
        return CrossEncoderScorer(head, mapping(head, options), prompt)
    except BaseException:
        model.close()
        raise


def _yes_no(load: Load, plan: Plan, progress: Progress, options: RerankOptions) -> Scorer:
    model = ScoringModel.load(load, plan, progress)
    tokenizer = GgufTokenizer(model.vocabulary)
    try:
        architecture = model.model.metadata("general.architecture") or ""
        template = resolve_template(options.prompt, architecture, tokenizer.special("<|im_start|><|im_end|>"))
        prefix = [model.vocabulary.bos] if model.vocabulary.adds_bos and model.vocabulary.bos is not None else []
        prompt = Prompt(template, tokenizer.special(template), tokenizer.bare, prefix)
        yes = single_token_id(tokenizer, options.yes_word, "options.yes_word")
        no = single_token_id(tokenizer, options.no_word, "options.no_word")
        scores = score_mapping.create(("yes",), options, None)
        return YesNoScorer(_LlamaYesNoModel(model, yes, no), tokenizer, prompt, model.longest - 1, scores)
    except BaseException:
        tokenizer.close()
        model.close()
        raise


class _LlamaYesNoModel:
    """See `functions.rerank.yes_no.YesNoModel`."""

    def __init__(self, model: ScoringModel, yes: int, no: int) -> None:
        self._model = model
        self._answers = [[yes], [no]]

    def shares(self, tokens: int) -> bool:
        return bool(tokens) and self._model.reuses

    async def odds(self, start: Sequence[int], suffixes: Sequence[Ids]) -> list[float]:
        scores = await self._model.score(start, [Branch(ids.tolist(), self._answers) for ids in suffixes])
        odds = [float(logs[0] - logs[1]) for logs in scores.logprobs]
        for at, number in enumerate(odds):
            if not math.isfinite(number):
                raise NotFinite("the model gave numbers that are not finite", extra={"index": at})
        return odds

    def detail(self) -> dict[str, Any]:
        return {"description": self._model.model.description()}

    def close(self) -> None:
        self._model.close()


def _cosine(load: Load, plan: Plan, progress: Progress, options: RerankOptions) -> Scorer:
    model = PooledModel.load(load, plan, progress, "vectors")
    detail = {
        "dimension": model.size,
        "pooling": [model.pooling.kind],
        "prompts": sorted(options.prompts),
        "description": model.model.description(),
    }
    return CosineScorer(
        model.rows,
        model.tokenizer,
        longest=model.longest,
        prompts=options.prompts,
        default=None,
        detail=detail,
        close=model.close,
    )
