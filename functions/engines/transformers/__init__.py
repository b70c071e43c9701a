"""The engine that runs Hugging Face folders (config.json, safetensors, tokenizer.json) on torch, as a plug-in.

Importing it costs nothing: torch and Transformers are imported in the forkserver (`preload`) and in workers.
"""

from __future__ import annotations

from functions.engines.checkpoint.file_format import CHECKPOINT
from functions.engines.transformers.options import TransformersOptions
from host.function import Engine
from host.hooks import hookimpl

ENGINE = Engine(
    name="transformers",
    summary="Hugging Face model folders on torch: safetensors, CPU, CUDA or Apple's GPU",
    requires=("torch", "transformers", "tokenizers"),
    preload=("functions.engines.transformers.preload",),
    formats=(CHECKPOINT,),
    consent=("trust_remote_code",),
    distributions=("torch", "transformers"),
    options=TransformersOptions,
)


@hookimpl
def coldframe_engines() -> list[Engine]:
    """Register the engine."""
    return [ENGINE]


__all__ = ("ENGINE", "TransformersOptions", "coldframe_engines")
