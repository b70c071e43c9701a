"""The way of a call: looked up, queued, answered, ended; and every end told once."""

import asyncio

import pytest
from coldframe_echo.operations import ECHO_ONCE

from host.call_metrics import CALLS
from host.errors import ColdframeError, InvalidRequest, ModelNotFound, QueueFull, ShuttingDown, Unavailable
from host.function import Operation
from host.state import State

pytestmark = pytest.mark.anyio


@pytest.fixture
async def one(house):
    """A house that serves `a`, placed inline."""
    made = await house()
    made.serve("a", placement="inline", slots=2)
    return made


async def test_a_call_and_a_stream_are_told_from_beginning_to_end(one):
    await one.call(text="1 2 3")
    assert [event.text for event in [e async for e in one.stream(text="1 2")][:2]] == ["1", " 2"]
    kinds = [type(event).__name__ for event in one.events if type(event).__name__.startswith(("Call", "First"))]
    assert kinds == ["CallQueued", "CallStarted", "CallEnded", "CallQueued", "CallStarted", "FirstAnswer", "CallEnded"]
    first, second = one.told("CallEnded")
    assert (first.outcome, first.prompt_tokens, first.completion_tokens) == ("ok", 3, 3)
    assert (second.outcome, second.completion_tokens, second.in_flight) == ("ok", 2, 0)


@pytest.mark.parametrize(
    ("options", "error", "outcome"),
    [
        ({"error": "queue_full"}, QueueFull, "queue_full"),
        ({"error": "bug"}, ColdframeError, "server_error"),
        ({"error": "nope"}, InvalidRequest, "invalid_request"),
    ],
)
async def test_an_error_is_the_outcome(one, options, error, outcome):
    with pytest.raises(error):
        await one.call(**options)
    with pytest.raises(error):
        _ = [event async for event in one.stream(**options)]
    assert [event.outcome for event in one.told("CallEnded")] == [outcome] * 2
    assert one.runtime.catalog.find("a").in_flight == 0


@pytest.mark.parametrize("placement", ["inline", "process"])
async def test_a_stream_is_collected_with_its_usage_and_the_time_of_its_first_answer(house, placement):
    one = await house()
    one.serve("a", placement=placement, slots=1)
    answers = await one.collect(text="1 2 3", delay=0.02)
    assert [getattr(answer, "text", None) for answer in answers] == ["1", " 2", " 3", None]
    assert [type(e).__name__ for e in one.events if type(e).__name__.startswith(("Call", "First"))] == [
        "CallQueued",
        "CallStarted",
        "FirstAnswer",
        "CallEnded",
    ]
    (first,), (ended,) = one.told("FirstAnswer"), one.told("CallEnded")
    assert (ended.outcome, ended.prompt_tokens, ended.completion_tokens) == ("ok", 3, 3)
    assert 0.02 <= first.seconds <= ended.seconds - 0.03
    assert one.runtime.catalog.find("a").in_flight == 0


async def test_what_is_collected_fails_and_is_given_up_as_a_stream_is(one):
    with pytest.raises(QueueFull):
        await one.collect(text="1 2", error="queue_full", error_after=1)
    leaving = asyncio.ensure_future(one.collect(hang=True))
    await one.until(lambda: one.runtime.catalog.find("a").in_flight == 1)
    await asyncio.sleep(0.05)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert [event.outcome for event in one.told("CallEnded")] == ["queue_full", "cancelled"]
    assert (await one.report()).cancelled == 1


async def test_no_event_of_a_call_is_made_where_nobody_observes(house, monkeypatch):
    one = await house()
    one.serve("a", placement="inline")
    await one.call()
    monkeypatch.setattr(one.runtime, "_observers", set())
    monkeypatch.setattr("host.dispatch.CallStarted", None)
    await one.call(text="1 2")
    counted = CALLS.of("a")
    assert counted.ended_by["ok"] >= 2
    assert counted.tokens["completion"] >= 3


async def test_leaving_is_an_outcome_too_and_told_once(one):
    stream = one.stream(text="1 2 3", delay=0.01)
    await anext(stream)
    await stream.aclose()
    await stream.aclose()
    assert [event.outcome for event in one.told("CallEnded")] == ["cancelled"]


async def test_leaving_the_queue_is_told(one):
    running = [one.start(hang=True) for _ in range(2)]
    a = one.runtime.catalog.find("a")
    await one.until(lambda: a.in_flight == 2)
    waiting = one.start()
    await one.until(lambda: a.waiting == 1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert [(event.outcome, event.waiting) for event in one.told("CallEnded")] == [("cancelled", 0)]
    for call in running:
        call.cancel()


@pytest.mark.parametrize("model", [None, 5])
async def test_a_model_must_be_named(one, model):
    with pytest.raises(InvalidRequest) as caught:
        await one.call(model)
    assert caught.value.param == "model"


async def test_an_unknown_model_lists_what_is_served(one):
    one.serve("bee", placement="inline", aliases=["sea"])
    with pytest.raises(
        ModelNotFound, match=r"The model `se` does not exist\. Did you mean `sea`\? Served here: a, bee"
    ):
        await one.call("se")


async def test_a_model_of_another_function_is_refused(one):
    other = Operation(name="embed", request=dict, answer=dict)
    with pytest.raises(InvalidRequest, match="serves echo; this endpoint needs embed") as caught:
        await one.runtime.dispatch.call("a", other, {})
    assert caught.value.param == "model"
    assert one.runtime.catalog.find("a").state is State.COLD


async def test_stopping_lets_calls_end_within_the_grace_time(one):
    call = one.start(text="1 2", delay=0.05)
    await one.until(lambda: one.runtime.catalog.find("a").in_flight == 1)
    assert await one.runtime.dispatch.stop(60) == 0
    assert call.done()
    assert (await call).text == "1 2"
    with pytest.raises(ShuttingDown) as caught:
        await one.call()
    assert caught.value.retry_after is not None


@pytest.mark.parametrize("stage", ["answering", "streaming", "queued", "loading"])
async def test_stopping_fails_what_does_not_end(one, stage):
    if stage == "loading":
        one.serve("b", placement="inline", options={"load_seconds": 3.0})
        call = one.start("b")
        await one.until(lambda: one.runtime.catalog.find("b").state is State.LOADING)
    elif stage == "queued":
        one.serve("b", placement="inline", slots=1)
        one.start("b", hang=True)
        await one.until(lambda: one.runtime.catalog.find("b").in_flight == 1)
        call = one.start("b")
        await one.until(lambda: one.runtime.catalog.find("b").waiting == 1)
    elif stage == "streaming":
        stream = one.stream(hang=True)
        await anext(stream)
        call = asyncio.ensure_future(anext(stream))
    else:
        call = one.start(hang=True)
    await asyncio.sleep(0.05)
    assert await one.runtime.dispatch.stop(0.05) >= 1
    with pytest.raises(ShuttingDown):
        await call
    assert call.cancelling() == 0  # the cancellation was ours and ended with the error
    assert "shutting_down" in {event.outcome for event in one.told("CallEnded")}


async def test_stopping_twice_waits_but_once(one):
    stream = one.stream(hang=True)
    await anext(stream)  # and nobody asks for more: its caller is busy elsewhere
    began = asyncio.get_running_loop().time()
    await one.runtime.dispatch.stop(0.2)
    await one.runtime.dispatch.stop(30)
    assert asyncio.get_running_loop().time() - began < 15
    with pytest.raises(ShuttingDown):
        await anext(stream)


async def test_who_waits_for_the_shutdown_is_told(one):
    waits = asyncio.ensure_future(one.runtime.dispatch.stopped())
    await asyncio.sleep(0)
    assert not waits.done()
    await one.runtime.dispatch.stop(0)
    await asyncio.wait_for(waits, 60)
    assert one.runtime.dispatch.stopping


async def test_an_unload_by_force_fails_the_call_that_was_running(house):
    made = await house(drain=0.05)
    a = made.serve("a", placement="inline")
    call = made.start(hang=True)
    await made.until(lambda: a.in_flight == 1)
    await a.unload()
    with pytest.raises(Unavailable, match="unloaded while it answered"):
        await call


@pytest.mark.parametrize("name", ["b", "bee", ""])
async def test_the_stage_says_what_is_waited_for(house, name):
    one = await house()
    one.serve("b", placement="inline", options={"load_seconds": 0.3}, aliases=["bee"])
    stream = one.stream(name, text="1 2", delay=0.05)
    first = asyncio.ensure_future(anext(stream))
    await one.until(lambda: "weights" in stream.stage())
    await first
    assert stream.stage() == "working"
    await stream.aclose()


async def test_operations_are_those_of_the_function(one):
    (deployment,) = one.runtime.catalog
    assert deployment.function.operation("echo_once") is ECHO_ONCE
    with pytest.raises(KeyError):
        deployment.function.operation("nope")


async def test_without_a_name_the_only_model_of_the_operation_answers(one):
    assert (await one.call("", text="hello")).text == "hello"


@pytest.mark.parametrize(("names", "listed"), [((), "no model yet"), (("a", "b"), "a, b")])
async def test_without_a_name_there_has_to_be_one_model(house, names, listed):
    made = await house()
    for name in names:
        made.serve(name, placement="inline")
    with pytest.raises(InvalidRequest, match=f"served for echo_once: {listed}") as caught:
        await made.call("")
    assert caught.value.param == "model"
