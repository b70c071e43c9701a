"""`deterministic: true`: the same seed gives the same text and bit-identical logits beside other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing

import pytest

from functions.engines.llama.decode.decoder import Decoder
from functions.engines.llama.decode.generation import GenerationRequest, TextDelta
from functions.engines.llama.decode.sampling import Sampling
from functions.engines.llama.decoder_factory import build_decoder
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
OPTIONS = LlamaOptions(deterministic=True, batch=64, ubatch=64)
Opened = tuple[Context, Decoder]


@pytest.fixture
def open_(model: Model) -> Iterator[Callable[[], Decoder]]:
    opened: list[Opened] = []

    def open_one() -> Decoder:
        context = Context.open(model, OPTIONS, Target(), context=512, slots=4, threads=2)
        opened.append((context, build_decoder(model, context, OPTIONS, length=512, slots=4)))
        return opened[-1][1]

    yield open_one
    for context, decoder in opened:
        decoder.close()
        context.close()


def want(model: Model, text: str, seed: int, limit: int = 32) -> GenerationRequest:
    prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    sampling = Sampling(temperature=1.5, top_k=0, top_p=1, min_p=0, seed=seed)
    return GenerationRequest(prompt=model.vocabulary.prompt(prompt), limit=limit, sampling=sampling, endless=True)


async def read(decoder: Decoder, one: GenerationRequest) -> str:
    async with aclosing(decoder.generate([one])) as news:
        return "".join([item.text async for item in news if isinstance(item, TextDelta)])


async def test_the_same_text_alone_and_beside_others(model: Model, open_: Callable[[], Decoder]) -> None:
    # At this temperature, and with every word allowed, a change of the last bit soon changes the text.
    asked = [want(model, f"Write about {what}. " * (1 + 12 * (seed % 2)), seed) for seed, what in
             enumerate(("the sea", "bread", "bees"))]  # fmt: skip
    decoder = open_()
    alone = [await read(decoder, one) for one in asked]
    crowded = await asyncio.gather(*(read(open_(), one) for one in asked[:1]), *(read(decoder, one) for one in asked))
    assert crowded[1:] == alone
    assert crowded[0] == alone[0], "in another context as well"


async def test_the_logits_are_the_same_to_the_last_bit(model: Model) -> None:
    prompt = model.vocabulary.prompt("The capital of France is the city of")

    def logits(beside: list[int]) -> bytes:
        context = Context.open(model, OPTIONS, Target(), context=512, slots=4, threads=2)
        try:
            for slot in beside:
                context.begin()
                context.add(slot, [7 + slot] * 50, 0, output=1)
                context.compute()
            context.begin()
            at = context.add(3, prompt, 0, output=1)
            context.compute()
            return context.logits(at).tobytes()
        finally:
            context.close()

    assert logits([]) == logits([0, 1, 2])
