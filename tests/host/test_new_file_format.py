"""An engine of somebody else's with a file format of its own: found on the hub, on disk and in a package."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pluggy
import pytest

from functions.engines.checkpoint.file_format import CHECKPOINT
from host import hooks, placement, sources
from host.errors import LoadFailed, ManifestError, ModelFileNotFound
from host.file_format import Choice, FileFormat, FileRequest
from host.function import RAM, Engine, Function, Instance, Operation, Plan
from host.hooks import hookimpl
from host.registry import Registry
from host.runtime import Runtime
from host.settings import read
from tests.hub import FakeHub

pytestmark = pytest.mark.anyio
_NAME = re.compile(r"(?:.*/)?toy\.(\w+)\.(\d)of(\d)\.toy")


class ToyFormat(FileFormat):
    """`toy.LABEL.1of2.toy`: two shards a model, and `words.txt` beside them."""

    labelled = True

    def is_file(self, name: str) -> bool:
        return name.endswith(".toy")

    def claims(self, names: Any, quantization: str) -> bool:
        return quantization in self._labels(names)

    def choose(self, names: Any, request: FileRequest) -> Choice:
        labels = self._labels(names)
        asked = request.asked or "small"
        if asked not in labels:
            raise ModelFileNotFound(f"{request.where} has no {asked}; it has {', '.join(labels)}", param="quantization")
        return self._with_words(sorted(n for n in names if (m := _NAME.fullmatch(n)) and m[1] == asked), names)

    def named(self, file: str, names: Any, request: FileRequest) -> Choice:
        label = _NAME.fullmatch(file)[1]
        if request.asked not in (None, label):
            raise ManifestError(f"{request.where} is {label}, not {request.asked}", key="quantization")
        return self.choose(names, msgspec.structs.replace(request, label=label))

    def _labels(self, names: Any) -> list[str]:
        return sorted({m[1] for name in names if (m := _NAME.fullmatch(name))})

    def _with_words(self, shards: list[str], names: Any) -> Choice:
        return Choice(files=(*shards, *(n for n in names if n.endswith("words.txt"))), target=shards[0])


class Ask(msgspec.Struct, kw_only=True):
    model: str = ""


class Said(msgspec.Struct, kw_only=True):
    text: str


ASK = Operation(name="ask", request=Ask, answer=Said)


class ToyInstance(Instance):
    """Answers with what its shards hold."""

    @classmethod
    def plan(cls, load: Any) -> Plan:
        return Plan(bytes={RAM: 10})

    @classmethod
    def load(cls, load: Any, plan: Plan, progress: Any) -> ToyInstance:
        self = cls()
        first = Path(load.path)
        shards = sorted(first.parent.glob(first.name.replace("1of", "?of")))
        self.text = " ".join(shard.read_text() for shard in shards)
        return self

    async def answer(self, request: Any) -> Said:
        return Said(text=self.text)


class ToyOptions(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    styles: dict[str, str] = {}
    run_its_code: bool = False


class ToyPlugin:
    @hookimpl
    def coldframe_engines(self) -> list[Engine]:
        toy = Engine(
            name="toy",
            summary="",
            suffixes=(".toy",),
            formats=(ToyFormat(),),
            options=ToyOptions,
            adapters="styles",
            consent=("run_its_code",),
            distributions=("msgspec", "not-installed-at-all"),
        )
        return [toy, Engine(name="folders", summary="", formats=(CHECKPOINT,))]

    @hookimpl
    def coldframe_functions(self) -> list[Function]:
        instances = {"folders": f"{__name__}:ToyInstance", "toy": f"{__name__}:ToyInstance"}
        return [Function(name="toy", summary="", operations=(ASK,), instances=instances)]


FILES = {
    **{f"toy.{label}.{n}of2.toy": f"{label}{n}".encode() for label in ("small", "large") for n in (1, 2)},
    "words.txt": b"w",
    "README.md": b"r",
}


@pytest.fixture
def registry() -> Registry:
    manager = pluggy.PluginManager(hooks.GROUP)
    manager.add_hookspecs(hooks)
    for name, plugin in (("sources", sources), ("placements", placement), ("toy", ToyPlugin())):
        manager.register(plugin, name)
    return Registry(manager)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with FakeHub() as fake:
        monkeypatch.setenv("HF_ENDPOINT", fake.url)
        fake.add("org/repo", FILES)
        fake.add("org/mixed", {**FILES, "config.json": b"{}", "model.safetensors": b"x"})
        yield fake


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Manifests, with models beside them and a package of models on the path."""
    for place in (tmp_path / "manifests/models", tmp_path / "site/toy_models/inner"):
        place.mkdir(parents=True)
        for name, content in FILES.items():
            (place / name).write_bytes(content)
    (tmp_path / "site/toy_models/__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "manifests"


async def ask(folder: Path, registry: Registry, manifest: str) -> str:
    (folder / "a.yaml").write_text(f"task: toy\nplacement: inline\n{manifest}\n")
    runtime = Runtime(msgspec.structs.replace(read(None), manifests=folder, budget={RAM: 1000}), registry)
    runtime.start(watch=False, warm=False)
    try:
        assert not runtime.catalog.problems
        return (await runtime.dispatch.call("a", ASK, Ask())).text
    finally:
        await runtime.stop(0)


@pytest.mark.parametrize(
    ("manifest", "answer"),
    [
        ("model: org/repo", "small1 small2"),
        ("model: org/repo:large", "large1 large2"),
        ("model: org/repo\nquantization: large", "large1 large2"),
        ("model: org/repo/toy.large.2of2.toy", "large1 large2"),
        ("model: org/mixed:large", "large1 large2"),
        ("model: org/mixed\nquantization: large", "large1 large2"),
        ("model: org/mixed\nengine: toy", "small1 small2"),
    ],
)
async def test_from_the_hub(hub: Any, folder: Path, registry: Registry, manifest: str, answer: str) -> None:
    assert await ask(folder, registry, manifest) == answer
    fetched = {seen.rpartition("/")[2] for seen in (request.path for request in hub.downloads())}
    label = answer[:5]
    assert fetched == {f"toy.{label}.1of2.toy", f"toy.{label}.2of2.toy", "words.txt"}


@pytest.mark.parametrize(
    ("manifest", "answer"),
    [
        ("model: ./models", "small1 small2"),
        ("model: ./models\nquantization: large", "large1 large2"),
        ("model: models/toy.large.2of2.toy", "large1 large2"),
        ("model: package:toy_models/inner", "small1 small2"),
        ("model: package:toy_models/inner/toy.large.1of2.toy", "large1 large2"),
    ],
)
async def test_from_this_machine(folder: Path, registry: Registry, manifest: str, answer: str) -> None:
    assert await ask(folder, registry, manifest) == answer


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("model: ./models\nquantization: huge", "has no huge; it has large, small"),
        ("model: models/toy.large.1of2.toy\nquantization: small", "is large, not small"),
        ("model: models/toy.absent.1of2.toy", "no such file or folder"),
    ],
)
def test_what_is_not_there_is_said_by_the_format(folder, registry, manifest: str, message: str) -> None:
    runtime = Runtime(msgspec.structs.replace(read(None), manifests=folder, budget={RAM: 1000}), registry)
    from host.manifest import load

    (folder / "a.yaml").write_text(f"task: toy\nplacement: inline\n{manifest}\n")
    with pytest.raises((ModelFileNotFound, ManifestError), match=message):
        runtime.check(*load(folder / "a.yaml"))


async def test_on_the_hub_what_is_not_there_is_said_by_the_format(hub, folder, registry) -> None:
    with pytest.raises((ModelFileNotFound, LoadFailed), match="org/repo has no huge; it has large, small"):
        await ask(folder, registry, "model: org/repo:huge")


async def test_adapters_and_consent_are_what_the_engine_declares(folder: Path, registry: Registry) -> None:
    (folder / "a.yaml").write_text(
        "task: toy\nplacement: inline\nmodel: ./models\nengine: toy\noptions: {styles: {loud: x}, run_its_code: true}\n"
    )
    runtime = Runtime(msgspec.structs.replace(read(None), manifests=folder, budget={RAM: 1000}), registry)
    runtime.start(watch=False, warm=False)
    try:
        assert runtime.catalog.find("a@loud") is runtime.catalog.find("a")
        deployment = runtime.catalog.find("a")
        assert registry.consents(deployment.manifest, deployment.function) == ("run_its_code",)
        from host.routes.health import _versions

        assert "msgspec" in _versions(runtime)
        assert "not-installed-at-all" not in _versions(runtime)
    finally:
        await runtime.stop(0)
