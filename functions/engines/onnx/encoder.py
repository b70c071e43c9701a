"""Runs an ONNX graph: pads tokenised items into arrays and returns one output and the mask, in numpy.

Pooling and labels are applied by the callers."""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from functions.engines.batching.item import Item
from functions.engines.checkpoint import max_length
from functions.engines.onnx.files import OnnxFiles
from functions.engines.onnx.native_library import is_out_of_memory, message_of, onnxruntime
from functions.engines.onnx.options import OnnxOptions
from host.errors import InvalidRequest, LoadFailed, OutOfMemory
from host.function import Load, Progress

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.int64]

_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
Integer = type[np.int64] | type[np.int32]

_INTEGERS: dict[str, Integer] = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_LEVELS = {"all": "ORT_ENABLE_ALL", "basic": "ORT_ENABLE_BASIC", "off": "ORT_DISABLE_ALL"}
_FATAL = 4
_OUTSIDE = re.compile(r"indices element out of data bounds, idx=(\d+)|input index out of range")
"""The error of `Gather`, and of the fused EmbedLayerNormalization."""
_UNKNOWN = "a text has a token that the model has no embedding for: leave it out ({})"


class Encoder:
    """An inference session. Call `forward` from the compute thread only."""

    def __init__(self, session: Any, pad: int, name: str, first: int = 0) -> None:
        """`first` is the position of an input's first token."""
        self._session = session
        self._pad = pad
        self._first = first
        self._name = name
        self._inputs = {value.name: _input_type(value, name) for value in session.get_inputs()}
        if "input_ids" not in self._inputs:
            raise LoadFailed(f"{name} has no input `input_ids`: it is no graph of a text encoder")
        self.outputs: dict[str, int] = {made.name: len(made.shape or ()) for made in session.get_outputs()}
        """Name -> number of dimensions, in the graph's order."""

    def output(self, names: Sequence[str], rank: int) -> str:
        """Return the first output that is called as one of `names`, else the first one with so many dimensions.

        Raises `LoadFailed` that lists the outputs.
        """
        named = next((name for name in names if self.outputs.get(name, 0) in (0, rank) and name in self.outputs), None)
        found = named or next((name for name, count in self.outputs.items() if count == rank), None)
        if found is None:
            there = ", ".join(f"{name} ({count} dimensions)" for name, count in self.outputs.items())
            raise LoadFailed(f"{self._name} has no output of {rank} dimensions such as {names[0]}; it gives {there}")
        return found

    def forward(self, items: Sequence[Item], output: str) -> tuple[Floats, Mask]:
        """Return the output in fp32 and the mask, (items, tokens) of 0 and 1; padding is on the right."""
        ids, mask, types = _padded(items, self._pad)
        filled = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        if "position_ids" in self._inputs:
            filled["position_ids"] = np.broadcast_to(self._first + np.arange(ids.shape[1]), ids.shape)
        value = {name: np.ascontiguousarray(filled[name], dtype=kind) for name, kind in self._inputs.items()}
        try:
            (found,) = self._session.run([output], value)
        except Exception as error:
            if _is_unknown_token(error, ids):
                raise InvalidRequest(_UNKNOWN.format(message_of(error))) from error
            raise
        return np.asarray(found, dtype=np.float32), mask


def load(load_: Load, options: OnnxOptions, files: OnnxFiles, progress: Progress) -> Encoder:
    """Open the graph; raises `LoadFailed` for what ONNX Runtime cannot run, and `OutOfMemory`."""
    total = sum(files.sizes())
    progress("weights", 0, total)
    config = files.folder.config()
    pad = config.get("pad_token_id")
    try:
        session = onnxruntime.InferenceSession(
            str(files.file), settings(options, load_.threads), providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        if is_out_of_memory(error):
            raise OutOfMemory("memory ran out while the weights were loaded") from error
        raise LoadFailed(f"{files.file.name} cannot be loaded: {message_of(error)}{_version_hint(error)}") from error
    _trim_heap()
    progress("weights", total, total)
    return Encoder(session, 0 if pad is None else int(pad), files.file.name, _first(config))


def settings(options: OnnxOptions, threads: int) -> Any:
    """Return session options: `threads` intra-op threads, which sleep while idle."""
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads = threads
    made.inter_op_num_threads = 1
    made.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[options.optimization])
    made.log_severity_level = _FATAL
    # Threads that spin while they wait take the cores of other workers.
    made.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # A plan of the memory is kept for each shape that was ever computed, and here every batch has another one.
    made.enable_mem_pattern = False
    return made


def _first(config: Mapping[str, Any]) -> int:
    """Return the first position; RoBERTa and its kin have rows before it that no token uses."""
    rows, used = config.get("max_position_embeddings"), max_length.positions(config)
    return rows - used if isinstance(rows, int) and used is not None else 0


def _version_hint(error: Exception) -> str:
    """Return a hint for a file that is newer than the library."""
    if "opset" not in str(error).lower() and "IR version" not in str(error):
        return ""
    return f"; this is ONNX Runtime {onnxruntime.__version__}: install a newer one, or export with an older opset"


def _trim_heap() -> None:
    """Return memory freed after reading the graph to the system: malloc would keep half as much as the weights."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)


def _input_type(value: Any, name: str) -> Integer:
    """Return the type of an input's numbers; raises `LoadFailed` for one that cannot be filled."""
    if value.name not in _INPUTS:
        raise LoadFailed(f"{name} asks for an input {value.name!r}; supported are {', '.join(_INPUTS)}")
    if value.type not in _INTEGERS:
        raise LoadFailed(f"{name} takes {value.name} as {value.type}, expected int64 or int32")
    if len(value.shape) != 2 or any(isinstance(size, int) for size in value.shape):
        raise LoadFailed(
            f"{name} takes {value.name} only as {value.shape}: export it with any number of inputs and of tokens"
        )
    return _INTEGERS[value.type]


def _is_unknown_token(error: Exception, ids: Mask) -> bool:
    """Return whether the error is about a token id without an embedding, not a position or token type."""
    found = _OUTSIDE.search(str(error))
    if found is None or "position" in str(error):
        return False
    return found[1] is None or (int(found[1]) > 1 and bool((ids == int(found[1])).any()))


def _padded(items: Sequence[Item], pad: int) -> tuple[Mask, Mask, Mask]:
    """Return ids, mask and segments, each (items, tokens of the longest one)."""
    shape = (len(items), max(len(item.ids) for item in items))
    ids, mask, types = np.full(shape, pad, dtype=np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, item in enumerate(items):
        count = len(item.ids)
        ids[row, :count] = item.ids
        mask[row, :count] = 1
        if item.types is not None:
            types[row, :count] = item.types
    return ids, mask, types
