"""LoRA adapters: each request uses its own beside others, and no prefix is shared across adapters."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ggufs import llamas

from functions.engines.llama.decode.decoder import Decoder
from functions.engines.llama.decode.generation import Finished, GenerationRequest, TextDelta
from functions.engines.llama.decode.sampling import Sampling
from functions.engines.llama.decoder_factory import build_decoder
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.memory.plan import make
from functions.engines.llama.model.adapters import Adapters, check, choose, sizes
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import Adapter, LlamaOptions
from host.errors import InvalidRequest, LoadFailed, ModelNotFound
from host.function import Load
from host.manifest import Manifest

pytestmark = pytest.mark.anyio
LAYERS = 2
SHAPES = llamas.attention(LAYERS, (llamas.WIDTH, llamas.WIDTH), (llamas.WIDTH // 2, llamas.WIDTH))
ADAPTERS = {"poet": Adapter(path="poet.gguf"), "clerk": Adapter(path="clerk.gguf", scale=2.0)}
NAMES = (None, "poet", "clerk")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    llamas.write(folder / "model.gguf", *llamas.llama(LAYERS))
    llamas.write(folder / "poet.gguf", *llamas.lora(SHAPES, seed=1, strength=0.5))
    llamas.write(folder / "clerk.gguf", *llamas.lora(SHAPES, seed=2, strength=0.5))
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[Model]:
    model = Model.open(str(folder / "model.gguf"), LlamaOptions(), Target())
    yield model
    model.close()


@pytest.fixture
def open_(model: Model, folder: Path) -> Iterator[Callable[..., Decoder]]:
    made: list[tuple[Context, Decoder]] = []

    def open_one(slots: int = 4, **options: Any) -> Decoder:
        said = LlamaOptions(batch=32, ubatch=32, **options)
        context = Context.open(model, said, Target(), context=256, slots=slots, threads=1)
        context.adapters = Adapters.open(model.handle, ADAPTERS, folder)
        made.append((context, build_decoder(model, context, said, length=256, slots=slots)))
        return made[-1][1]

    yield open_one
    for context, decoder in made:
        decoder.close()
        context.close()


async def ask(decoder: Decoder, prompt: list[int], adapter: str | None, limit: int = 16) -> tuple[str, int]:
    want = GenerationRequest(
        prompt=prompt, limit=limit, sampling=Sampling(temperature=0), adapter=adapter, endless=True
    )
    text, cached = "", 0
    async for news in decoder.generate([want]):
        match news:
            case TextDelta(text=more):
                text += more
            case Finished(cached_tokens=cached):
                pass
    return text, cached


async def test_each_adapter_says_something_else(open_: Any) -> None:
    decoder = open_(1)
    texts = {name: (await ask(decoder, [10, 20, 30], name))[0] for name in NAMES}
    assert len(set(texts.values())) == 3
    for name in NAMES:
        assert (await ask(decoder, [10, 20, 30], name))[0] == texts[name], "and is switched off again"


async def test_concurrent_requests_use_their_own_adapter(open_: Any) -> None:
    dice = random.Random(4)
    asked = [([dice.randrange(256) for _ in range(dice.choice([1, 3, 40, 90]))], dice.choice(NAMES)) for _ in range(24)]
    alone = open_(1, prefix_reuse=False)
    expected = [await ask(alone, prompt, name) for prompt, name in asked]
    beside = open_()
    answers = await asyncio.gather(*(ask(beside, prompt, name) for prompt, name in asked))
    assert [text for text, _ in answers] == [text for text, _ in expected]


async def test_prefixes_are_shared_within_an_adapter_only(open_: Any) -> None:
    decoder = open_(prefix_tokens=1000)
    system = [number % 250 for number in range(7, 107)]
    cached = [(await ask(decoder, [*system, at], name))[1] for at, name in enumerate([*NAMES, *NAMES])]
    assert cached == [0, 0, 0, 100, 100, 100]


async def test_no_adapter_is_starved(open_: Any) -> None:
    decoder = open_()
    ends: list[str | None] = []

    async def run(name: str | None, limit: int) -> None:
        await ask(decoder, [3, 4, 5], name, limit)
        ends.append(name)

    await asyncio.gather(run(None, 200), run(None, 200), run("poet", 20), run("clerk", 30))
    assert ends[:2] == ["poet", "clerk"], "few tokens are ready before many, whatever they are computed with"


def options(**adapters: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode({"adapters": adapters}))


def load(folder: Path, **adapters: dict[str, Any]) -> Load:
    manifest = Manifest(task="chat", model="x", name="tiny", aliases=["t"], context=256, slots=1, device="cpu")
    path = str(folder / "model.gguf")
    return Load(manifest=manifest, path=path, engine="llama", options=options(**adapters), base=str(folder))


def test_the_plan_counts_adapters(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    bare, more = make(load(folder)), make(load(folder, poet={"path": "poet.gguf"}, clerk={"path": "clerk.gguf"}))
    each = sum(4 * 4 * (outputs + inputs) for outputs, inputs in SHAPES.values())
    assert sizes(ADAPTERS, folder) == {"poet": each, "clerk": each}
    assert more.bytes["ram"] - bare.bytes["ram"] == more.detail["adapters"] == 2 * each


def test_an_absolute_path(folder: Path) -> None:
    elsewhere = {"poet": Adapter(path=str(folder / "poet.gguf"))}
    assert check(elsewhere, Path("/nowhere")) == {"poet": folder / "poet.gguf"}


def wrong(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.gguf"
    whole = (folder / "poet.gguf").read_bytes()
    shapes = dict(SHAPES)
    match kind:
        case "cut" | "head":
            path.write_bytes(whole[: -200 if kind == "cut" else 60])
        case "zip":
            path.write_bytes(b"PK\x03\x04 not a model")
        case "model":
            return folder / "model.gguf"
        case "control":
            llamas.write(path, *llamas.lora(shapes, **{"adapter.type": "control_vector"}))
        case "architecture":
            llamas.write(path, *llamas.lora(shapes, **{"general.architecture": "qwen2"}))
        case "shape":
            llamas.write(path, *llamas.lora(llamas.attention(LAYERS, (64, 64), (16, 64))))
        case "layers":
            llamas.write(path, *llamas.lora(llamas.attention(9, (32, 32), (16, 32))))
        case "half":
            said, tensors = llamas.lora(shapes)
            llamas.write(path, said, {name: one for name, one in tensors.items() if name.endswith("_a")})
    return path


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("cut", "file bounds|broken|ends"),
        ("head", "ends within its header|broken"),
        ("zip", "not a GGUF file"),
        ("gone", "is not there"),
        ("model", "is a model, not a LoRA"),
        ("control", "is a control_vector, not a LoRA"),
        ("architecture", "mismatch"),
        ("shape", "incorrect shape"),
        ("layers", "does not exist in base model"),
        ("half", "missing one component"),
    ],
)
def test_files_that_cannot_be_used_as_adapters(model: Model, folder: Path, kind: str, words: str) -> None:
    path = wrong(folder, kind)
    with pytest.raises(LoadFailed, match=rf"options\.adapters\.poet cannot be used: .*({words})") as raised:
        Adapters.open(model.handle, {"poet": Adapter(path=path.name)}, folder)
    assert str(folder) not in raised.value.message, "clients see this: no folders"


def choice(model_name: str, field: str | None) -> str | None:
    return choose(model_name, field, names=("tiny", "t", "odd@name"), known=tuple(ADAPTERS))


@pytest.mark.parametrize(
    ("model_name", "field", "adapter"),
    [
        *[("tiny", None, None), ("tiny@poet", None, "poet"), ("t@clerk", None, "clerk"), ("tiny", "poet", "poet")],
        *[("tiny@poet", "poet", "poet"), ("odd@name", None, None), ("odd@name@poet", None, "poet")],
    ],
)
def test_requests_choose_an_adapter(model_name: str, field: str | None, adapter: str | None) -> None:
    assert choice(model_name, field) == adapter


@pytest.mark.parametrize(
    ("model_name", "field", "error", "words"),
    [
        ("tiny@novelist", None, ModelNotFound, "no adapter `novelist`; its adapters: poet, clerk"),
        ("tiny", "novelist", InvalidRequest, "adapters are: poet, clerk"),
        ("tiny", "", InvalidRequest, "adapters are: poet, clerk"),
        ("tiny@poet", "clerk", InvalidRequest, "one of the two"),
    ],
)
def test_unknown_or_conflicting_adapters(
    model_name: str, field: str | None, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        choice(model_name, field)
