"""Fuses linear layers with the activations that follow them, found by recording one forward pass of the model.

A layer and an activation belong together when each call of the activation receives what the layer's call before it
returned, and neither is called otherwise. `optimize` then checks that the model's output is unchanged, since a layer's
output may be used elsewhere too.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import activations

from functions.engines.transformers.linear import Activation, PrepackedLinear

_GELU, _TANH = Activation("gelu", "none"), Activation("gelu", "tanh")
_KNOWN: dict[type[nn.Module], Activation] = {
    activations.GELUActivation: _GELU,
    activations.GELUTanh: _TANH,
    activations.NewGELUActivation: _TANH,
    activations.FastGELUActivation: _TANH,
    activations.SiLUActivation: Activation("swish"),
    nn.SiLU: Activation("swish"),
    nn.ReLU: Activation("relu"),
    nn.Tanh: Activation("tanh"),
}


@dataclass(frozen=True, slots=True)
class LinearActivation:
    """A linear layer and the activation that takes its output, by the modules' names in their model."""

    layer: str
    place: str
    activation: Activation


def fuse(model: nn.Module, pairs: Iterable[LinearActivation]) -> None:
    """Move activations into the prepacked layers before them, and replace them with `Identity`."""
    for pair in pairs:
        layer = model.get_submodule(pair.layer)
        if isinstance(layer, PrepackedLinear):
            layer.activation = pair.activation
            parent, _, name = pair.place.rpartition(".")
            setattr(model.get_submodule(parent), name, nn.Identity())


class _CallRecorder:
    """Records the calls of linear layers and activations, with their inputs."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.sources: dict[str, set[str]] = {}
        self._name, self._output = "", None

    def layer(self, name: str, module: Any, inputs: Any, output: Any) -> None:
        self.calls[name] += 1
        self._name, self._output = name, output

    def activation(self, name: str, module: Any, inputs: tuple[Any, ...]) -> None:
        self.calls[name] += 1
        self.sources.setdefault(name, set()).add(self._name if inputs and inputs[0] is self._output else "")
        self._name, self._output = "", None

    def pairs(self) -> Iterator[tuple[str, str]]:
        for name, sources in self.sources.items():
            source = next(iter(sources))
            if len(sources) == 1 and source and self.calls[source] == self.calls[name]:
                yield source, name


@contextlib.contextmanager
def recording(model: Any) -> Iterator[list[LinearActivation]]:
    """Yield a list that holds the model's fusible pairs once the context is left; run the model inside."""
    found: list[LinearActivation] = []
    recorder, hooks = _CallRecorder(), []
    modules = dict(_unshared_modules(model)) if isinstance(model, nn.Module) else {}
    for name, module in modules.items():
        if type(module) is nn.Linear:
            hooks.append(module.register_forward_hook(functools.partial(recorder.layer, name)))
        elif _activation_of(module) is not None:
            hooks.append(module.register_forward_pre_hook(functools.partial(recorder.activation, name)))
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
    for layer, place in recorder.pairs():
        known = _activation_of(modules[place])
        if known is not None:
            found.append(LinearActivation(layer, place, known))


def _unshared_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that occur once in the model, with their names."""
    named = list(model.named_modules(remove_duplicate=False))
    times = Counter(id(module) for _, module in named)
    return ((name, module) for name, module in named if times[id(module)] == 1)


def _activation_of(module: nn.Module) -> Activation | None:
    if type(module) is nn.GELU:
        return _TANH if module.approximate == "tanh" else _GELU
    return _KNOWN.get(type(module))
