"""The engine that runs ONNX files on ONNX Runtime, as a plug-in.

Importing it costs nothing: ONNX Runtime is imported in the forkserver (`preload`) and in workers, and torch nowhere.
"""

from __future__ import annotations

from functions.engines.onnx.file_format import ONNX
from functions.engines.onnx.options import OnnxOptions
from host.function import Engine
from host.hooks import hookimpl

ENGINE = Engine(
    name="onnx",
    summary="ONNX files of encoders on ONNX Runtime: fp32, fp16, int8, q4; CPU, without torch",
    requires=("onnxruntime", "numpy", "tokenizers"),
    preload=("functions.engines.onnx.preload",),
    suffixes=(".onnx",),
    formats=(ONNX,),
    distributions=("onnxruntime",),
    options=OnnxOptions,
)


@hookimpl
def coldframe_engines() -> list[Engine]:
    """Register the engine."""
    return [ENGINE]


__all__ = ("ENGINE", "OnnxOptions", "coldframe_engines")
