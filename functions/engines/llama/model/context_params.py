"""Context parameters from the manifest's options: threads, KV cache types, flash attention, and the abort callback."""

from __future__ import annotations

import ctypes
from typing import Any

from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model import log
from functions.engines.llama.model.model import Model
from functions.engines.llama.model.native_library import lib
from functions.engines.llama.options import LlamaOptions
from host.errors import LoadFailed, OutOfMemory

_CACHE_TYPES = {
    name: getattr(lib, f"GGML_TYPE_{name.upper()}") for name in ("f32", "f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
} | {"bf16": 30}
_FLASH = {
    "auto": lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}

# llama.cpp asks an abort callback before every node of a graph. A Python function there would wait for the interpreter
# lock a thousand times a step; `strlen` of a two-byte buffer is false for "" and true for "x", and needs no lock.
_ABORT_CALLBACK = ctypes.cast(ctypes.CDLL(None).strlen, lib.ggml_abort_callback)


def parameters(options: LlamaOptions, target: Target, threads: int) -> Any:
    """Return the parameters that are the same for contexts of all kinds."""
    params = lib.llama_context_default_params()
    params.n_threads = params.n_threads_batch = threads
    params.type_k, params.type_v = _CACHE_TYPES[options.cache_type_k], _CACHE_TYPES[options.cache_type_v]
    params.flash_attn_type = _FLASH[options.flash_attention]
    params.offload_kqv = params.op_offload = target.device is not None
    return params


def abortable(params: Any) -> Any:
    """Return the flag that ends what a context computes once its first byte is no zero; it must outlive the context."""
    flag = ctypes.create_string_buffer(2)
    params.abort_callback = _ABORT_CALLBACK
    params.abort_callback_data = ctypes.cast(flag, ctypes.c_void_p)
    return flag


def opened(model: Model, params: Any, room: str) -> int:
    """Return the handle of a context. Raises `OutOfMemory`, which says what had no `room`, and `LoadFailed`."""
    with log.listen() as lines:
        handle = lib.llama_init_from_model(model.handle, params)
    if handle:
        return int(handle)
    message = log.reason(lines, "")
    if log.ran_out_of_memory(lines):
        raise OutOfMemory(f"{room} does not fit into memory: {message}")
    raise LoadFailed(f"llama.cpp makes no context for this model: {message or 'it gave no reason'}")
