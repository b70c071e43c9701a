"""Replaces linear layers for the CPU: weights packed once into oneDNN's layout, or quantised to int8.

Packing once matters on every CPU, since a plain layer lays its weights out anew for each batch, and most where torch
would give fp32 to MKL, which on other makers' processors leaves half of their speed unused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

_ROWS = 512
"""Tokens of a typical batch, by which oneDNN chooses a layout; others are computed just as well in it."""
_TINY = 1e-12
_FULL, _HALF = 127, 63
"""The largest weight in 8 bits. Processors without VNNI add pairs of products in 16 bits, which full ones overflow."""


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation as oneDNN names it: its operation and, where there are several, how it is computed."""

    operation: str = "none"
    algorithm: str = ""


class PrepackedLinear(nn.Module):  # type: ignore[misc]  # torch is Any to mypy here
    """A linear layer with weights in oneDNN's packed layout; fp32 stays fp32, summed in another order.

    `activation` is fused: applied to the sums before they are rounded.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.activation = Activation()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight, _ROWS)
        self.bias = layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (…, out) of (…, in)."""
        after = self.activation
        found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.weight, self.bias, after.operation, [], after.algorithm
        )
        return found


class Int8Linear(nn.Module):  # type: ignore[misc]
    """A linear layer in int8: weights quantised per output channel, inputs per token (dynamic)."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        weight = layer.weight.float()
        self._scales = weight.abs().amax(1).clamp(min=_TINY) / (_FULL if _adds_in_32_bits() else _HALF)
        self._zeros = torch.zeros(len(self._scales), dtype=torch.long)
        eight = (weight / self._scales.unsqueeze(1)).round().to(torch.int8)
        self._packed = torch.ops.onednn.qlinear_prepack(eight, [_ROWS, layer.in_features])
        self._bias = torch.zeros(()) if layer.bias is None else layer.bias.float()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (…, out) of (…, in)."""
        rows = x.reshape(-1, x.shape[-1]).float()
        scales = rows.abs().amax(1, keepdim=True).clamp_(min=_TINY).div_(127)
        # Unsigned, 128 for 0: processors with VNNI multiply unsigned numbers by signed ones.
        eight = (rows / scales).round_().add_(128).to(torch.uint8)
        found = torch.ops.onednn.qlinear_pointwise(
            eight, 1.0, 128, self._packed, self._scales, self._zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        whole: torch.Tensor = torch.addcmul(self._bias, found, scales).view(*x.shape[:-1], -1).to(x.dtype)
        return whole


def can_prepack(dtype: torch.dtype) -> bool:
    """Return whether this build of torch can prepack weights of the dtype on this processor."""
    if not torch.backends.mkldnn.is_available():
        return False
    try:
        with torch.no_grad():
            PrepackedLinear(nn.Linear(16, 16, dtype=dtype))(torch.zeros(1, 16, dtype=dtype))
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    return True


def _adds_in_32_bits() -> bool:
    known = torch.cpu.get_capabilities()
    return bool(known.get("avx512_vnni") or known.get("avx_vnni") or known.get("amx_int8"))


def replace(model: nn.Module, make: Callable[[nn.Linear], nn.Module]) -> int:
    """Put what `make` returns in the place of each linear layer, one by one, and return how many there were.

    Layers that give words' logits are left: their weights are mostly the embeddings' own. So are classes derived from
    the plain one, whose owners look into them.
    """
    spared = _output(model)
    made: dict[nn.Linear, nn.Module] = {}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if type(child) is nn.Linear and child is not spared:
                if child not in made:
                    made[child] = make(child)
                    child.weight = None  # else all of them would be there twice
                setattr(parent, name, made[child])
    return len(made)


def _output(model: Any) -> nn.Module | None:
    try:
        found: nn.Module | None = model.get_output_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    return found
