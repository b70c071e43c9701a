"""A GGUF file opened by llama.cpp: weights (or only their sizes), vocabulary and metadata.

Raises `LoadFailed` with llama.cpp's own message, or `OutOfMemory`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model import log
from functions.engines.llama.model.native_library import ggml, lib
from functions.engines.llama.model.vocabulary import Vocabulary
from functions.engines.llama.options import LlamaOptions
from host.errors import LoadFailed, OutOfMemory

_MAGIC = b"GGUF"
_SPLITS = {"none": lib.LLAMA_SPLIT_MODE_NONE, "layer": lib.LLAMA_SPLIT_MODE_LAYER, "row": lib.LLAMA_SPLIT_MODE_ROW}
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""Pattern in the names of the expert tensors of MoE models."""

ggml.ggml_backend_cpu_buffer_type.argtypes = []
ggml.ggml_backend_cpu_buffer_type.restype = ctypes.c_void_p


class Model:
    """An open model; `close` gives its memory back."""

    def __init__(self, handle: int, keep: tuple[Any, ...]) -> None:
        self.handle = handle
        self._keep = keep
        self.vocabulary = Vocabulary(lib.llama_model_get_vocab(handle))
        self.bytes: int = lib.llama_model_size(handle)
        self.trained: int = lib.llama_model_n_ctx_train(handle)
        self.layers: int = lib.llama_model_n_layer(handle)
        self.window: int = lib.llama_model_n_swa(handle)
        """Tokens that sliding-window layers look back on; 0 without such layers."""
        self.recurrent = bool(lib.llama_model_is_recurrent(handle) or lib.llama_model_is_hybrid(handle))

    @classmethod
    def open(
        cls,
        path: str,
        options: LlamaOptions,
        target: Target,
        *,
        sizes_only: bool = False,
        progress: Callable[[float], None] | None = None,
    ) -> Model:
        """Open the file; `sizes_only` allocates and reads no weights.

        Raises `OutOfMemory`, or `LoadFailed` with llama.cpp's own message.
        """
        _check_file(Path(path))
        params, keep = _parameters(options, target, sizes_only, progress)
        with log.listen() as lines:
            handle = lib.llama_model_load_from_file(str(path).encode(), params)
        if not handle:
            message = log.reason(lines, str(path))
            if log.ran_out_of_memory(lines):
                raise OutOfMemory(f"the weights of {Path(path).name} do not fit into memory: {message}")
            raise LoadFailed(f"{Path(path).name} cannot be loaded: {message or 'llama.cpp gave no reason'}")
        model = cls(handle, keep)
        try:
            model._check_kind()
        except LoadFailed:
            model.close()
            raise
        return model

    def metadata(self, key: str) -> str | None:
        """Return a value of the file's metadata as text."""
        room = 256
        buffer = ctypes.create_string_buffer(room)
        length = lib.llama_model_meta_val_str(self.handle, key.encode(), buffer, room)
        if length >= room:
            buffer = ctypes.create_string_buffer(length + 1)
            length = lib.llama_model_meta_val_str(self.handle, key.encode(), buffer, length + 1)
        return buffer.value.decode("utf-8", "replace") if length >= 0 else None

    def chat_template(self) -> str | None:
        """Return the file's default chat template."""
        found = lib.llama_model_chat_template(self.handle, None)
        return found.decode("utf-8", "replace") if found else None

    def description(self) -> str:
        """Return what llama.cpp calls the model: `llama 256M Q4_1`."""
        buffer = ctypes.create_string_buffer(128)
        lib.llama_model_desc(self.handle, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    def close(self) -> None:
        """Free the memory; safe to call twice."""
        handle, self.handle = self.handle, 0
        if handle:
            lib.llama_model_free(handle)

    def _check_kind(self) -> None:
        if not lib.llama_model_has_decoder(self.handle) or lib.llama_model_has_encoder(self.handle):
            raise LoadFailed("this model has an encoder: the llama engine runs decoder-only models")
        if lib.llama_model_is_diffusion(self.handle):
            raise LoadFailed("this is a diffusion model: the llama engine runs autoregressive models")


def _check_file(path: Path) -> None:
    """Raise `LoadFailed` for missing files and other formats, with clearer messages than llama.cpp's."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except FileNotFoundError:
        raise LoadFailed(f"the file {path.name} is not there (any more)") from None
    except OSError as error:
        raise LoadFailed(f"the file {path.name} cannot be read: {error.strerror}") from None
    if head != _MAGIC:
        raise LoadFailed(f"{path.name} is not a GGUF file: it starts with {head!r} instead of {_MAGIC!r}")


def _parameters(
    options: LlamaOptions, target: Target, sizes_only: bool, progress: Callable[[float], None] | None
) -> tuple[Any, tuple[Any, ...]]:
    """Return llama.cpp's model parameters, and what must outlive the call."""
    params = lib.llama_model_default_params()
    devices = target.array()
    params.devices = ctypes.cast(devices, ctypes.c_void_p)
    params.split_mode = _SPLITS[target.split] if target.devices else lib.LLAMA_SPLIT_MODE_LAYER
    params.n_gpu_layers = target.layers if target.devices else 0
    shares = (ctypes.c_float * lib.llama_max_devices())(*target.shares)
    if target.shares:
        params.tensor_split = shares
    overrides = _overrides(options) if target.devices else None
    if overrides is not None:
        params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
    params.load_mode = lib.LLAMA_LOAD_MODE_NONE if sizes_only else _load_mode(options)
    params.no_alloc = sizes_only

    def report(done: float, _: Any) -> bool:
        if progress is not None:
            progress(done)
        return True

    callback = lib.llama_progress_callback(report)
    params.progress_callback = callback
    return params, (devices, shares, overrides, callback)


class _Override(ctypes.Structure):
    """llama.cpp's `llama_model_tensor_buft_override`: tensors whose names match go into that type of buffer."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer", ctypes.c_void_p))


def patterns(options: LlamaOptions) -> list[str]:
    """Return the patterns of names of the tensors that stay with the CPU whatever the layer they are in."""
    if options.cpu_moe:
        return [EXPERTS]
    return [rf"blk\.{layer}{EXPERTS}" for layer in range(options.n_cpu_moe)]


def _overrides(options: LlamaOptions) -> Any:
    """Return the array of overrides, ended by an empty one; None when there are none."""
    names = patterns(options)
    if not names:
        return None
    cpu = ggml.ggml_backend_cpu_buffer_type()
    return (_Override * (len(names) + 1))(*(_Override(name.encode(), cpu) for name in names))


def _load_mode(options: LlamaOptions) -> int:
    if options.mlock:
        return int(lib.LLAMA_LOAD_MODE_MMAP_MLOCK if options.mmap else lib.LLAMA_LOAD_MODE_MLOCK)
    return int(lib.LLAMA_LOAD_MODE_MMAP if options.mmap else lib.LLAMA_LOAD_MODE_NONE)
