"""The tokenizer of an ONNX model: `tokenizer.json`, read without Transformers, which would bring torch along."""

from __future__ import annotations

from functions.engines.checkpoint import tokenizer
from functions.engines.checkpoint.tokenizer import FastTokenizer
from functions.engines.onnx.files import OnnxFiles
from host.errors import LoadFailed


def load(files: OnnxFiles, threads: int, *, lower: bool = False) -> FastTokenizer:
    """Return the model's tokenizer; raises `LoadFailed` where there is no `tokenizer.json`."""
    if not files.folder.has("tokenizer.json"):
        raise LoadFailed("tokenizer.json is missing: the onnx engine makes no tokenizer of other files")
    return tokenizer.load(files.folder, threads, lower=lower)
