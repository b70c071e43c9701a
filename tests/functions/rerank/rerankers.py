"""What tests of rerankers share: asking one, and tiny random decoders with a tokenizer like Qwen's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from functions.rerank.api import RerankRequest, Scores
from functions.rerank.instance import RerankInstance
from functions.rerank.prompt import INSTRUCTION

Opener = Callable[..., RerankInstance]

TEXT = (
    "Given a web search query, retrieve relevant passages that answer the query. Judge whether the Document meets the "
    "requirements based on the Query and the Instruct provided. The answer can only be yes or no. river stone light "
    "number window garden paper winter music train bread letter and the of on a in what where falls morning"
)
CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


async def ask(instance: RerankInstance, query: str, documents: list[str], **fields: Any) -> Scores:
    return await instance.answer(RerankRequest(model="m", query=query, documents=documents, **fields))


def bytes_tokenizer() -> tokenizers.Tokenizer:
    """Return a byte-level BPE that joins words with the space before them, as Qwen's does, and knows ChatML."""
    made = tokenizers.Tokenizer(BPE())
    made.pre_tokenizer = ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=600, special_tokens=CHATML, initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator([TEXT, "yes", "no"] * 20, trainer)
    made.add_tokens([tokenizers.AddedToken(word, special=False) for word in ("<think>", "</think>")])
    return made


def decoder(folder: Path, kind: str = "qwen3", head: int = 0, **config: Any) -> Path:
    """Save a tiny random decoder with that tokenizer, and with a head of so many labels where `head` says so."""
    torch.manual_seed(5)
    words = bytes_tokenizer()
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    given = {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512, "pad_token_id": 0} | sizes
    name = {"qwen3": "Qwen3", "qwen2": "Qwen2", "gemma2": "Gemma2", "llama": "Llama"}[kind]
    made = getattr(transformers, f"{name}Config")(vocab_size=words.get_vocab_size(), **given, **config)
    if head:
        made.num_labels = head
    auto = getattr(transformers, f"{name}For{'SequenceClassification' if head else 'CausalLM'}")
    model = auto(made).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder)
    words.save(str(folder / "tokenizer.json"))
    return folder


def qwen_text(query: str, document: str, instruction: str = INSTRUCTION) -> str:
    """The prompt as the model card of Qwen3-Reranker writes it."""
    system = (
        "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
        'Note that the answer can only be "yes" or "no".'
    )
    asked = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    return (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{asked}<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
