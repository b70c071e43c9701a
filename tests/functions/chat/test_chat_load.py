"""Loading a chat model: templates, broken files, registration and the cost of importing it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from functions import chat as chat_function
from functions.chat.llama import LlamaChat
from functions.engines import llama as llama_engine
from functions.engines.llama.options import LlamaOptions
from host.errors import InvalidRequest, LoadFailed
from host.manifest import load as read_manifest
from host.manifest.schema import docs

USER = {"role": "user", "content": "What is the capital of France?"}


def silent(stage: str, done: int = 0, total: int = 0) -> None:
    """Nobody looks."""


@pytest.mark.anyio
async def test_a_template_of_the_manifest(ask: Any, loader: Any) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    other = loader({"chat_template": template}, slots=1)
    answer = await ask([{"role": "user", "content": "one two three four five six seven"}], other, max_tokens=1)
    assert answer.prompt == 7 and answer.text == " eight"


def test_a_template_of_the_manifest_that_is_none(loader: Any) -> None:
    with pytest.raises(LoadFailed, match=r"options\.chat_template is not valid Jinja"):
        loader({"chat_template": "{% for %}"}, slots=1)


@pytest.fixture
def bare(tmp_path: Path, smollm2: Path) -> Path:
    made = tmp_path / "bare.gguf"
    made.write_bytes(smollm2.read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.none_template", 1))
    return made


@pytest.mark.anyio
async def test_a_file_without_a_template(ask: Any, loader: Any, bare: Path) -> None:
    instance = loader(path=bare, slots=1)
    with pytest.raises(InvalidRequest, match="has no chat template") as raised:
        await ask([USER], instance)
    assert raised.value.param == "model"


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_cut_off_file_fails_and_the_process_lives(loader: Any, tmp_path: Path, smollm2: Path, share: float) -> None:
    cut = tmp_path / "cut.gguf"
    whole = smollm2.read_bytes()
    cut.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(LoadFailed):
        loader(path=cut)
    given = msgspec.structs.replace(loader.given(), path=str(cut))
    good = LlamaChat.plan(loader.given())
    with pytest.raises(LoadFailed):
        LlamaChat.load(given, good, silent)


def test_progress_is_told_in_bytes(loader: Any, smollm2: Path) -> None:
    loader.progress.told.clear()
    loader(slots=1)
    weights = [(done, total) for stage, done, total in loader.progress.told if stage == "weights"]
    size = smollm2.stat().st_size
    assert weights[-1] == (size, size) and sorted(weights) == weights


def test_loading_and_closing_gives_everything_back(loader: Any) -> None:
    import threading

    before = threading.active_count()
    load = loader.given(slots=1)
    instance = LlamaChat.load(load, LlamaChat.plan(load), silent)
    assert threading.active_count() == before + 1
    instance.close()
    assert threading.active_count() == before


def test_what_registers() -> None:
    [function] = chat_function.coldframe_functions()
    [engine] = llama_engine.coldframe_engines()
    assert function.name == "chat" and "text-generation" in function.tasks
    assert engine.name == "llama" and engine.suffixes == (".gguf",) and engine.name in function.instances
    assert function.operation("chat").streams


def test_registering_imports_no_engine() -> None:
    code = (
        "import sys, functions.chat, functions.engines.llama;"
        "print([m for m in ('llama_cpp', 'numpy', 'jinja2', 'torch') if m in sys.modules and m != 'jinja2'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_forkservers_import_starts_no_thread() -> None:
    [engine] = llama_engine.coldframe_engines()
    code = (
        f"import importlib, os; [importlib.import_module(name) for name in {engine.preload!r}];"
        "import functions.chat.llama; print(len(os.listdir('/proc/self/task')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_every_option_is_documented() -> None:
    assert set(docs(LlamaOptions)) == set(LlamaOptions.__struct_fields__)


@pytest.mark.parametrize(
    "options",
    [
        *[{"batch": 0}, {"ubatch": 1 << 20}, {"gpu_layers": -1}, {"mmap": "yes"}, {"no_such": 1}],
        *[{"flash_attention": "maybe"}, {"cache_type_k": "q3"}, {"chat_template": ""}],
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(options, LlamaOptions)


def test_the_shipped_manifest() -> None:
    manifest, _ = read_manifest(Path(__file__).parents[3] / "manifests" / "smollm2-135m.yaml")
    assert (manifest.name, manifest.task, manifest.slots, manifest.context) == ("smollm2-135m", "chat", 4, 2048)
