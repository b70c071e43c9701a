"""The engine `llama`: GGUF files on llama.cpp. Only registers the engine; the library is imported in workers."""

from __future__ import annotations

from collections.abc import Sequence

from functions.engines.llama.file_format import GGUF
from functions.engines.llama.options import LlamaOptions
from host.function import Engine
from host.hooks import hookimpl

ENGINE = Engine(
    name="llama",
    summary="GGUF files on llama.cpp, with continuous batching and shared prefixes",
    requires=("llama_cpp", "jinja2", "numpy"),
    preload=("functions.engines.llama.instance", "functions.engines.llama.pooled.model"),
    suffixes=(".gguf",),
    formats=(GGUF,),
    adapters="adapters",
    distributions=("llama-cpp-python",),
    options=LlamaOptions,
)


@hookimpl
def coldframe_engines() -> Sequence[Engine]:
    """Register the engine."""
    return (ENGINE,)
