"""What the real SmolLM2 answers: right text, exact counts, exact ends."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from functions.chat.api import ChatRequest, Text
from functions.chat.llama import LlamaChat
from host.errors import ContextLengthExceeded, InvalidRequest

pytestmark = pytest.mark.anyio

CAPITAL = "What is the capital of France?"
STORY = "Tell me a story about a fox."
REPEAT = "Repeat after me: one two three four five six seven eight"
SYSTEM = {"role": "system", "content": "Answer in English."}


async def test_paris(ask: Any) -> None:
    answer = await ask(CAPITAL)
    assert answer.text == "The capital of France is Paris."
    assert answer.reasons == ["stop"]


async def test_counts_are_the_tokenizers(ask: Any, chat: LlamaChat) -> None:
    answer = await ask("Name a colour, and nothing else but that colour.")
    words = chat.model.vocabulary
    prompt = (
        "<|im_start|>system\nAnswer in English.<|im_end|>\n"
        "<|im_start|>user\nName a colour, and nothing else but that colour.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert answer.prompt == len(words.tokenize(prompt, special=True))
    assert answer.completion == len(words.tokenize(answer.text, special=True)) + 1, "the end of turn counts as well"


async def test_the_second_call_computes_one_token_of_the_prompt(ask: Any) -> None:
    system = {"role": "system", "content": "You repeat what you are told, word by word. " * 8}
    first = await ask([system, {"role": "user", "content": REPEAT}], max_tokens=12)
    again = await ask([system, {"role": "user", "content": REPEAT}], max_tokens=12)
    other = await ask([system, {"role": "user", "content": "And who are you?"}], max_tokens=12)
    assert first.cached < 10 and again.cached == again.prompt - 1
    assert again.text == first.text
    assert 80 < other.cached < other.prompt - 1, "the system prompt is shared"


async def test_reuse_gives_the_text_of_a_fresh_instance(ask: Any, loader: Any) -> None:
    fresh = loader({"prefix_reuse": False, "batch": 64}, slots=1)
    for question in (CAPITAL, "What is the capital of Germany?", REPEAT, CAPITAL):
        warm, cold = await ask(question), await ask(question, fresh)
        assert warm.text == cold.text and cold.cached == 0 and cold.prompt == warm.prompt


@pytest.mark.parametrize("limit", [1, 2, 7])
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_limits(ask: Any, limit: int, field: str) -> None:
    answer = await ask(STORY, **{field: limit})
    assert (answer.completion, answer.reasons) == (limit, ["length"])


async def test_the_newer_limit_wins(ask: Any) -> None:
    assert (await ask(STORY, max_tokens=9, max_completion_tokens=3)).completion == 3


async def test_an_end_at_the_limit_is_a_stop(ask: Any) -> None:
    whole = await ask(CAPITAL)
    assert (await ask(CAPITAL, max_tokens=whole.completion)).reasons == ["stop"]
    assert (await ask(CAPITAL, max_tokens=whole.completion - 1)).reasons == ["length"]


@pytest.mark.parametrize("stop", ["France is", "e is P", "capital of Fra", ".", "The", " Paris"])
async def test_stops_across_tokens(ask: Any, stop: str) -> None:
    whole = (await ask(CAPITAL)).text
    answer = await ask(CAPITAL, stop=stop)
    assert answer.text == whole[: whole.index(stop)] and answer.reasons == ["stop"]


async def test_the_first_of_several_stops(ask: Any) -> None:
    answer = await ask(CAPITAL, stop=["Paris", "capital", "zzz", "nope"])
    assert answer.text == "The "


async def test_what_only_began_like_a_stop_is_shown(ask: Any) -> None:
    answer = await ask(CAPITAL, stop=["Paris is nice"])
    assert answer.text == "The capital of France is Paris."
    assert (await ask(CAPITAL, stop=["is Paris?!"], max_tokens=6)).text == "The capital of France is Paris"


async def test_the_same_seed_the_same_text(ask: Any) -> None:
    one, same, other = [(await ask(STORY, temperature=1.2, seed=seed, max_tokens=24)).text for seed in (7, 7, 8)]
    assert one == same != other


async def test_without_a_seed_texts_differ(ask: Any) -> None:
    texts = {(await ask(STORY, temperature=1.5, max_tokens=24)).text for _ in range(3)}
    assert len(texts) > 1


async def test_several_answers(ask: Any) -> None:
    answer = await ask(STORY, n=3, temperature=1.3, seed=5, max_tokens=10)
    assert len(set(answer.texts)) == 3 and answer.reasons == ["length"] * 3
    assert answer.completion == 30, "all answers count, the prompt once"
    alone = await ask(STORY, temperature=1.3, seed=5, max_tokens=10)
    assert answer.prompt == alone.prompt and answer.texts[0] == alone.text


async def test_more_answers_than_slots(ask: Any) -> None:
    answer = await ask(CAPITAL, n=9)
    assert set(answer.texts) == {"The capital of France is Paris."}


async def test_banned_tokens_do_not_come(ask: Any, chat: LlamaChat) -> None:
    token = chat.model.vocabulary.tokenize(" Paris", special=False)
    assert len(token) == 1
    assert "Paris" in (await ask(CAPITAL)).text
    assert " Paris" not in (await ask(CAPITAL, logit_bias={str(token[0]): -100}, max_tokens=20)).text


async def test_a_bias_can_force_a_token(ask: Any, chat: LlamaChat) -> None:
    [token] = chat.model.vocabulary.tokenize(" Paris", special=False)
    assert (await ask(STORY, logit_bias={str(token): 100}, max_tokens=3)).text == " Paris Paris Paris"


async def test_a_token_that_the_vocabulary_lacks(ask: Any) -> None:
    with pytest.raises(InvalidRequest, match="tokens are 0 to 49151") as raised:
        await ask(CAPITAL, logit_bias={"49152": 1})
    assert raised.value.param == "logit_bias"


@pytest.mark.parametrize(
    "penalty", [{"frequency_penalty": 2}, {"presence_penalty": 2}, {"repeat_penalty": 1.3}, {"repetition_penalty": 1.3}]
)
async def test_penalties_change_what_repeats(ask: Any, penalty: dict[str, float]) -> None:
    plain = (await ask(STORY, max_tokens=40)).text
    assert (await ask(STORY, max_tokens=40, **penalty)).text != plain


async def test_ignoring_the_end_goes_on_to_the_limit(ask: Any) -> None:
    answer = await ask(CAPITAL, ignore_eos=True, max_tokens=20)
    assert (answer.completion, answer.reasons) == (20, ["length"])
    assert answer.text.startswith("The capital of France is Paris.") and "<|im_end|>" not in answer.text


async def test_going_on_with_a_message(ask: Any) -> None:
    messages = [SYSTEM, {"role": "user", "content": CAPITAL}, {"role": "assistant", "content": "The capital of"}]
    assert (await ask(messages, continue_final_message=True)).text == " France is Paris."


async def test_content_parts_are_text(ask: Any) -> None:
    parts = [{"type": "text", "text": "What is the capital"}, {"type": "text", "text": "of France?"}]
    answer = await ask([SYSTEM, {"role": "user", "content": parts}], max_tokens=4)
    joined = await ask("What is the capital\nof France?", max_tokens=4)
    assert (answer.text, answer.prompt) == (joined.text, joined.prompt)


async def test_developer_is_system_here(ask: Any) -> None:
    for role in ("system", "developer"):
        answer = await ask([{**SYSTEM, "role": role}, {"role": "user", "content": CAPITAL}])
        assert answer.text == "The capital of France is Paris."


async def test_too_long_a_prompt_says_the_numbers(ask: Any) -> None:
    with pytest.raises(ContextLengthExceeded) as raised:
        await ask("word " * 600)
    numbers = raised.value.extra
    assert numbers["n_ctx"] == 512 and numbers["n_prompt_tokens"] > 600
    assert str(numbers["n_prompt_tokens"]) in raised.value.message


async def test_a_very_long_prompt_is_counted_off_the_loop(ask: Any) -> None:
    with pytest.raises(ContextLengthExceeded) as raised:
        await ask("word " * 30_000)
    assert raised.value.extra["n_prompt_tokens"] > 30_000


@pytest.mark.slow
async def test_the_context_is_used_to_its_last_token(ask: Any, loader: Any, chat: LlamaChat) -> None:
    small = loader(context=256, slots=1)
    answer = await ask(CAPITAL, small, ignore_eos=True)
    assert (answer.prompt + answer.completion, answer.reasons) == (256, ["length"])
    fits = await ask("a " * (255 - answer.prompt + 6), small, max_tokens=5)
    assert fits.prompt < 256 and fits.completion == min(5, 256 - fits.prompt)


async def test_special_tokens_are_not_shown(ask: Any, chat: LlamaChat) -> None:
    [start] = chat.model.vocabulary.tokenize("<|im_start|>", special=True)
    answer = await ask(CAPITAL, logit_bias={str(start): 100}, max_tokens=4)
    assert (answer.text, answer.completion) == ("", 4)


async def test_emoji_are_never_split(ask: Any, chat: LlamaChat) -> None:
    tokens = chat.model.vocabulary.tokenize("🦊", special=False)
    assert len(tokens) > 1, "one character of several tokens"
    answer = await ask([{"role": "user", "content": "Repeat: 🦊🦊🦊🦊🦊🦊"}], max_tokens=30)
    assert "�" not in "".join(event.text for event in answer.events if isinstance(event, Text))[:-1]


# The best token is ahead of the second best by 0.5 and more all along: company in a batch moves logits by about 0.1.
PROMPTS = [CAPITAL, REPEAT, "What is the capital of Germany?", "Who wrote Hamlet?"]


async def test_greedy_answers_do_not_depend_on_the_company(ask: Any) -> None:
    alone = {prompt: (await ask(prompt, max_tokens=12)).text for prompt in PROMPTS}
    dice = random.Random(3)

    async def later(prompt: str) -> tuple[str, str]:
        await asyncio.sleep(dice.random() * 0.4)
        return prompt, (await ask(prompt, max_tokens=12)).text

    together = await asyncio.gather(*[later(dice.choice(PROMPTS)) for _ in range(18)])
    assert [text for _, text in together] == [alone[prompt] for prompt, _ in together]


async def quiet(chat: LlamaChat) -> None:
    """Wait until nothing computes and nothing waits; a slot that was not given back would make this time out."""
    async with asyncio.timeout(60):
        while chat.decoder.counts() != (0, 0):
            await asyncio.sleep(0.005)


async def test_giving_up_while_generating(ask: Any, chat: LlamaChat) -> None:
    request = msgspec.convert(
        {"model": "m", "messages": [{"role": "user", "content": STORY}], "ignore_eos": True}, ChatRequest
    )
    async with aclosing(chat.answer(request)) as events:  # type: ignore[type-var]
        assert isinstance(await anext(events), Text)
    await quiet(chat)
    assert (await ask(CAPITAL)).text == "The capital of France is Paris."


async def test_giving_up_in_the_prompt(chat: LlamaChat, ask: Any) -> None:
    asked = asyncio.create_task(ask("sing a long and winding song " * 75, max_tokens=5))
    async with asyncio.timeout(60):
        while chat.decoder.counts()[0] != 1:
            await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await quiet(chat)


async def test_giving_up_while_waiting_for_a_slot(chat: LlamaChat, ask: Any) -> None:
    busy = [asyncio.create_task(ask(STORY + str(index), max_tokens=60)) for index in range(4)]
    waits = asyncio.create_task(ask(CAPITAL))
    await asyncio.sleep(0.03)
    waits.cancel()
    answers = await asyncio.gather(*busy, waits, return_exceptions=True)
    assert isinstance(answers[-1], asyncio.CancelledError)
    assert all(answer.completion == 60 for answer in answers[:-1])  # type: ignore[union-attr]
    await quiet(chat)


async def test_closing_the_stream_early_and_twice(chat: LlamaChat) -> None:
    request = ChatRequest(model="m", messages=[], stream=True)
    events = chat.answer(request)
    await events.aclose()  # type: ignore[attr-defined]
    await events.aclose()  # type: ignore[attr-defined]


async def test_facts(chat: LlamaChat) -> None:
    facts = chat.info()
    assert (facts.capacity, facts.slots, facts.context) == (4, 4, 512)
    assert "llama" in facts.detail["description"]
