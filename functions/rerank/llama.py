"""Rerankers on llama.cpp: files made to rank, language models asked for yes or no, and embedders by their cosine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

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
from functions.rerank.gguf_head import GgufHead, check, judge
from functions.rerank.instance import RerankInstance
from functions.rerank.options import RerankOptions
from functions.rerank.prompt import Prompt, asked
from functions.rerank.scorer import Scorer
from functions.rerank.yes_no import YesNoScorer, token
from host.errors import LoadFailed, NotFinite
from host.function import Load, Plan, Progress

Method = Literal["cross_encoder", "yes_no", "cosine"]


class LlamaRerank(RerankInstance):
    """A reranker of a GGUF file."""

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Plan the load; raises `LoadFailed` for one that ranks nothing."""
        method, why = choose(load)
        if method == "yes_no":
            plan = ScoringModel.plan(load)
        else:
            plan = pooled.make(load, "scores" if method == "cross_encoder" else "vectors")
        return msgspec.structs.replace(plan, notes=(*plan.notes, f"method: {method} ({why})"))

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load vocabulary and weights, and test them; raises `LoadFailed` and `OutOfMemory`."""
        method, _ = choose(load)
        make = {"cross_encoder": _cross_encoder, "yes_no": _yes_no, "cosine": _cosine}[method]
        return cls.checked(load, make(load, plan, progress, load.task_options(RerankOptions)))


def choose(load: Load) -> tuple[Method, str]:
    """Return how the file's model scores, and who says so; raises `LoadFailed` for a model that is no reranker."""
    wanted = load.task_options(RerankOptions).method
    if wanted != "auto":
        return wanted, "the manifest's options"
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


def _cross_encoder(load: Load, plan: Plan, progress: Progress, own: RerankOptions) -> Scorer:
    model = PooledModel.load(load, plan, progress, "scores")
    try:
        ranks = GgufHead(model)
        check(ranks.architecture, Path(load.path))
        template = own.prompt or model.template
        prompt = Prompt(template, model.tokenizer.special(template), model.tokenizer.bare) if template else None
        return CrossEncoderScorer(ranks, judge(ranks, own), prompt)
    except BaseException:
        model.close()
        raise


def _yes_no(load: Load, plan: Plan, progress: Progress, own: RerankOptions) -> Scorer:
    model = ScoringModel.load(load, plan, progress)
    words = GgufTokenizer(model.vocabulary)
    try:
        kind = model.model.metadata("general.architecture") or ""
        template = asked(own.prompt, kind, words.special("<|im_start|><|im_end|>"))
        prefix = [model.vocabulary.bos] if model.vocabulary.adds_bos and model.vocabulary.bos is not None else []
        prompt = Prompt(template, words.special(template), words.bare, prefix)
        answers = token(words, own.yes_word, "options.yes_word"), token(words, own.no_word, "options.no_word")
        judge_ = score_mapping.judge(("yes",), own, None)
        return YesNoScorer(_Odds(model, *answers), words, prompt, model.longest - 1, judge_)
    except BaseException:
        words.close()
        model.close()
        raise


class _Odds:
    """See `functions.rerank.yes_no.Answers`."""

    def __init__(self, model: ScoringModel, yes: int, no: int) -> None:
        self._model = model
        self._answers = [[yes], [no]]

    def shares(self, tokens: int) -> bool:
        return bool(tokens) and self._model.reuses

    async def odds(self, start: Sequence[int], suffixes: Sequence[Ids]) -> list[float]:
        found = await self._model.score(start, [Branch(ids.tolist(), self._answers) for ids in suffixes])
        odds = [float(logs[0] - logs[1]) for logs in found.logprobs]
        for at, number in enumerate(odds):
            if not math.isfinite(number):
                raise NotFinite("the model gave numbers that are not finite", extra={"index": at})
        return odds

    def detail(self) -> dict[str, Any]:
        return {"description": self._model.model.description()}

    def close(self) -> None:
        self._model.close()


def _cosine(load: Load, plan: Plan, progress: Progress, own: RerankOptions) -> Scorer:
    model = PooledModel.load(load, plan, progress, "vectors")
    detail = {
        "dimension": model.size,
        "pooling": [model.pooling.kind],
        "prompts": sorted(own.prompts),
        "description": model.model.description(),
    }
    return CosineScorer(
        model.rows,
        model.tokenizer,
        longest=model.longest,
        prompts=own.prompts,
        default=None,
        detail=detail,
        close=model.close,
    )
