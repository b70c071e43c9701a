"""The tokenizer of an ONNX model: `tokenizer.json`, read without Transformers, which would bring torch along."""

from __future__ import annotations

from functions.engines.onnx.files import Files
from functions.engines.transformers import tokenizer
from functions.engines.transformers.tokenizer import Tokenizer
from host.errors import LoadFailed


def load(files: Files, threads: int, *, lower: bool = False) -> Tokenizer:
    """Return the model's tokenizer; raises `LoadFailed` where there is no `tokenizer.json`."""
    if not files.folder.has("tokenizer.json"):
        raise LoadFailed("tokenizer.json is missing: the onnx engine makes no tokenizer of other files")
    return tokenizer.load(files.folder, threads, lower=lower)
