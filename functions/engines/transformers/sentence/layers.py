"""The modules after pooling, or on token states (Dense, LayerNorm, Normalize), loaded from the model's files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import safetensors
import safetensors.torch
import torch

from functions.engines.checkpoint.folder import Folder
from host.errors import LoadFailed

Layer = Callable[[torch.Tensor], torch.Tensor]

_TANH = "torch.nn.modules.activation.Tanh"


def load(steps: Sequence[tuple[str, str]], folder: Folder, size: int, device: torch.device) -> tuple[list[Layer], int]:
    """Return the layers in order, in fp32, and what the last one's vectors have numbers; `size` is what comes in."""
    layers: list[Layer] = []
    for kind, path in steps:
        if kind == "Normalize":
            layers.append(scale)
            continue
        if kind == "Linear":
            layer, size = _linear(folder.path / path, size, device)
        elif kind == "LayerNorm":
            layer = _norm(folder.inside(path), path, size, device)
        else:
            layer, size = _dense(folder.inside(path), path, size, device)
        layers.append(layer)
    return layers, size


def scale(vectors: torch.Tensor) -> torch.Tensor:
    """Return the vectors, the last dimension, with length 1."""
    return torch.nn.functional.normalize(vectors, dim=-1)


def _dense(folder: Folder, name: str, size: int, device: torch.device) -> tuple[Layer, int]:
    """Return a linear layer with its activation, and the size of what comes out."""
    config = folder.mapping("config.json")
    act = _activation(str(config.get("activation_function", _TANH)), name)
    tensors = _read(folder, device)
    linear, out = _weighted(tensors.get("linear.weight"), tensors.get("linear.bias"), name, size)
    if not config.get("use_residual"):
        return lambda x: act(linear(x)), out
    if out == size:
        return lambda x: act(linear(x)) + x, out
    around, _ = _weighted(tensors.get("residual.weight"), None, name, size)
    return lambda x: act(linear(x)) + around(x), out


def _activation(name: str, place: str) -> Layer:
    """Return an activation of torch's by its Python path; only classes of torch's own that need nothing are made."""
    kind = getattr(torch.nn, name.rpartition(".")[2], None) if name.startswith("torch.nn.") else None
    known = isinstance(kind, type) and kind.__module__ in ("torch.nn.modules.activation", "torch.nn.modules.linear")
    try:
        made = kind() if known and kind is not None else None
    except TypeError:
        made = None
    if not isinstance(made, torch.nn.Module):
        raise LoadFailed(f"{place}/config.json: activation_function {name} is not served: expected one of torch.nn's")
    run: Layer = made.eval()
    return run


def _norm(folder: Folder, name: str, size: int, device: torch.device) -> Layer:
    tensors = _read(folder, device)
    weight, bias = tensors.get("norm.weight"), tensors.get("norm.bias")
    if weight is None or weight.shape != (size,):
        raise LoadFailed(f"{name}: model.safetensors has no norm.weight of {size} numbers")
    return lambda x: torch.nn.functional.layer_norm(x, (size,), weight, bias)


def _linear(path: Path, size: int, device: torch.device) -> tuple[Layer, int]:
    """Return the linear layer in a file, which may hold other tensors besides."""
    found: dict[str, torch.Tensor] = {}
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            names = set(file.keys())
            for kind in ("weight", "bias"):
                name = next((name for name in (f"linear.{kind}", kind) if name in names), None)
                if name is not None:
                    found[kind] = file.get_tensor(name).float().to(device)
    except (OSError, safetensors.SafetensorError) as error:
        raise LoadFailed(f"{path.name} cannot be read: {str(error).replace(str(path.parent), '…')}") from None
    return _weighted(found.get("weight"), found.get("bias"), path.name, size)


def _weighted(weight: torch.Tensor | None, bias: torch.Tensor | None, name: str, size: int) -> tuple[Layer, int]:
    if weight is None:
        raise LoadFailed(f"{name}: model.safetensors has no linear.weight")
    if weight.shape[1] != size:
        raise LoadFailed(f"{name} takes vectors of {weight.shape[1]} numbers, but gets {size}")
    return lambda x: torch.nn.functional.linear(x, weight, bias), int(weight.shape[0])


def _read(folder: Folder, device: torch.device) -> dict[str, torch.Tensor]:
    (shard,) = folder.shards()
    return {key: value.float().to(device) for key, value in safetensors.torch.load_file(shard).items()}
