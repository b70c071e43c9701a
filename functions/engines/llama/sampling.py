"""How the next token is chosen: the client's wishes as one of llama.cpp's sampler chains.

It knows distributions over tokens, and nothing of text, stops or requests.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence

import msgspec

from functions.engines.llama.library import lib

_BAN = float("-inf")
_RANDOM = 0xFFFFFFFF


class Sampling(msgspec.Struct, kw_only=True, frozen=True):
    """What a client may wish; the defaults are llama.cpp's own."""

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
    """Return the defaults a model's file recommends, as far as it does."""
    found: dict[str, float] = {}
    for field, (key, number) in _METADATA.items():
        with contextlib.suppress(ValueError):
            if (value := metadata(key)) is not None:
                found[field] = number(value)
    return msgspec.convert(found, Sampling)


class Sampler:
    """The chain of one sequence. It remembers what it chose, for penalties and for its random numbers."""

    def __init__(self, vocabulary_size: int, sampling: Sampling, prompt: Sequence[int], *, context: int) -> None:
        self._size = vocabulary_size
        params = lib.llama_sampler_chain_default_params()
        params.no_perf = True
        self._chain = lib.llama_sampler_chain_init(params)
        self._bias(sampling)
        self._penalise(sampling, prompt, context)
        if sampling.temperature <= 0:
            self._add(lib.llama_sampler_init_greedy())
            return
        if sampling.top_k > 0:
            self._add(lib.llama_sampler_init_top_k(sampling.top_k))
        if sampling.top_p < 1:
            self._add(lib.llama_sampler_init_top_p(sampling.top_p, 1))
        if sampling.min_p > 0:
            self._add(lib.llama_sampler_init_min_p(sampling.min_p, 1))
        self._add(lib.llama_sampler_init_temp(sampling.temperature))
        self._add(lib.llama_sampler_init_dist(_seed(sampling.seed)))

    def sample(self, context: int, index: int) -> int:
        """Choose from the logits at `index` of the batch that the context computed last."""
        return int(lib.llama_sampler_sample(self._chain, context, index))

    def close(self) -> None:
        """Free it; safe to call twice."""
        chain, self._chain = self._chain, None
        if chain:
            lib.llama_sampler_free(chain)

    def _add(self, sampler: int) -> None:
        lib.llama_sampler_chain_add(self._chain, sampler)

    def _bias(self, sampling: Sampling) -> None:
        biases = {token: bias if bias > -100 else _BAN for token, bias in sampling.logit_bias.items()}
        biases |= dict.fromkeys(sampling.banned, _BAN)
        if biases:
            array = (lib.llama_logit_bias * len(biases))(*biases.items())
            self._add(lib.llama_sampler_init_logit_bias(self._size, len(biases), array))

    def _penalise(self, sampling: Sampling, prompt: Sequence[int], context: int) -> None:
        if sampling.repeat_penalty != 1 and sampling.repeat_window:
            window = min(sampling.repeat_window, context)
            repeats = lib.llama_sampler_init_penalties(self._size, window, sampling.repeat_penalty, 0.0, 0.0)
            for token in prompt[-window:]:
                lib.llama_sampler_accept(repeats, token)
            self._add(repeats)
        if sampling.frequency_penalty or sampling.presence_penalty:
            frequency, presence = sampling.frequency_penalty, sampling.presence_penalty
            self._add(lib.llama_sampler_init_penalties(self._size, context, 1.0, frequency, presence))


def _seed(seed: int | None) -> int:
    """Return a seed as llama.cpp takes it: 32 bits, and not the one that means "random"."""
    if seed is None or seed == -1:
        return secrets.randbelow(_RANDOM)
    return seed % _RANDOM
