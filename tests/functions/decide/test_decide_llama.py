"""Decisions by GGUF models: probabilities against llama-cpp-python run directly, and what must not change them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp
import loads
import numpy as np
import pytest
from decisions import numbers, request_of
from ggufs import llamas

from functions.decide.api import RefusalAnswer, ScoreAnswer
from functions.decide.llama import LlamaDecide
from host.errors import ContextLengthExceeded, InputTooLong, InvalidRequest, LoadFailed, ShuttingDown

pytestmark = pytest.mark.anyio
Open = Callable[..., LlamaDecide]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<a>{{ m.role[:1] }}:{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<a>a:{% endif %}"
)
TURNS = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns!') }}"
    "{% endif %}<a>{{ m.content | trim }}</s>{% endfor %}<b>"
)
"""One that knows no system message and insists on taking turns."""
EXACT = {"cache_type_k": "f32", "cache_type_v": "f32", "flash_attention": "off", "chat_template": TEMPLATE}
GREEN: dict[str, Any] = {
    "type": "score", "instructions": "How green?", "levels": [{"label": "red"}, {"label": "redder"}, {"label": "g"}],
}  # fmt: skip
KINDS = ["Is it green?", ("Which?", ["red", "redder", "green", True, "true"]), GREEN]
PROMPT = "Say.{answer}{instructions}="


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llamas.write(tmp_path_factory.mktemp("gguf") / "m.gguf", *llamas.llama())


@pytest.fixture
def exact(open_: Open, tiny: Path) -> LlamaDecide:
    prompts = {f"{kind}_prompt": PROMPT for kind in ("predicate", "choice", "score")}
    return open_(tiny, **EXACT, **prompts, system="S", temperature=4.0)


class Direct:
    """A model with bytes as its words, which needs no tokenizer of its own to be asked directly."""

    def __init__(self, path: Path) -> None:
        self.llama = llama_cpp.Llama(
            str(path),
            n_ctx=1024,
            logits_all=True,
            verbose=False,
            type_k=0,
            type_v=0,
            n_threads=1,
            n_threads_batch=1,
        )

    def ids(self, text: str) -> list[int]:
        special = {"<s>": 256, "</s>": 257, "<a>": 258}
        found: list[int] = []
        while text:
            name = next((name for name in special if text.startswith(name)), None)
            found += [special[name]] if name else list(text[0].encode())
            text = text[len(name) if name else 1 :]
        return [self.word(one) for one in found]

    def word(self, byte: int) -> int:
        return byte if byte > 255 else self.llama.tokenize(bytes([byte]), add_bos=False)[0]

    def probability(self, prompt: str, answer: str) -> float:
        before, ids = self.ids(prompt), self.ids(answer)
        self.llama.reset()
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.llama.ctx), True)
        self.llama.eval([*before, *ids])
        rows = self.llama.scores[: len(before) + len(ids)].astype(np.float64)
        rows = np.exp(rows - rows.max(1, keepdims=True))
        rows /= rows.sum(1, keepdims=True)
        return float(np.prod([rows[len(before) - 1 + at, one] for at, one in enumerate(ids)]))

    def shares(self, question: str, answers: list[list[str]], temperature: float) -> list[float]:
        prompt = f"<s><a>s:S</s><a>u:It is a green field.\n\nSay.</s><a>a:{question}="
        spelled = {text: self.probability(prompt, text) for texts in answers for text in texts}

        def alone(text: str) -> float:
            longer = [other for other in spelled if other != text and other.startswith(text)]
            return spelled[text] - sum(spelled[other] for other in longer)

        pooled = [sum(alone(text) for text in texts) ** (1 / temperature) for texts in answers]
        return [one / sum(pooled) for one in pooled]


def both(*texts: str) -> list[str]:
    return [space + text for text in texts for space in (" ", "")]


async def test_probabilities_are_those_of_the_model_asked_directly(exact: LlamaDecide, tiny: Path) -> None:
    found = await exact.answer(request_of("It is a green field.", KINDS))
    direct = Direct(tiny)
    wanted = [
        direct.shares("Is it green?", [both("Yes", "yes"), both("No", "no")], 4.0)[:1],
        direct.shares("Which?", [both(json) for json in ('"red"', '"redder"', '"green"', "true", '"true"')], 4.0),
        direct.shares("How green?", [both(label) for label in ("red", "redder", "g")], 4.0),
    ]
    for answer, probabilities in zip(found.answers, wanted, strict=True):
        assert numbers(answer) == pytest.approx(probabilities, abs=1e-4)
    scored = found.answers[2]
    assert isinstance(scored, ScoreAnswer)
    assert scored.score == pytest.approx(wanted[2][1] + 2 * wanted[2][2], abs=1e-4)


async def test_company_and_order_change_nothing(exact: LlamaDecide) -> None:
    many = [*KINDS, *(f"Is it number {at}?" for at in range(100)), ("Which?", [f"choice {at}" for at in range(60)])]
    whole = (await exact.answer(request_of("A field.", many))).answers
    turned = (await exact.answer(request_of("A field.", many[::-1]))).answers[::-1]
    for one, other in zip(whole, turned, strict=True):
        assert numbers(one) == pytest.approx(numbers(other), abs=1e-5)
    for at in (0, 1, 2, 50, 103):
        alone = await exact.answer(request_of("A field.", many[at : at + 1]))
        assert numbers(alone.answers[0]) == pytest.approx(numbers(whole[at]), abs=1e-5)


async def test_usage_counts_the_input_once_and_what_was_kept(exact: LlamaDecide) -> None:
    first = await exact.answer(request_of("A brown field.", ["Is it 1?"]))
    again = await exact.answer(request_of("A brown field.", ["Is it 1?", "Is it 2?"]))
    frame = len("_S:S_") + len("_u:A brown field.\n\nSay._") + len("_a:") + 1
    assert first.usage.prompt_tokens == frame + len("Is it 1?=")
    assert again.usage.prompt_tokens == frame + len("Is it 1?=") + len("2?=")
    assert first.usage.completion_tokens == 0
    assert again.usage.cached_tokens == frame
    assert (first.cache_write_tokens + first.usage.cached_tokens, again.cache_write_tokens) == (frame, 0)


async def test_names_come_back(exact: LlamaDecide) -> None:
    asked = [{"type": "predicate", "instructions": "x", "name": "one"}, "Is it?"]
    found = await exact.answer(request_of("x", asked))
    assert [answer.name for answer in found.answers] == ["one", None]


async def test_text_is_never_read_as_special_tokens(open_: Open, tiny: Path) -> None:
    """An input that is written like the template's own marks stays one message, of plain letters."""
    model = open_(tiny, **EXACT, system="S")
    plain, marked = [
        (await model.answer(request_of(text, ["Is it?"]))).usage.prompt_tokens for text in ("a-s-", "a</s>")
    ]
    assert marked == plain + 1
    asked = [{"type": "choice", "instructions": "<a>", "choices": [{"value": "</s>"}, {"value": "b"}]}]
    choice = await model.answer(request_of("x", asked))
    assert not isinstance(choice.answers[0], RefusalAnswer)


async def test_an_input_that_is_too_long_is_told_with_its_numbers(open_: Open, tiny: Path) -> None:
    model = open_(tiny, context=256, **EXACT)
    with pytest.raises(ContextLengthExceeded) as told:
        await model.answer(request_of("x" * 300, ["Is it?"]))
    assert told.value.param == "input"
    assert told.value.extra["n_ctx"] == 256 < told.value.extra["n_prompt_tokens"]
    with pytest.raises(ContextLengthExceeded) as told:
        await model.answer(request_of("x", ["Is it?", "x" * 300]))
    assert told.value.param == "questions[1]"


async def test_answers_that_are_all_improbable_are_refused(open_: Open, tiny: Path) -> None:
    model = open_(tiny, **EXACT, min_mass=0.01)
    unlikely = ("Which?", ["qqqqqqqqqqqq", "zzzzzzzzzzzz"])
    found = await model.answer(request_of("x", [{**GREEN, "name": "n"}, unlikely]))
    assert found.answers[1] == RefusalAnswer(name=None)


async def test_what_is_no_number_refuses_its_question_only(open_: Open, tmp_path: Path) -> None:
    metadata, tensors = llamas.llama()
    words = metadata["tokenizer.ggml.tokens"]
    tensors["token_embd.weight"][words.index("#")] = np.nan
    tensors["output.weight"] = np.random.default_rng(7).standard_normal((llamas.WORDS, llamas.WIDTH)).astype(np.float32)
    model = open_(llamas.write(tmp_path / "poisoned.gguf", metadata, tensors), **EXACT)
    found = await model.answer(request_of("x", ["Is it?", "Is # it?", ("Which?", ["a", "b"])]))
    assert [isinstance(answer, RefusalAnswer) for answer in found.answers] == [False, True, False]


async def test_a_prior_is_what_an_empty_input_gives(open_: Open, tiny: Path) -> None:
    with_prior, without = open_(tiny, **EXACT, prior=True), open_(tiny, **EXACT)
    asked = [("Which?", ["red", "green", "blue"]), "Is it?"]
    for _ in range(2):
        found = await with_prior.answer(request_of("It is a green field.", asked))
        said = await without.answer(request_of("It is a green field.", asked))
        empty = await without.answer(request_of([{"role": "user", "content": ""}], asked))
        weights = [one / other for one, other in zip(numbers(said.answers[0]), numbers(empty.answers[0]), strict=True)]
        assert numbers(found.answers[0]) == pytest.approx([one / sum(weights) for one in weights], abs=1e-4)
        assert numbers(found.answers[1]) == pytest.approx(numbers(said.answers[1]), abs=1e-5)


async def test_a_prior_is_computed_once_whoever_leaves_meanwhile(
    open_: Open, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = open_(tiny, **EXACT, prior=True)
    known, fresh = ("Which?", ["one", "two"]), ("Which?", ["three", "four"])
    await model.answer(request_of("A field.", [known]))
    score, computed = model._model.score, asyncio.Event()
    calls: list[int] = []

    async def watched(prefix: Any, branches: Any) -> Any:
        calls.append(len(branches))
        if len(calls) == 2:
            computed.set()
            await asyncio.sleep(60)
        return await score(prefix, branches)

    monkeypatch.setattr(model._model, "score", watched)
    leaving = asyncio.create_task(model.answer(request_of("A lake.", [known, fresh])))
    await computed.wait()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await model.answer(request_of("A hill.", [known]))
    assert calls == [2, 1, 1]


async def test_nothing_is_tokenised_for_who_left_nor_by_a_model_that_is_closed(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load = loads.given("decide", tiny, dict(EXACT), engine="llama", context=1024, device="cpu")
    model = LlamaDecide.load(load, LlamaDecide.plan(load), loads.ignore)
    words, done, closed = model._tokenizer._vocabulary, 0, False
    tokenize, began = words.tokenize, asyncio.Event()
    loop = asyncio.get_running_loop()

    def counted(text: str, **more: Any) -> list[int]:
        nonlocal done
        assert not closed
        done += 1
        loop.call_soon_threadsafe(began.set)
        return tokenize(text, **more)

    monkeypatch.setattr(words, "tokenize", counted)
    asked = [("Which?", [f"{at} of {number}" for at in range(200)]) for number in range(400)]
    leaving = asyncio.create_task(model.answer(request_of("A field.", asked)))
    await began.wait()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    waiting = asyncio.create_task(model.answer(request_of("A lake.", asked)))
    await asyncio.sleep(0.05)
    await asyncio.to_thread(model.close)
    closed = True
    with pytest.raises(ShuttingDown):
        await waiting
    with pytest.raises(ShuttingDown):
        await model.answer(request_of("A lake.", ["Is it?"]))
    assert done < 2 * 400 * 400 / 4


async def test_a_question_of_many_choices_ends_in_its_midst(open_: Open, tiny: Path) -> None:
    """Else whoever closes the model waits for all of them."""
    tokenizer, left = open_(tiny, **EXACT)._tokenizer, 100

    def check() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise ShuttingDown("enough")

    with pytest.raises(ShuttingDown, match="enough"):
        tokenizer.tokenize(request_of("A field.", [("Which?", [f"choice {at}" for at in range(255)])]), check)


@pytest.mark.parametrize("template", [TEMPLATE, TURNS])
async def test_conversations_of_all_kinds_reach_the_model(template: str, open_: Open, tiny: Path) -> None:
    model = open_(tiny, **(EXACT | {"chat_template": template}))
    items = [
        {"role": "assistant", "content": "Hello."},
        {"role": "system", "content": "Rules."},
        {"role": "user", "content": "Weather?"},
        {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "rain"},
    ]
    found = await model.answer(request_of(items, ["Is it?"]))
    assert 0 < numbers(found.answers[0])[0] < 1
    letters = sum(
        len(text) for text in ("Hello.", "Rules.", "Weather?", "Call of weather: {}", "Result of weather: rain")
    )
    assert found.usage.prompt_tokens > letters


async def test_a_template_that_drops_the_question_is_told(open_: Open, tiny: Path) -> None:
    model = open_(tiny, **(EXACT | {"chat_template": "{{ messages[0].content }}<b>"}))
    with pytest.raises(InvalidRequest, match="does not show the last message"):
        await model.answer(request_of([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], ["x"]))


async def test_a_template_that_refuses_the_input_is_told(open_: Open, tiny: Path) -> None:
    model = open_(tiny, **(EXACT | {"chat_template": "{{ raise_exception('never!') }}"}))
    with pytest.raises(InvalidRequest, match="refuses these messages: never!") as told:
        await model.answer(request_of("a", ["x"]))
    assert told.value.param == "input"


@pytest.mark.parametrize(
    ("options", "words"),
    [({}, "no chat template"), ({"chat_template": "{% if %}"}, "not valid Jinja")],
)
def test_models_that_cannot_be_asked_are_not_loaded(
    options: dict[str, Any], words: str, open_: Open, tiny: Path
) -> None:
    with pytest.raises(LoadFailed, match=words):
        open_(tiny, **options)


async def test_requests_side_by_side_get_their_own_answers(exact: LlamaDecide) -> None:
    asked = [request_of(f"Field {at}.", [f"Is it {at}?", f"Is it {at + 1}?"]) for at in range(12)]
    together = await asyncio.gather(*(exact.answer(one) for one in asked))
    for one, found in zip(asked, together, strict=True):
        alone = await exact.answer(one)
        assert [numbers(answer) for answer in alone.answers] == [
            pytest.approx(numbers(answer), abs=1e-5) for answer in found.answers
        ]


async def test_hundred_questions_cost_few_tokens_more_than_one(open_: Open) -> None:
    """What bounds their time: what all say before they differ is read once, and nothing is said behind them."""
    model = open_()
    one = await model.answer(request_of("A long day. " * 120, ["Is item 0 mentioned?"]))
    many = await model.answer(request_of("A long night. " * 120, [f"Is item {at} mentioned?" for at in range(100)]))
    assert many.usage.prompt_tokens < 2 * one.usage.prompt_tokens


@pytest.mark.parametrize(
    ("text", "questions", "param"),
    [("a" * 5_000_000, ["Is it?"], "input"), ("a", ["Is it?", ("Which?", ["a", "b" * 5_000_000])], "questions[1]")],
)
async def test_megabytes_are_refused_before_they_are_tokenised(
    exact: LlamaDecide, text: str, questions: list[Any], param: str
) -> None:
    with pytest.raises(InputTooLong, match="characters, the model takes") as told:
        await exact.answer(request_of(text, questions))
    assert told.value.param == param
