"""The scorer of a Hugging Face folder with a head: its labels and activation read, and a prompt where it wants one."""

from __future__ import annotations

from functions.engines.batching.headed import HeadedModel
from functions.engines.transformers.folder import Folder
from functions.engines.transformers.tokenizer import Tokenizer
from functions.rerank import labels
from functions.rerank.crossing import CrossScorer
from functions.rerank.options import RerankOptions
from functions.rerank.prompt import Prompt, known

_SETTINGS = "config_sentence_transformers.json"


def scorer(model: HeadedModel, tokens: Tokenizer, folder: Folder, own: RerankOptions) -> CrossScorer:
    """Return the scorer of a model whose files are in `folder`.

    Raises `LoadFailed` for labels and activations that say nothing, with the model closed.
    """
    try:
        judge = labels.judge(model.labels, own, labels.stated(model.config, folder.mapping(_SETTINGS)))
        kind = str(model.config.get("model_type", ""))
        # A decoder was trained on a prompt; those of Qwen's kind on that of Qwen3-Reranker, as far as is known.
        template = own.prompt or (known(kind, tokens.special()) if kind.startswith("qwen") else None)
        return CrossScorer(model, judge, prompted(template, tokens) if template is not None else None)
    except BaseException:
        model.close()
        raise


def prompted(template: str, tokens: Tokenizer) -> Prompt:
    """Return the prompt; from now on texts that spell special tokens are words to the tokenizer."""
    special = tokens.special()
    tokens.literal()
    return Prompt(template, special, tokens.bare, tokens.prefix)
