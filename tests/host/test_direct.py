"""One function without a server, in this process and in one of its own."""

from pathlib import Path

import msgspec
import pytest
from coldframe_echo.api import Echo, EchoOnce
from coldframe_echo.operations import ECHO, ECHO_ONCE

from functions.chat.api import ChatRequest, Message
from functions.embeddings.api import EmbeddingsRequest
from host.direct import open_function
from host.errors import InstanceDied, InvalidRequest, ManifestError
from host.manifest import Manifest
from host.state import State

pytestmark = pytest.mark.anyio

ECHO_MANIFEST = Manifest(name="echo", task="echo", model="package:coldframe_echo/model.echo")


@pytest.mark.parametrize("placement", ["inline", "process"])
async def test_calls_and_streams_answer_with_the_functions_own_structs(placement):
    async with open_function(ECHO_MANIFEST, placement=placement) as echo:
        assert echo.status().state is State.COLD
        once = await echo.call(EchoOnce(text="one two"))
        assert once.text == "one two"
        tokens = [answer async for answer in echo.stream(Echo(text="one two"))]
        assert "".join(getattr(token, "text", "") or "" for token in tokens) == "one two"
        assert tokens[-1].usage.completion_tokens == 2
        status = echo.status()
        assert (status.state, status.loads, status.in_flight) == (State.READY, 1, 0)
        assert (status.pid is None) == (placement == "inline")


async def test_a_file_is_opened_with_paths_relative_to_it(tmp_path: Path):
    (tmp_path / "words.echo").write_text("from the file")
    file = tmp_path / "mine.yaml"
    file.write_text("task: echo\nmodel: ./words.echo\nplacement: inline\n")
    async with open_function(file) as echo:
        assert (await echo.call(EchoOnce())).text == "from the file"
        assert echo.manifest.name == "mine"


async def test_the_wrong_request_names_what_would_be_right():
    async with open_function(ECHO_MANIFEST, placement="inline") as echo:
        with pytest.raises(InvalidRequest, match=r"EchoOnce \(call\)"):
            await echo.call(Echo(text="x"))
        with pytest.raises(InvalidRequest, match="does not take dict"):
            echo.stream({"text": "x"})


async def test_requests_are_checked_before_any_model_is_looked_for(tmp_path: Path):
    manifest = Manifest(name="chat", task="chat", model="./missing.gguf")
    message = Message(role="user", content="Hello")
    async with open_function(manifest, base=tmp_path) as chat:
        for request, param in [
            (ChatRequest(model="chat", messages=[]), "messages"),
            (ChatRequest(model="chat", messages=[message], temperature=3), "temperature"),
        ]:
            with pytest.raises(InvalidRequest) as caught:
                await anext(chat.stream(request))
            assert caught.value.param == param
        assert (chat.status().state, chat.status().loads) == (State.COLD, 0)


async def test_modules_in_the_working_directory_are_not_imported(tmp_path: Path, monkeypatch):
    (tmp_path / "uvloop.py").write_text("raise RuntimeError('imported from the working directory')")
    monkeypatch.chdir(tmp_path)
    async with open_function(ECHO_MANIFEST, placement="process") as echo:
        assert (await echo.call(EchoOnce(text="one"))).text == "one"


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (EmbeddingsRequest(input=5), "input"),
        (EmbeddingsRequest(input=None), "input"),
        (EmbeddingsRequest(input="a", dimensions="x"), "dimensions"),
        (EmbeddingsRequest(input="a", truncate="maybe"), "truncate"),
    ],
)
async def test_values_of_another_type_are_refused_as_over_http(request_, param, tmp_path: Path):
    manifest = Manifest(name="e", task="embeddings", model="./missing")
    async with open_function(manifest, base=tmp_path) as embeddings:
        with pytest.raises(InvalidRequest, match=f"{param}: Expected") as caught:
            await embeddings.call(request_)
        assert caught.value.param == param


@pytest.mark.parametrize("streams", [True, False])
async def test_a_check_runs_once_for_each_call(streams: bool):
    seen = []
    operation = msgspec.structs.replace(ECHO if streams else ECHO_ONCE, check=seen.append)
    request = Echo(text="a b") if streams else EchoOnce(text="a b")
    async with open_function(ECHO_MANIFEST, placement="inline") as echo:
        if streams:
            assert [answer async for answer in echo.runtime.dispatch.stream("echo", operation, request)]
        else:
            await echo.runtime.dispatch.call("echo", operation, request)
    assert seen == [request]


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (Manifest(task="echo", model="package:coldframe_echo/model.echo"), "needs a `name`"),
        (Manifest(name="x", task="echoo", model="./x"), "did you mean `echo`"),
        (Manifest(name="x", task="echo", model="package:coldframe_echo/model.echo", options={"slotz": 1}), "slotz"),
        (Manifest(name="x", task="echo", model="x y", placement="nowhere"), "no such placement"),
    ],
)
async def test_a_manifest_that_cannot_be_used_says_why(manifest, message):
    with pytest.raises(ManifestError, match=message):
        async with open_function(manifest):
            pass


async def test_a_crash_is_an_error_and_the_next_call_loads_anew():
    async with open_function(ECHO_MANIFEST) as echo:
        with pytest.raises(InstanceDied, match="SIGSEGV"):
            await echo.call(EchoOnce(text="a b", crash_after=1))
        assert (await echo.call(EchoOnce(text="again"))).text == "again"
        assert echo.status().loads == 2


async def test_nothing_is_left_when_it_is_closed():
    async with open_function(ECHO_MANIFEST) as echo:
        pid = (await echo.load()).pid
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()


async def test_the_fixture_opens_and_closes(coldframe_open):
    echo = await coldframe_open(ECHO_MANIFEST, placement="inline")
    assert (await echo.call(EchoOnce(text="hi"))).text == "hi"
