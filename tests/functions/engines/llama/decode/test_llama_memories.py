"""Models whose memory cannot be cut, or holds a window only, answer as if every prompt were their first.

Real llama.cpp, real architectures, random weights: no such model is small enough to come in a package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from ggufs.llamas import write
from ggufs.memories import recurrent, windowed

from functions.engines.llama.decode.decoder import Decoder
from functions.engines.llama.decode.generation import Finished, GenerationRequest, TextDelta
from functions.engines.llama.decode.sampling import Sampling
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.prefix_cache.slots import Slots

pytestmark = pytest.mark.anyio
Open = Callable[[bool], Decoder]


@pytest.fixture(scope="module", params=[windowed, recurrent], ids=["sliding window", "recurrent"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = write(tmp_path_factory.mktemp("gguf") / "tiny.gguf", *request.param())
    opened = Model.open(str(path), LlamaOptions(), Target())
    yield opened
    opened.close()


@pytest.fixture
def open_(model: Model) -> Iterator[Open]:
    made: list[tuple[Context, Decoder]] = []

    def open_one(reuse: bool) -> Decoder:
        context = Context.open(model, LlamaOptions(batch=32, ubatch=32), Target(), context=512, slots=3, threads=1)
        slots = Slots(3, context, reuse=reuse, shares=False, window=model.window)
        made.append((context, Decoder(context, model.vocabulary, slots, length=512)))
        return made[-1][1]

    yield open_one
    for context, decoder in made:
        decoder.close()
        context.close()


async def generate(decoder: Decoder, prompt: list[int], count: int = 1, limit: int = 30) -> tuple[list[str], Finished]:
    want = GenerationRequest(prompt=prompt, limit=limit, sampling=Sampling(temperature=0), endless=True)
    texts, last = [""] * count, None
    async for news in decoder.generate([want] * count):
        match news:
            case TextDelta(index=index, text=text):
                texts[index] += text
            case Finished():
                last = news
    assert last is not None
    return texts, last


def test_models_have_a_window_or_a_state(model: Model) -> None:
    assert (model.window == 16) != model.recurrent


async def test_prompts_that_share_a_beginning(model: Model, open_: Open) -> None:
    warm, cold = open_(True), open_(False)
    system = model.vocabulary.tokenize("You are a very small model, and that is all right. " * 2, special=False)
    for end in ("one", "another", "one", "one more", "", "one"):
        prompt = [*system, *model.vocabulary.tokenize(end, special=False)]
        assert (await generate(warm, prompt))[0] == (await generate(cold, prompt))[0]


async def test_continuing_a_prompt_reuses_all_of_it(model: Model, open_: Open) -> None:
    warm, cold = open_(True), open_(False)
    tokens = model.vocabulary.tokenize("A conversation that goes on and on and on and on. ", special=False)
    await generate(warm, tokens, limit=1)
    for _ in range(3):
        before = len(tokens)
        tokens = [*tokens, *model.vocabulary.tokenize("And then? ", special=False)]
        texts, end = await generate(warm, tokens, limit=1)
        assert texts == (await generate(cold, tokens, limit=1))[0]
        assert end.cached_tokens == before


async def test_a_shortened_prompt_is_recomputed(model: Model, open_: Open) -> None:
    warm, cold = open_(True), open_(False)
    tokens = model.vocabulary.tokenize("A long story that is told from its very beginning to its end. ", special=False)
    # Far more than the cells of a window, which llama.cpp rounds up: the beginning has been overwritten.
    await generate(warm, tokens * 7)
    texts, end = await generate(warm, tokens[:40])
    assert (texts, end.cached_tokens) == ((await generate(cold, tokens[:40]))[0], 0)


async def test_several_answers_to_one_prompt(model: Model, open_: Open) -> None:
    prompt = model.vocabulary.tokenize("Several answers to one and the same long question, please.", special=False)
    texts, _ = await generate(open_(True), prompt, 5)
    assert len(set(texts)) == 1 and texts == (await generate(open_(False), prompt, 5))[0]
