"""Chats in real worker processes: adapters by name, files that are broken in any way, contexts nothing can hold.

Whatever a file does to llama.cpp, the host and its other models go on, and the client is told why.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
import walks
from ggufs import llamas

from functions.chat.api import ChatRequest, Done, Text
from functions.chat.operations import CHAT
from functions.engines.llama.model.context import Context
from host.direct import OpenFunction, open_function
from host.errors import ColdframeError, InsufficientMemory, LoadFailed, ManifestError, ModelNotFound, OutOfMemory
from host.manifest import Manifest
from host.settings import read

pytestmark = pytest.mark.anyio
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
SHAPES = llamas.attention(2, (llamas.WIDTH, llamas.WIDTH), (llamas.WIDTH // 2, llamas.WIDTH))
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    llamas.write(folder / "tiny.gguf", *llamas.llama())
    llamas.write(folder / "poet.gguf", *llamas.lora(SHAPES, strength=0.5))
    return folder


@pytest.fixture
async def open_(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with AsyncExitStack() as stack:

        async def open_one(
            options: dict[str, Any] | None = None, model: str = "tiny.gguf", **more: Any
        ) -> OpenFunction:
            memory = more.pop("memory", 2 << 30)
            fields = {"name": "tiny", "aliases": ("t",), "context": 256, "slots": 2, "device": "cpu"} | more
            said = {"chat_template": TEMPLATE} | (options or {})
            manifest = Manifest(task="chat", model=f"./{model}", options=said, **fields)
            settings = msgspec.structs.replace(read(None), budget={"ram": memory})
            return await stack.enter_async_context(open_function(manifest, settings=settings, base=folder))

        yield open_one


async def ask(function: OpenFunction, content: str = "Hello", model: str = "tiny", **fields: Any) -> tuple[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 8}
    request = msgspec.convert(body | {"ignore_eos": True} | fields, ChatRequest)
    text, usage = "", None
    stream = function.runtime.dispatch.stream(model, CHAT, request)
    try:
        async for event in stream:
            match event:
                case Text(text=more):
                    text += more
                case Done(usage=usage):
                    pass
    finally:
        await stream.aclose()
    return text, usage


async def test_adapters_by_name(open_: Open) -> None:
    function = await open_({"adapters": {"poet": {"path": "poet.gguf"}}})
    plain, _ = await ask(function)
    poet, _ = await ask(function, model="tiny@poet")
    assert plain != poet
    assert (await ask(function, model="t@poet"))[0] == (await ask(function, adapter="poet"))[0] == poet
    assert (await ask(function))[0] == plain
    with pytest.raises(ModelNotFound, match="`tiny` has no adapter `novelist`; its adapters: poet"):
        await ask(function, model="tiny@novelist")
    with pytest.raises(ColdframeError, match="adapters are: poet") as raised:
        await ask(function, adapter="novelist")
    assert (raised.value.status, raised.value.param) == (400, "adapter")
    assert len(function.runtime.catalog) == 1, "an adapter is no model of its own"


async def test_a_model_without_adapters(open_: Open) -> None:
    function = await open_()
    with pytest.raises(ModelNotFound, match="no adapter `poet`; its adapters: none"):
        await ask(function, model="tiny@poet")
    with pytest.raises(ModelNotFound, match="`other@poet` does not exist"):
        await ask(function, model="other@poet")


async def test_an_adapter_that_does_not_fit(open_: Open, folder: Path) -> None:
    llamas.write(folder / "wide.gguf", *llamas.lora(llamas.attention(2, (64, 64), (32, 64))))
    function = await open_({"adapters": {"wide": {"path": "wide.gguf"}}})
    with pytest.raises(LoadFailed, match=r"options\.adapters\.wide cannot be used: .*shape"):
        await ask(function)


async def test_a_context_larger_than_memory(open_: Open) -> None:
    function = await open_(context=50_000_000, memory=1 << 30)
    with pytest.raises(InsufficientMemory, match=r"needs \d{4,} MiB of ram, and the budget is 1024 MiB"):
        await ask(function)


async def test_a_load_that_runs_out_of_memory_is_tried_once_more(open_: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    class Cramped(Context):
        """Memory for two slots, and no more."""

        @classmethod
        def open(cls, *arguments: Any, slots: int, **more: Any) -> Context:
            tried.append(slots)
            if slots > 2:
                raise OutOfMemory("a cache does not fit into memory")
            return Context.open(*arguments, slots=slots, **more)

    monkeypatch.setattr("functions.engines.llama.instance.Context", Cramped)
    function = await open_(slots="auto", placement="inline")
    assert (await ask(function))[0] and tried == [4, 2]
    plan = function.status().plan
    assert plan is not None and plan.slots == 2 and "ran out of memory" in plan.notes[0]
    await function.unload()
    again = await open_(slots=4, name="fixed", aliases=(), placement="inline")
    with pytest.raises(OutOfMemory, match="nothing that could be made smaller"):
        await ask(again, model="fixed")
    assert tried == [4, 2, 4], "what the manifest says is not made smaller"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cache_type_v": "q4_0", "flash_attention": "off"}, "needs flash attention"),
        ({"cpu_moe": True, "n_cpu_moe": 1}, "options: `cpu_moe` is .* set one of the two"),
        ({"adapters": {"a b": {"path": "x"}}}, "adapters"),
        ({"adapters": {"poet": {"file": "x"}}}, "file"),
        ({"adapters": ["poet.gguf"]}, "adapters"),
    ],
)
async def test_options_are_checked_before_anything_is_loaded(open_: Open, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        await open_(options)


@pytest.mark.parametrize("length", [254, 255, 256, 257])
async def test_prompts_about_as_long_as_the_context(open_: Open, length: int) -> None:
    function = await open_()
    if length < 256:
        text, usage = await ask(function, "x" * length)
        assert text and usage.prompt_tokens == length and usage.completion_tokens == min(8, 256 - length)
        return
    with pytest.raises(ColdframeError, match=f"{length} tokens.* holds 256") as raised:
        await ask(function, "x" * length)
    assert raised.value.code == "context_length_exceeded"
    assert (await ask(function))[0], "and it goes on"


async def test_an_empty_prompt(open_: Open) -> None:
    function = await open_()
    with pytest.raises(ColdframeError, match="empty prompt") as raised:
        await ask(function, "")
    assert raised.value.status == 400 and (await ask(function))[0]


def broken(whole: bytes, kind: str) -> bytes:
    if kind == "architecture":
        return whole.replace(b"llama", b"lambs")
    if kind == "cut":
        return whole[: len(whole) // 2]
    if kind == "version":
        return whole[:4] + struct.pack("<I", 99) + whole[8:]
    return {"empty": b"", "zip": b"PK\x03\x04", "magic only": b"GGUF", "zeros": b"GGUF" + bytes(4096)}[kind]


@pytest.mark.parametrize("kind", ["empty", "zip", "magic only", "zeros", "cut", "version", "architecture"])
async def test_files_that_are_none(open_: Open, folder: Path, kind: str) -> None:
    (folder / "broken.gguf").write_bytes(broken((folder / "tiny.gguf").read_bytes(), kind))
    function = await open_(model="broken.gguf")
    with pytest.raises(LoadFailed, match=r"broken\.gguf") as raised:
        await ask(function)
    assert str(folder) not in raised.value.message
    assert function.status().state == "failed"


@pytest.mark.slow
async def test_a_file_that_is_mended_is_served(open_: Open, folder: Path) -> None:
    (folder / "mended.gguf").write_bytes(b"GGUF")
    function = await open_(model="mended.gguf")
    with pytest.raises(LoadFailed):
        await ask(function)
    shutil.copyfile(folder / "tiny.gguf", folder / "mended.gguf")
    await function.load()
    assert (await ask(function))[0]


def mutated(whole: bytes, head: int, dice: random.Random) -> bytes:
    """Change a few bytes of the head: bits, whole numbers, lengths, pieces cut out or doubled."""
    data = bytearray(whole)
    for _ in range(dice.choice([1, 1, 2, 5])):
        at = dice.randrange(4, min(head, len(data)))
        match dice.randrange(5):
            case 0:
                data[at] ^= 1 << dice.randrange(8)
            case 1:
                data[at : at + 8] = struct.pack("<Q", dice.choice([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]))
            case 2:
                data[at : at + 4] = struct.pack("<I", dice.randrange(64))
            case 3:
                del data[at : at + dice.randrange(1, 40)]
            case 4:
                data[at:at] = data[at : at + dice.randrange(1, 40)]
    return bytes(data)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("seed", walks.seeds(1, 6))
async def test_mutated_heads_hurt_nobody_else(open_: Open, folder: Path, seed: int) -> None:
    # Through the whole life of a load, in processes of their own: a crash must not be more than a failed load.
    whole, dice = (folder / "tiny.gguf").read_bytes(), random.Random(seed)
    head = whole.index(b"</s>")  # metadata; the shapes of tensors follow behind it
    healthy = await open_()
    before, _ = await ask(healthy)
    outcomes: dict[str, int] = {}
    for number in range(walks.size(6, 12)):
        (folder / "odd.gguf").write_bytes(mutated(whole, len(whole) // 8 if number % 2 else head, dice))
        function = await open_(model="odd.gguf", name=f"odd{number}", aliases=())
        try:
            await ask(function, model=f"odd{number}")
            outcome = "served"
        except ColdframeError as error:
            assert type(error) is not ColdframeError or "not numbers" in error.message, error
            outcome = type(error).__name__
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        await function.unload()
    assert (await ask(healthy))[0] == before
    assert outcomes.get("LoadFailed"), outcomes
