"""Sampling: logit bias and penalties, then a llama.cpp sampler chain (top-k, top-p, min-p, temperature, seed)."""

from __future__ import annotations

import contextlib
import ctypes
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from functions.engines.llama.decode.candidates import Candidates
from functions.engines.llama.decode.penalties import Penalty
from functions.engines.llama.model.native_library import lib, quick
from host.errors import InvalidRequest

_BAN = float("-inf")
COLD = 1e-4
"""Below this temperature the likeliest token is certain, and logits divided by it overflow."""
_RANDOM = 0xFFFFFFFF


class Sampling(msgspec.Struct, kw_only=True, frozen=True):
    """Sampling parameters; the defaults are llama.cpp's."""

    temperature: float = 0.8
    """0 takes the likeliest token."""
    top_k: int = 40
    """0 takes all of them."""
    top_p: float = 0.95
    min_p: float = 0.05
    seed: int | None = None
    """The same seed gives the same text; None and -1 give another one each time."""
    repeat_penalty: float = 1.0
    """Over the last `repeat_window` tokens, those of the prompt included."""
    repeat_window: int = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = {}
    banned: tuple[int, ...] = ()
    """Tokens that are never chosen."""


_METADATA = {
    "temperature": ("general.sampling.temp", float),
    "top_k": ("general.sampling.top_k", int),
    "top_p": ("general.sampling.top_p", float),
    "min_p": ("general.sampling.min_p", float),
    "repeat_penalty": ("general.sampling.penalty_repeat", float),
    "repeat_window": ("general.sampling.penalty_last_n", int),
}


def recommended(metadata: Callable[[str], str | None]) -> Sampling:
    """Return the sampling defaults in a model file's metadata."""
    found: dict[str, float] = {}
    for field, (key, number) in _METADATA.items():
        with contextlib.suppress(ValueError):
            if (value := metadata(key)) is not None:
                found[field] = number(value)
    return msgspec.convert(found, Sampling)


class Sampler:
    """The sampler of one sequence, with its penalties and random state."""

    def __init__(self, vocabulary_size: int, sampling: Sampling, prompt: Sequence[int], *, context: int) -> None:
        self._bias = _biases(sampling)
        self._penalties = _penalties(sampling, prompt, context)
        self._greedy = sampling.temperature < COLD
        self._candidates = Candidates(vocabulary_size, sampling.top_k)
        self._chain: Any = None if self._greedy else _chain(sampling)

    def sample(self, logits: NDArray[np.float32]) -> int:
        """Sample a token from one row of logits, which biases and penalties change in place.

        Raises `NonFiniteLogits`, and `InvalidRequest` if every token is excluded.
        """
        if self._bias is not None:
            ids, biases = self._bias
            logits[ids] += biases
        for penalty in self._penalties:
            penalty.apply(logits)
        best = int(logits.argmax())  # the first NaN, if there is one
        if not math.isfinite(logits[best]):
            raise _unusable(float(logits[best]))
        token = best if self._greedy else self._draw(logits, best)
        for penalty in self._penalties:
            penalty.accept((token,))
        return token

    def _draw(self, logits: NDArray[np.float32], best: int) -> int:
        array = self._candidates.gather(logits, best)
        quick.llama_sampler_apply(self._chain, ctypes.byref(array))
        return int(array.data[array.selected].id)

    def close(self) -> None:
        """Free the memory; safe to call twice."""
        chain, self._chain = self._chain, None
        if chain:
            lib.llama_sampler_free(chain)


class NonFiniteLogits(ArithmeticError):
    """The model's logits are NaN or infinite."""


def _unusable(highest: float) -> Exception:
    if highest == _BAN:
        return InvalidRequest("`logit_bias` rules out every token", param="logit_bias")
    return NonFiniteLogits("the model's computation broke down: its logits are not numbers")


def _biases(sampling: Sampling) -> tuple[NDArray[np.intp], NDArray[np.float32]] | None:
    biases = {token: bias if bias > -100 else _BAN for token, bias in sampling.logit_bias.items()}
    biases |= dict.fromkeys(sampling.banned, _BAN)
    if not biases:
        return None
    return np.array(list(biases), np.intp), np.array(list(biases.values()), np.float32)


def _penalties(sampling: Sampling, prompt: Sequence[int], context: int) -> list[Penalty]:
    found = []
    if sampling.repeat_penalty != 1 and sampling.repeat_window:
        window = min(sampling.repeat_window, context) if sampling.repeat_window > 0 else context
        repeats = Penalty(window, repeat=sampling.repeat_penalty)
        repeats.accept(prompt[-window:])
        found.append(repeats)
    if sampling.frequency_penalty or sampling.presence_penalty:
        found.append(Penalty(context, frequency=sampling.frequency_penalty, presence=sampling.presence_penalty))
    return found


def _chain(sampling: Sampling) -> Any:
    params = lib.llama_sampler_chain_default_params()
    params.no_perf = True
    chain = lib.llama_sampler_chain_init(params)
    if sampling.top_k > 0:
        lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_top_k(sampling.top_k))
    if sampling.top_p < 1:
        lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_top_p(sampling.top_p, 1))
    if sampling.min_p > 0:
        lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_min_p(sampling.min_p, 1))
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_temp(sampling.temperature))
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_dist(_seed(sampling.seed)))
    return chain


def _seed(seed: int | None) -> int:
    """Return a seed as llama.cpp takes it: 32 bits, and not the one that means "random"."""
    if seed is None or seed == -1:
        return secrets.randbelow(_RANDOM)
    return seed % _RANDOM
