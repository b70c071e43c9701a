"""llama.cpp's C functions as llama-cpp-python binds them, imported once, after the environment variables they need.

Importing this module starts no thread and initialises no device, so that a forkserver may preload it.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from functions.engines.openmp_spin import environment

# An abort would otherwise stop to call gdb on this process; numpy, which llama-cpp-python imports, would start a pool
# of threads for a BLAS that nothing here calls.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

os.environ.update(environment())

from llama_cpp import llama_cpp as lib
from llama_cpp._ggml import libggml as ggml

quick: Any = ctypes.PyDLL(lib._lib._name)
"""Functions that return at once, called without giving up the interpreter lock: a thread that gives it up gets it back
when another one is through with all it has to do. What may wait for a device, or compute, is called by `lib`."""
for _name, _result, _arguments in (
    ("llama_get_logits_ith", ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int32)),
    ("llama_memory_seq_pos_max", ctypes.c_int32, (ctypes.c_void_p, ctypes.c_int32)),
    ("llama_memory_seq_pos_min", ctypes.c_int32, (ctypes.c_void_p, ctypes.c_int32)),
    ("llama_memory_seq_rm", ctypes.c_bool, (ctypes.c_void_p, *[ctypes.c_int32] * 3)),
    ("llama_memory_seq_cp", None, (ctypes.c_void_p, *[ctypes.c_int32] * 4)),
    ("llama_set_n_threads", None, (ctypes.c_void_p, *[ctypes.c_int32] * 2)),
    ("llama_sampler_apply", None, (lib.llama_sampler_p_ctypes, ctypes.c_void_p)),
):
    _function = getattr(quick, _name)
    _function.restype, _function.argtypes = _result, _arguments

VERSION: str = lib.llama_version().decode()

__all__ = ("VERSION", "ggml", "lib", "quick")
