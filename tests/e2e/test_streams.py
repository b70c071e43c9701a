"""Streams over HTTP: no status before the first event, comments while one waits, errors in band, `[DONE]` last."""

import contextlib
import time

import httpx
import pytest


def test_events_come_as_they_are_made(host, frames):
    host.echo()  # loaded before: a slow load would put comments into the stream
    with host.open(text="a b c", hang=True) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["x-request-id"]
        got = frames(response)
        assert [next(got)["text"] for _ in range(3)] == ["a", " b", " c"]  # and the end is never made


def test_a_stream_ends_with_its_usage_and_done(host, frames):
    host.echo()
    with host.open(text="a b c") as response:
        got = list(frames(response))
    assert [frame["text"] for frame in got[:3]] == ["a", " b", " c"]
    assert (got[3]["type"], got[3]["usage"]["completion_tokens"]) == ("end", 3)
    assert got[4:] == ["[DONE]"]


def test_no_status_is_sent_before_the_first_event(start):
    host = start({"a": {}}, keep_alive=600)
    host.echo()
    with pytest.raises(httpx.ReadTimeout), host.open(timeout=httpx.Timeout(60, read=0.5), count=0, hang=True):
        pass


def test_comments_tell_of_a_long_load_and_never_in_the_answer(host, frames):
    host.until_state("slow", "cold")
    with host.open("slow", text="a") as response:
        assert response.status_code == 200
        got = list(frames(response))
    comments = [frame for frame in got if isinstance(frame, str) and frame.startswith(": loading")]
    assert len(comments) >= 2
    assert any("weights" in comment for comment in comments)
    assert [frame["text"] for frame in got if isinstance(frame, dict) and frame["type"] == "token"] == ["a"]
    assert got[-1] == "[DONE]"


def test_an_error_after_the_first_comment_is_in_band(host, frames):
    with host.open("slow-broken") as response:
        assert response.status_code == 200
        got = [frame for frame in frames(response) if not str(frame).startswith(":")]
    assert got[0]["error"]["code"] == "load_failed"
    assert (len(got), got[-1]) == (2, "[DONE]")


def test_an_error_in_mid_stream_is_one_frame_and_done(host, frames):
    with host.open(text="a b c", error="context_length_exceeded", error_after=2) as response:
        assert response.status_code == 200
        got = list(frames(response))
    assert [frame["text"] for frame in got[:2]] == ["a", " b"]
    assert got[2]["error"].keys() == {"message", "type", "param", "code"}
    assert got[2]["error"]["code"] == "context_length_exceeded"
    assert got[3:] == ["[DONE]"]


def test_a_death_in_mid_stream_is_told_in_band_and_others_go_on(host, frames):
    with (
        host.open("small-queue", text="1 2 3 4 5 6", delay=0.1) as other,
        host.open(text="a b c", delay=0.05, crash_after=2) as response,
    ):
        got = list(frames(response))
        assert got[-2]["error"]["code"] == "instance_died"
        assert "SIGSEGV" in got[-2]["error"]["message"]
        assert got[-1] == "[DONE]"
        assert [frame["text"] for frame in frames(other) if "text" in frame] == ["1", " 2", " 3", " 4", " 5", " 6"]
    assert host.echo().status_code == 200


def test_very_many_events_arrive(host, frames):
    with host.open(text="a b c d", count=20_000) as response:
        got = list(frames(response))
    assert len(got) == 20_002
    assert got[-2]["usage"]["completion_tokens"] == 20_000


def test_a_large_answer_arrives_whole(host):
    text = "word " * 150_000
    answer = host.echo(text=text)
    assert answer.json()["text"] == text.rstrip()


def test_streams_run_side_by_side(host, frames):
    with contextlib.ExitStack() as stack:
        streams = [frames(stack.enter_context(host.open(text=f"{n}", hang=True))) for n in range(4)]
        assert [next(got)["text"] for got in streams] == ["0", "1", "2", "3"]  # and none of them has ended


def test_a_slow_reader_hurts_nobody(host):
    with host.open(text="a b c d", count=50_000):
        assert min(seconds(host) for _ in range(10)) < 2.0


def seconds(host):
    """How long one short call takes."""
    began = time.monotonic()
    assert host.echo().status_code == 200
    return time.monotonic() - began
