"""What follows the encoder: pooling, then the dense layers and the scaling that the model's files ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import safetensors.torch
import torch

from functions.engines.transformers.folder import Folder
from functions.engines.transformers.sentence.layout import Layout
from functions.engines.transformers.sentence.pooling import pool
from host.errors import LoadFailed

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Identity": lambda x: x,
    "Tanh": torch.tanh,
    "ReLU": torch.relu,
    "GELU": torch.nn.functional.gelu,
    "SiLU": torch.nn.functional.silu,
    "Sigmoid": torch.sigmoid,
}

Layer = Callable[[torch.Tensor], torch.Tensor]


class Head:
    """Turns the encoder's output into vectors, in fp32. `size` is what a vector has numbers."""

    def __init__(self, layout: Layout, folder: Folder, hidden: int, device: torch.device) -> None:
        self._layout = layout
        self.size = hidden * len(layout.pooling)
        self._layers: list[Layer] = []
        for kind, path in layout.steps:
            if kind == "Normalize":
                self._layers.append(_scale)
            else:
                layer, self.size = _dense(folder.inside(path), path, self.size, device)
                self._layers.append(layer)

    def __call__(self, hidden: torch.Tensor, mask: torch.Tensor, prompts: Sequence[int]) -> torch.Tensor:
        """Return (items, size) from (items, tokens, hidden), the mask, and each item's tokens of a prompt."""
        vectors = pool(hidden, mask, self._layout.pooling, None if self._layout.with_prompt else prompts)
        for layer in self._layers:
            vectors = layer(vectors)
        return vectors


def _scale(vectors: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(vectors, dim=1)


def _dense(folder: Folder, name: str, size: int, device: torch.device) -> tuple[Layer, int]:
    """Return a linear layer with its activation, and the size of what comes out."""
    config = folder.mapping("config.json")
    activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    if activation not in _ACTIVATIONS:
        raise LoadFailed(f"{name}/config.json: activation {activation} is not served; known: {', '.join(_ACTIVATIONS)}")
    try:
        tensors = {key: value.float().to(device) for key, value in _read(folder).items()}
        weight, bias = tensors["linear.weight"], tensors.get("linear.bias")
    except KeyError:
        raise LoadFailed(f"{name}: model.safetensors has no linear.weight") from None
    if weight.shape[1] != size:
        raise LoadFailed(f"{name} takes vectors of {weight.shape[1]} numbers, but pooling gives {size}")
    act = _ACTIVATIONS[activation]
    return lambda x: act(torch.nn.functional.linear(x, weight, bias)), int(weight.shape[0])


def _read(folder: Folder) -> dict[str, torch.Tensor]:
    (shard,) = folder.shards()
    return safetensors.torch.load_file(shard)
