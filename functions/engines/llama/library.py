"""llama.cpp's C functions as llama-cpp-python binds them, imported once, with the environment they want.

Importing it starts no thread and touches no device, so that a forkserver may do it. It knows nothing of models.
"""

from __future__ import annotations

import os

# An abort would otherwise stop to call gdb on this process; numpy, which llama-cpp-python imports, would start a pool
# of threads for a BLAS that nothing here calls; and OpenMP threads that spin at every barrier starve each other as soon
# as anything else wants a core: measured on two busy cores, 5 tokens a second spinning, 60 sleeping.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from llama_cpp import llama_cpp as lib
from llama_cpp._ggml import libggml as ggml

VERSION: str = lib.llama_version().decode()

__all__ = ("VERSION", "ggml", "lib")
