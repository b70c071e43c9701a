"""llama.cpp's C functions as llama-cpp-python binds them, imported once, with the environment they want.

Importing it starts no thread and touches no device, so that a forkserver may do it. It knows nothing of models.
"""

from __future__ import annotations

import os

# An abort would otherwise stop to call gdb on this process; and numpy, which llama-cpp-python imports, would start a
# pool of threads for a BLAS that nothing here calls.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from llama_cpp import llama_cpp as lib  # noqa: E402
from llama_cpp._ggml import libggml as ggml  # noqa: E402

VERSION: str = lib.llama_version().decode()

__all__ = ("VERSION", "ggml", "lib")
