"""NaN and infinite logits fail the request that has them, and none computed beside or after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from ggufs import llamas

from functions.engines.llama.decode.decoder import Decoder
from functions.engines.llama.decode.generation import GenerationRequest, TextDelta
from functions.engines.llama.decode.sampling import Sampling
from functions.engines.llama.decoder_factory import build_decoder
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions
from host.errors import ColdframeError, InvalidRequest

pytestmark = pytest.mark.anyio
BAD = 258
"""A word whose embedding is not a number."""
GREEDY = Sampling(temperature=0)
Open = Callable[..., Decoder]


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    metadata, tensors = llamas.llama()
    tensors["token_embd.weight"][BAD] = np.nan
    # The embedding is the output again; one of its own keeps the NaN out of every other token's logits.
    tensors["output.weight"] = np.random.default_rng(7).standard_normal((llamas.WORDS, llamas.WIDTH)).astype(np.float32)
    path = llamas.write(tmp_path_factory.mktemp("gguf") / "m.gguf", metadata, tensors)
    model = Model.open(str(path), LlamaOptions(), Target())
    yield model
    model.close()


@pytest.fixture
def open_(poisoned: Model) -> Iterator[Open]:
    made: list[tuple[Context, Decoder]] = []

    def open_one(flash: str = "auto", slots: int = 3) -> Decoder:
        options = LlamaOptions(batch=32, ubatch=32, flash_attention=flash)  # type: ignore[arg-type]
        context = Context.open(poisoned, options, Target(), context=256, slots=slots, threads=1)
        made.append((context, build_decoder(poisoned, context, options, length=256, slots=slots)))
        return made[-1][1]

    yield open_one
    for context, decoder in made:
        decoder.close()
        context.close()


async def text(decoder: Decoder, prompt: list[int], limit: int = 12, sampling: Sampling = GREEDY) -> str:
    want = GenerationRequest(prompt=prompt, limit=limit, sampling=sampling, endless=True)
    return "".join([news.text async for news in decoder.generate([want]) if isinstance(news, TextDelta)])


@pytest.mark.parametrize("flash", ["on", "off"])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=5), Sampling(seed=5, top_k=0, top_p=1, min_p=0)])
async def test_only_the_request_with_nonfinite_logits_fails(open_: Open, flash: str, sampling: Sampling) -> None:
    prompts = [[10, 20, 30, 40, number] for number in range(4)]
    alone = [await text(open_(flash, 1), prompt, sampling=sampling) for prompt in prompts]
    decoder = open_(flash)
    asked = [text(decoder, prompt, sampling=sampling) for prompt in prompts]
    wrong = [text(decoder, [*prompt, BAD, 7], sampling=sampling) for prompt in prompts]
    answers = await asyncio.gather(*(one for pair in zip(asked, wrong, strict=True) for one in pair),
                                   return_exceptions=True)  # fmt: skip
    assert answers[::2] == alone
    for error in answers[1::2]:
        assert type(error) is ColdframeError and "not numbers" in error.message
    assert [await text(decoder, prompt, sampling=sampling) for prompt in prompts] == alone, "and it goes on"


@pytest.mark.parametrize(
    ("prompt", "words"),
    [([], "empty"), ([5, 260], "260: .* 0 to 259"), ([-1], "-1: .* 0 to 259"), ([1] * 256, "256 tokens.* holds 256")],
)
async def test_prompts_that_cannot_be_computed(open_: Open, prompt: list[int], words: str) -> None:
    decoder = open_()
    with pytest.raises(InvalidRequest, match=words):
        await text(decoder, prompt)
    assert await text(decoder, [1, 2, 3], 3)


async def test_as_many_tokens_as_fit(open_: Open) -> None:
    decoder = open_(slots=1)
    assert await text(decoder, [3] * 255, 1), "and one for the answer"
    assert await text(decoder, [4] * 200, 56)
