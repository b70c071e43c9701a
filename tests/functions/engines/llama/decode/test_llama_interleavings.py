"""Whatever comes, in whatever order, beside whatever else: every greedy answer is the one that is given alone.

Tiny random models whose numbers are 32 bits wide, so that the order of sums decides nothing: one with full attention,
one with a sliding window, one with a recurrent state. Caches are full most of the time, and requests are given up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest
import walks
from ggufs import llamas
from ggufs.memories import recurrent, windowed

from functions.engines.llama.decode.decoder import Decoder
from functions.engines.llama.decode.generation import Finished, Generation, GenerationRequest, TextDelta
from functions.engines.llama.decode.sampling import Sampling
from functions.engines.llama.decoder_factory import build_decoder
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions

pytestmark = pytest.mark.anyio
LENGTH, SLOTS = 256, 4
PLAIN = {"cache_type_k": "f32", "cache_type_v": "f32", "flash_attention": "off"}
BEGINNINGS = ("You are a tiny model. " * 3, "You are a tiny model. But " * 2, "Once upon a time there was a lake. ", "")
ENDS = ("Go on!", "And then?", "Why", "?", "Sing a song of sixpence, a pocket full of rye. " * 2, "x")

Make = Callable[..., Decoder]


@pytest.fixture(scope="module", params=[llamas.llama, windowed, recurrent], ids=["full", "window", "recurrent"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = llamas.write(tmp_path_factory.mktemp("gguf") / "tiny.gguf", *request.param())
    opened = Model.open(str(path), LlamaOptions(), Target())
    yield opened
    opened.close()


@pytest.fixture
def make(model: Model) -> Iterator[Make]:
    made: list[tuple[Context, Decoder]] = []

    def make_(cells: int = LENGTH * SLOTS, slots: int = SLOTS, host_cache: int = 0, **more: Any) -> Decoder:
        options = LlamaOptions(**(PLAIN | {"batch": 32, "ubatch": 32} | more))
        context = Context.open(model, options, Target(), context=cells // slots, slots=slots, threads=1)
        decoder = build_decoder(model, context, options, length=LENGTH, slots=slots, host_cache=host_cache)
        made.append((context, decoder))
        return decoder

    yield make_
    for context, decoder in made:
        decoder.close()
        context.close()


def wants(model: Model, seed: int, count: int) -> list[GenerationRequest]:
    dice = random.Random(seed)
    found = []
    for _ in range(count):
        text = dice.choice(BEGINNINGS) + dice.choice(ENDS)
        prompt = model.vocabulary.tokenize(text, special=False)
        found.append(
            GenerationRequest(prompt=prompt, limit=dice.randint(1, 24), sampling=Sampling(temperature=0), endless=True)
        )
    return found


async def read(decoder: Decoder, want: GenerationRequest, most: int | None = None) -> str | None:
    """Return the text; None when it was given up after `most` pieces."""
    text, pieces = "", 0
    async with aclosing(decoder.generate([want])) as news:
        async for one in news:
            match one:
                case TextDelta(text=more):
                    text += more
                    pieces += 1
                    if pieces == most:
                        return None
                case Finished():
                    return text
    return text


async def alone(make: Make, asked: list[GenerationRequest]) -> list[str | None]:
    decoder = make(slots=1, cells=LENGTH, prefix_reuse=False)
    return [await read(decoder, one) for one in asked]


async def crowd(decoder: Decoder, asked: list[GenerationRequest], seed: int) -> list[str | None]:
    dice = random.Random(seed)

    async def one(want: GenerationRequest, delay: float, most: int | None) -> str | None:
        await asyncio.sleep(delay)
        return await read(decoder, want, most)

    plans = [(dice.random() * 0.01, dice.randint(1, 9) if dice.random() < 0.25 else None) for _ in asked]
    async with asyncio.timeout(300):
        texts = await asyncio.gather(*(one(want, *plan) for want, plan in zip(asked, plans, strict=True)))
        while decoder.counts() != (0, 0):
            await asyncio.sleep(0.001)
    return texts


def agree(texts: list[str | None], expected: list[str | None]) -> None:
    assert len(texts) == len(expected)
    for text, right in zip(texts, expected, strict=True):
        assert text is None or text == right
    assert any(text is not None for text in texts)


@pytest.mark.soak
@pytest.mark.parametrize("seed", walks.seeds(4, 24))
async def test_a_random_schedule(model: Model, make: Make, seed: int) -> None:
    asked = wants(model, seed, 14)
    agree(await crowd(make(), asked, seed), await alone(make, asked))


@pytest.mark.soak
@pytest.mark.parametrize("seed", walks.seeds(2, 8))
@pytest.mark.parametrize("options", [{"chunk": 5}, {"prefix_tokens": 40}, {"prefix_reuse": False}, {"batch": 6}])
async def test_any_options(model: Model, make: Make, seed: int, options: dict[str, Any]) -> None:
    asked = wants(model, 50 + seed, 10)
    agree(await crowd(make(**options), asked, seed), await alone(make, asked))


@pytest.mark.soak
@pytest.mark.parametrize("seed", walks.seeds(3, 16))
async def test_prefixes_are_restored_from_the_host_cache(model: Model, make: Make, seed: int) -> None:
    asked = wants(model, 100 + seed, 16)
    decoder = make(host_cache=1 << 20)
    expected = await alone(make, asked)
    for start in range(0, len(asked), 4):  # waves, between which everything is idle
        agree(await crowd(decoder, asked[start : start + 4], seed), expected[start : start + 4])


@pytest.mark.soak
@pytest.mark.parametrize("seed", walks.seeds(4, 24))
async def test_a_cache_that_is_always_full(model: Model, make: Make, seed: int) -> None:
    if model.recurrent:
        pytest.skip("a recurrent state takes the same room however long the text is")
    asked = wants(model, 200 + seed, 12)
    # llama.cpp rounds up to 256 cells: two of these requests at most, and any of them alone.
    agree(await crowd(make(cells=256), asked, seed), await alone(make, asked))


@pytest.mark.soak
@pytest.mark.parametrize("seed", walks.seeds(2, 12))
async def test_one_at_a_time(model: Model, make: Make, seed: int) -> None:
    asked = wants(model, 300 + seed, 8)
    agree(await crowd(make(deterministic=True), asked, seed), await alone(make, asked))


@pytest.mark.soak
@pytest.mark.parametrize("seed", walks.seeds(3, 16))
async def test_speculation_changes_nothing(model: Model, make: Make, seed: int) -> None:
    if model.recurrent or model.window:
        pytest.skip("refused at load: such memories cannot be cut")
    asked = wants(model, 400 + seed, 10)
    context_options = {"speculation": "prompt_lookup", "draft_tokens": 4}
    agree(await crowd(make(**context_options), asked, seed), await alone(make, asked))


async def test_a_request_with_many_answers_does_not_block_others(model: Model, make: Make) -> None:
    decoder = make(slots=2, cells=2 * LENGTH)
    many, one = wants(model, 1, 2)
    order: list[str] = []

    async def collect(name: str, generation: Generation) -> None:
        async with aclosing(generation) as events:
            async for item in events:
                if isinstance(item, Finished):
                    order.append(name)

    # Both are asked before the event loop has another turn, so that no answer is complete before the second comes.
    generations = {"many": decoder.generate([many] * 12), "one": decoder.generate([one])}
    await asyncio.gather(*(collect(*item) for item in generations.items()))
    assert len(order) == 13
    assert order.index("one") < 10, "in the order of asking it would be among the last two"
