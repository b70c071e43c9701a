"""The decode thread against a real model: full caches, failing batches, unloading, and isolation of requests."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from functions.engines.llama.decode.decoder import Decoder
from functions.engines.llama.decode.generation import Finished, Generation, GenerationRequest, TextDelta
from functions.engines.llama.decode.sampling import Sampler, Sampling, recommended
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.model import Model
from host.errors import ColdframeError, ShuttingDown

pytestmark = pytest.mark.anyio
GREEDY = Sampling(temperature=0)


def want(model: Model, text: str, limit: int = 16, **more: Any) -> GenerationRequest:
    prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    return GenerationRequest(prompt=model.vocabulary.prompt(prompt), limit=limit, sampling=GREEDY, **more)


async def read(generation: Generation) -> tuple[str, Finished]:
    text, end = "", None
    async with aclosing(generation):
        async for news in generation:
            match news:
                case TextDelta(text=more):
                    text += more
                case Finished():
                    end = news
    assert end is not None
    return text, end


@pytest.mark.slow
async def test_a_full_cache_delays_but_changes_nothing(model: Model, open_decoder: Any) -> None:
    wants = [
        want(model, f"What is the capital of {place}?", 90, endless=True) for place in ("France", "Italy", "Spain")
    ]
    alone = [await read(open_decoder(slots=1, length=256).generate([one])) for one in wants]
    # Three sequences of more than 100 tokens do not fit into 256 cells.
    crowded = open_decoder(slots=3, length=256, cells=256)
    texts = await asyncio.gather(*[read(crowded.generate([one])) for one in wants])
    assert [end.completion_tokens for _, end in texts] == [90, 90, 90]
    assert [text[:20] for text, _ in texts] == [text[:20] for text, _ in alone]
    assert crowded.counts() == (0, 0)


async def test_a_request_larger_than_the_cache_fails_alone(model: Model, open_decoder: Any) -> None:
    decoder = open_decoder(slots=2, length=1024, cells=256)
    with pytest.raises(ColdframeError, match="no room"):
        await read(decoder.generate([want(model, "word " * 300)]))
    text, _ = await read(decoder.generate([want(model, "What is the capital of France?")]))
    assert "Paris" in text


async def test_only_the_offending_request_of_a_failed_batch_fails(
    model: Model, open_decoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # llama.cpp cannot be made to fail on request: a poisoned token stands for the batch it cannot compute.
    poison = model.vocabulary.tokenize(" zebra", special=False)[0]
    compute = Context.compute

    def failing(self: Context) -> int:
        held = self._batch._tokens[: self._batch.count]
        return -3 if poison in held else compute(self)

    monkeypatch.setattr(Context, "compute", failing)
    decoder = open_decoder(slots=4)
    places = ("France", "Italy", "Germany")
    asked = [want(model, f"What is the capital of {place}?") for place in places] + [want(model, "a zebra")]
    answers = await asyncio.gather(*[read(decoder.generate([one])) for one in asked], return_exceptions=True)
    assert isinstance(answers[3], ColdframeError) and "-3" in str(answers[3])
    assert [isinstance(answer, tuple) for answer in answers[:3]] == [True] * 3
    assert "Paris" in answers[0][0]  # type: ignore[index]
    assert decoder.counts() == (0, 0)


async def test_an_exception_in_a_step_fails_all_requests_and_the_thread_continues(
    model: Model, open_decoder: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    decoder = open_decoder()
    with monkeypatch.context() as patch:
        patch.setattr(Sampler, "sample", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await read(decoder.generate([want(model, "hi")]))
    assert "Paris" in (await read(decoder.generate([want(model, "What is the capital of France?")])))[0]


async def test_unloading_fails_requests_in_progress(model: Model, open_decoder: Any) -> None:
    decoder: Decoder = open_decoder(slots=1)
    reads = [asyncio.create_task(read(decoder.generate([want(model, "hi", 400, endless=True)]))) for _ in range(3)]
    while decoder.counts()[0] == 0:
        await asyncio.sleep(0.001)
    await asyncio.to_thread(decoder.close)
    for outcome in await asyncio.gather(*reads, return_exceptions=True):
        assert isinstance(outcome, ShuttingDown)
    with pytest.raises(ShuttingDown):
        decoder.generate([want(model, "hi")])


async def test_one_prompt_for_several_answers_is_computed_once(model: Model, open_decoder: Any) -> None:
    decoder = open_decoder()
    one = want(model, "Say something about the long and winding road that leads to your door, please. " * 3, 4)
    ends = [news async for news in decoder.generate([one] * 4) if isinstance(news, Finished)]
    cached = sorted(end.cached_tokens for end in ends)
    assert cached[0] == 0 and all(count >= len(one.prompt) - 40 for count in cached[1:])


@pytest.mark.slow
async def test_a_long_batch_is_aborted_at_once(model: Model, open_decoder: Any) -> None:
    decoder = open_decoder(slots=1, length=2048, batch=1024)
    long = want(model, "sing a song of sixpence " * 100, 3)
    clock = asyncio.get_running_loop().time
    began = clock()
    await read(decoder.generate([long]))
    whole = clock() - began
    quickest = whole
    for attempt in range(1, 5):  # the best of several: another program may have the processor in the moment
        # Another beginning, so that nothing of the prompts before can be used again.
        other = GenerationRequest(prompt=[*decoder_prompt(model)[:attempt], *long.prompt], limit=3, sampling=GREEDY)
        task = asyncio.create_task(read(decoder.generate([other])))
        await asyncio.sleep(whole / 5)
        if decoder.counts() == (1, 0):
            began = clock()
            task.cancel()
            while decoder.counts() != (0, 0):
                await asyncio.sleep(0.001)
            quickest = min(quickest, clock() - began)
        await asyncio.gather(task, return_exceptions=True)
        if quickest < whole / 4:
            break
    assert quickest < whole / 4
    text, _ = await read(decoder.generate([want(model, "What is the capital of France?")]))
    assert "Paris" in text


def decoder_prompt(model: Model) -> list[int]:
    return model.vocabulary.tokenize("Once upon a time", special=False)


async def test_a_closed_event_loop(model: Model, open_decoder: Any) -> None:
    decoder: Decoder = open_decoder(slots=1)

    def in_another_loop() -> None:
        async def begin() -> None:
            decoder.generate([want(model, "hi", 300, endless=True)])

        asyncio.run(begin())

    await asyncio.to_thread(in_another_loop)
    async with asyncio.timeout(60):
        text, _ = await read(decoder.generate([want(model, "What is the capital of France?")]))
    assert "Paris" in text


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, Sampling()),
        ({"general.sampling.temp": "0.6", "general.sampling.top_k": "20"}, Sampling(temperature=0.6, top_k=20)),
        ({"general.sampling.temp": "warm"}, Sampling()),
    ],
)
async def test_defaults_come_from_the_file(metadata: dict[str, str], expected: Sampling) -> None:
    assert recommended(metadata.get) == expected
