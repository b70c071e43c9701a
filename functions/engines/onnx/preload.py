"""Imports what a worker needs, once in the forkserver: no thread is started, no device touched."""

from __future__ import annotations

import tokenizers

from functions.engines.onnx.native_library import onnxruntime

__all__ = ("onnxruntime", "tokenizers")
