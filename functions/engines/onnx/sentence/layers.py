"""The modules after pooling (Dense, LayerNorm, Normalize), loaded from the model's files, in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import safetensors
import safetensors.numpy

from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence.layout import Step
from functions.engines.onnx.encoder import Floats
from functions.engines.onnx.sentence.pooling import scale
from host.errors import LoadFailed

Layer = Callable[[Floats], Floats]

_TANH = "torch.nn.modules.activation.Tanh"
_EPSILON = np.float32(1e-5)
_ACTIVATIONS: dict[str, Layer] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: x * (x > 0),
    "Sigmoid": lambda x: _sigmoid(x),  # noqa: PLW0108 - it is defined below
    "SiLU": lambda x: x * _sigmoid(x),
}


def load(steps: Sequence[Step], folder: Folder, size: int) -> tuple[list[Layer], int]:
    """Return the layers in order, in fp32, and how many numbers the last one's vectors have; `size` is what comes in.

    Raises `LoadFailed` for layers that are not served here.
    """
    layers: list[Layer] = []
    for kind, path in steps:
        if kind == "Normalize":
            layers.append(scale)
        elif kind == "LayerNorm":
            layers.append(_norm(folder.inside(path), path, size))
        elif kind == "Dense":
            layer, size = _dense(folder.inside(path), path, size)
            layers.append(layer)
        else:
            raise LoadFailed(f"modules.json: {kind} is not served by the onnx engine")
    return layers, size


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)), dtype=np.float32)


def _dense(folder: Folder, name: str, size: int) -> tuple[Layer, int]:
    config = folder.mapping("config.json")
    activation = str(config.get("activation_function", _TANH)).rpartition(".")[2]
    if activation not in _ACTIVATIONS or config.get("use_residual"):
        known = ", ".join(sorted(_ACTIVATIONS))
        what = "use_residual" if activation in _ACTIVATIONS else f"activation_function {activation}"
        raise LoadFailed(f"{name}/config.json: {what} is not served by the onnx engine; activations are {known}")
    act, tensors = _ACTIVATIONS[activation], _read(folder, name)
    weight, bias = tensors.get("linear.weight"), tensors.get("linear.bias", np.float32(0))
    if weight is None or weight.ndim != 2 or weight.shape[1] != size:
        raise LoadFailed(f"{name}: model.safetensors has no linear.weight for vectors of {size} numbers")
    across = np.ascontiguousarray(weight.T)
    return lambda x: act(x @ across + bias), int(weight.shape[0])


def _norm(folder: Folder, name: str, size: int) -> Layer:
    tensors = _read(folder, name)
    weight, bias = tensors.get("norm.weight"), tensors.get("norm.bias", np.float32(0))
    if weight is None or weight.shape != (size,):
        raise LoadFailed(f"{name}: model.safetensors has no norm.weight of {size} numbers")

    def norm(x: Floats) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        found: Floats = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + _EPSILON) * weight + bias
        return found

    return norm


def _read(folder: Folder, name: str) -> dict[str, Floats]:
    (shard,) = folder.shards()
    try:
        return {key: value.astype(np.float32) for key, value in safetensors.numpy.load_file(shard).items()}
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise LoadFailed(f"{name}/{shard.name} cannot be read: {type(error).__name__}") from error
