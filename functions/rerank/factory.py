"""The scorer of a Hugging Face folder with a head: its labels and activation read, and a prompt where it wants one."""

from __future__ import annotations

from functions.engines.batching.classifier import ClassifierModel
from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.tokenizer import FastTokenizer
from functions.rerank import model_card as cards
from functions.rerank import score_mapping
from functions.rerank.cross_encoder import CrossEncoderScorer
from functions.rerank.model_card import ModelCard
from functions.rerank.options import RerankOptions
from functions.rerank.prompt import INSTRUCTION, Prompt, known


def scorer(model: ClassifierModel, tokens: FastTokenizer, folder: Folder, own: RerankOptions) -> CrossEncoderScorer:
    """Return the scorer of a model whose files are in `folder`.

    Raises `LoadFailed` for labels and activations that say nothing, with the model closed.
    """
    try:
        card = cards.read(folder, model.config)
        judge = score_mapping.judge(model.labels, own, card.activation, model.config.get("problem_type"))
        # A decoder was trained on a prompt; those of Qwen's kind on that of Qwen3-Reranker, as far as is known.
        kind = str(model.config.get("model_type", ""))
        template = own.prompt or card.prompt or (known(kind, tokens.special()) if kind.startswith("qwen") else None)
        return CrossEncoderScorer(model, judge, prompted(template, tokens, own, card) if template is not None else None)
    except BaseException:
        model.close()
        raise


def prompted(template: str, tokens: FastTokenizer, own: RerankOptions, card: ModelCard) -> Prompt:
    """Return the prompt; from now on texts that spell special tokens are words to the tokenizer.

    A template of the files has all special tokens in it, and perhaps an instruction of its own.
    """
    special = tokens.special()
    tokens.literal()
    if own.prompt is None and template == card.prompt:
        return Prompt(template, special, tokens.bare, instruction=card.instruction or INSTRUCTION)
    return Prompt(template, special, tokens.bare, tokens.prefix)
