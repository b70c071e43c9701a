"""Creates the cross-encoder scorer of a Hugging Face folder, with its labels, activation and prompt."""

from __future__ import annotations

from functions.engines.batching.classifier import ClassifierModel
from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.tokenizer import FastTokenizer
from functions.rerank import reranker_config, score_mapping
from functions.rerank.cross_encoder import CrossEncoderScorer
from functions.rerank.options import RerankOptions
from functions.rerank.prompt import INSTRUCTION, Prompt, default_template
from functions.rerank.reranker_config import RerankerConfig


def create_scorer(
    model: ClassifierModel, tokenizer: FastTokenizer, folder: Folder, options: RerankOptions
) -> CrossEncoderScorer:
    """Return the scorer of a model whose files are in `folder`.

    Raises `LoadFailed` for unknown labels and activations, with the model closed.
    """
    try:
        config = reranker_config.read(folder, model.config)
        mapping = score_mapping.create(model.labels, options, config.activation, model.config.get("problem_type"))
        # Decoders were trained on a prompt; those of the Qwen family on that of Qwen3-Reranker, as far as is known.
        model_type = str(model.config.get("model_type", ""))
        template = options.prompt or config.prompt
        if template is None and model_type.startswith("qwen"):
            template = default_template(model_type, tokenizer.special())
        prompt = None if template is None else create_prompt(template, tokenizer, options, config)
        return CrossEncoderScorer(model, mapping, prompt)
    except BaseException:
        model.close()
        raise


def create_prompt(template: str, tokenizer: FastTokenizer, options: RerankOptions, config: RerankerConfig) -> Prompt:
    """Return the prompt, and make the tokenizer read special tokens in texts as plain text.

    A template of the model's files has all special tokens in it, and may have an instruction of its own.
    """
    special = tokenizer.special()
    tokenizer.literal()
    if options.prompt is None and template == config.prompt:
        return Prompt(template, special, tokenizer.bare, instruction=config.instruction or INSTRUCTION)
    return Prompt(template, special, tokenizer.bare, tokenizer.prefix)
