"""Checks that a BERT GGUF file has the pooler and the classifier head that its scores are computed with."""

from __future__ import annotations

from pathlib import Path

from functions.engines.llama.model import gguf
from host.errors import LoadFailed

_BERT = ("cls.weight", "cls.output.weight")
"""The pooler of a BERT, or the dense layer of a RoBERTa's head, and what makes labels of its numbers."""


def check(architecture: str, path: Path) -> None:
    """Raise `LoadFailed` for a BERT without its pooler or its head: llama.cpp would make ranks of other numbers."""
    if architecture != "bert":
        return
    tensors = gguf.read(path).tensors
    lost = [name for name in _BERT if name not in tensors]
    if lost:
        raise LoadFailed(
            f"this file's head is not whole (it lacks {' and '.join(lost)}): llama.cpp's converter drops the pooler of "
            "BERT classifiers and cross-encoders, and what is left gives numbers that mean nothing; serve the model's "
            "safetensors on the engine transformers, or convert it with pooler.dense as cls and classifier as "
            "cls.output"
        )
