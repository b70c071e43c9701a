"""Decisions over a real socket, asked by OpenAI's SDK: the shipped manifest, cold at first."""

import asyncio

import httpx
import openai
import pytest
from openai import BaseModel
from openai.types import Decision

NAME = "smollm2-decide"
TICKET = "The lamp came two days late and the box was broken. I want my money back."
QUESTIONS = [
    {"type": "predicate", "instructions": "Does the writer want a refund?", "name": "refund"},
    {
        "type": "choice",
        "instructions": "What is the text about?",
        "choices": [{"value": "delivery"}, {"value": "cooking"}, {"value": True}, {"value": "true"}],
    },
    {
        "type": "score",
        "instructions": "How satisfied is the writer?",
        "levels": [{"label": "not at all"}, {"label": "a little"}, {"label": "very"}],
        "name": "satisfaction",
    },
]


@pytest.fixture(scope="module")
def client(served):
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


@pytest.mark.slow
def test_all_kinds_of_questions(client):
    found = client.decisions.create(model=NAME, input=TICKET, questions=QUESTIONS)
    predicate, choice, score = found.answers
    assert (predicate.type, predicate.name) == ("predicate", "refund")
    assert 0 < predicate.probability < 1
    assert [one.value for one in choice.probabilities] == ["delivery", "cooking", True, "true"]
    assert choice.confidence == max(one.probability for one in choice.probabilities)
    assert sum(one.probability for one in choice.probabilities) == pytest.approx(1)
    assert choice.name is None
    assert [(one.label, one.value) for one in score.probabilities] == [("not at all", 0), ("a little", 1), ("very", 2)]
    assert score.score == pytest.approx(sum(one.value * one.probability for one in score.probabilities))
    usage = found.usage
    assert found.model == NAME
    assert usage.total_tokens == usage.input_tokens > 40
    assert (usage.output_tokens, usage.output_tokens_details.reasoning_tokens) == (0, 0)
    again = client.decisions.create(model=NAME, input=TICKET, questions=QUESTIONS).usage
    assert again.input_tokens_details.cached_tokens > 30
    assert again.input_tokens_details.cache_write_tokens == 0


@pytest.mark.slow
def test_a_conversation_with_tools_and_json(client):
    """With every field that the SDK's types know."""
    kept = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    items = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Be brief.", **kept}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Where is it?", **kept}]},
        {"role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "1", "name": "track", "arguments": '{"parcel": 7}', "namespace": "n"},
        {"type": "function_call_output", "call_id": "1", "output": "in Rome", "id": "o1", "status": "completed"},
        {"type": "custom_tool_call", "call_id": "2", "name": "ask", "input": "where?", "id": None, "status": None},
        {"type": "custom_tool_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "there"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I may not say it."}]},
        {"role": "user", "content": [{"type": "input_json", "data": {"parcel": 7, "late": True, "by": None}}]},
    ]
    found = client.decisions.create(
        model=NAME,
        input=items,
        questions=QUESTIONS[:1],
        prompt_cache_key="k",
        prompt_cache_options={"mode": "explicit", "ttl": "30m"},
        safety_identifier="s",
    )
    assert 0 < found.answers[0].probability < 1


@pytest.mark.slow
def test_the_answer_has_the_fields_of_the_sdks_types_and_no_others(client):
    raw = client.decisions.with_raw_response.create(model=NAME, input=TICKET, questions=QUESTIONS)
    assert list(_strangers(Decision.model_validate_json(raw.text, strict=True))) == []


def _strangers(found):
    """Yield the fields that no type knows."""
    if isinstance(found, list):
        for one in found:
            yield from _strangers(one)
    elif isinstance(found, BaseModel):
        yield from found.model_extra or ()
        for name in type(found).model_fields:
            yield from _strangers(getattr(found, name))


@pytest.mark.slow
def test_many_clients_at_once(served):
    async def ask(at):
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as one:
            asked = [{"type": "predicate", "instructions": f"Is it number {n}?", "name": f"{at}-{n}"} for n in range(5)]
            return await one.decisions.create(model=NAME, input=f"This is number {at}.", questions=asked)

    async def all_of_them():
        return await asyncio.gather(*(ask(at) for at in range(8)))

    for at, found in enumerate(asyncio.run(all_of_them())):
        assert [answer.name for answer in found.answers] == [f"{at}-{n}" for n in range(5)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"questions": []}, "questions"),
        ({"questions": [{"type": "rank", "instructions": "x"}]}, "questions[0].type"),
        ({"questions": [{"type": "choice", "instructions": "x", "choices": [{"value": "a"}]}]}, "questions[0].choices"),
        (
            {"questions": [{"type": "choice", "instructions": "x", "choices": [{"value": 0}, {"value": 1}]}]},
            "questions[0].choices[0].value",
        ),
        ({"input": [{"type": "function_call_output", "call_id": "9", "output": "x"}]}, "input[0].call_id"),
        ({"input": "word " * 4000}, "input"),
    ],
)
def test_what_is_wrong_is_named(client, change, param):
    with pytest.raises(openai.BadRequestError) as told:
        client.decisions.create(**({"model": NAME, "input": "x", "questions": QUESTIONS} | change))
    assert told.value.param == param


@pytest.mark.slow
def test_wrong_types_are_named_and_other_paths_serve_it_too(served):
    body = {"model": NAME, "input": "x", "questions": [{"type": "predicate", "instructions": 7}]}
    answer = served.client.post("/v1/decisions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "questions[0].instructions"
    body["questions"] = QUESTIONS[:1]
    for path in ("/decisions", "/v1/decisions"):
        assert served.client.post(path, json={**body, "model": ""}).json()["answers"][0]["type"] == "predicate"


@pytest.mark.slow
def test_a_client_that_leaves_frees_the_model(served):
    long = {"model": NAME, "input": "word " * 1500, "questions": [dict(QUESTIONS[1])] * 300}
    with pytest.raises(httpx.TimeoutException):
        httpx.post(f"{served.url}/v1/decisions", json=long, timeout=0.3)
    short = {"model": NAME, "input": "x", "questions": QUESTIONS[:1]}
    assert httpx.post(f"{served.url}/v1/decisions", json=short, timeout=20).status_code == 200
