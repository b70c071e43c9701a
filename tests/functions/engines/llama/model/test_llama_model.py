"""Opening files: errors and their messages, metadata, and the vocabulary."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import walks
from hypothesis import given
from hypothesis import strategies as st

from functions.engines.llama.memory.devices import Target, choose, pool_of
from functions.engines.llama.model import log
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.log import ran_out_of_memory, reason
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions
from host.errors import LoadFailed

OPTIONS = LlamaOptions()


def opened(path: Path) -> Model:
    return Model.open(str(path), OPTIONS, Target())


def test_metadata_of_a_file(model: Model) -> None:
    assert (model.trained, model.layers, model.window, model.recurrent) == (8192, 30, 0, False)
    assert "Q4_1" in model.description() and 90 << 20 < model.bytes < 100 << 20
    assert model.metadata("general.architecture") == "llama"
    assert model.metadata("tokenizer.chat_template") == model.chat_template()
    assert model.metadata("no.such.key") is None


def test_progress_goes_from_0_to_1(smollm2: Path) -> None:
    told: list[float] = []
    Model.open(str(smollm2), OPTIONS, Target(), progress=told.append).close()
    assert told == sorted(told) and told[-1] == 1.0 and len(told) > 2


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match=r"gone\.gguf is not there"):
        opened(tmp_path / "gone.gguf")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="cannot be read"):
        opened(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip", b"<!DOCTYPE html>"])
def test_another_kind_of_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(LoadFailed, match="not a GGUF file"):
        opened(tmp_path / "x.gguf")


@pytest.mark.parametrize("share", [0.5, 0.98, 0.02])
def test_a_truncated_file(tmp_path: Path, smollm2: Path, share: float) -> None:
    whole = smollm2.read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(LoadFailed, match=r"cut\.gguf cannot be loaded: .+") as raised:
        opened(tmp_path / "cut.gguf")
    assert "gave no reason" not in raised.value.message
    assert str(tmp_path) not in raised.value.message, "clients see this: no folders"


@pytest.mark.parametrize("head", [b"GGUF", b"GGUF" + b"\xff" * 60, b"GGUF\x03\0\0\0" + b"\x01" + b"\0" * 40])
def test_a_broken_header(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "broken.gguf").write_bytes(head)
    with pytest.raises(LoadFailed, match="cannot be loaded"):
        opened(tmp_path / "broken.gguf")


def test_after_all_this_good_files_still_open(smollm2: Path) -> None:
    opened(smollm2).close()


def test_closing_twice(smollm2: Path) -> None:
    model = Model.open(str(smollm2), OPTIONS, Target(), sizes_only=True)
    model.close()
    model.close()


WITH_LITTLE_MEMORY = """
import resource, sys
from functions.engines.llama.model.context import Context
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions
from host.errors import OutOfMemory
model = Model.open(sys.argv[1], LlamaOptions(), Target())
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (256 << 20),) * 2)
try:
    Context.open(model, LlamaOptions(), Target(), context=8192, slots=4)
except OutOfMemory as error:
    print("refused:", error.message)
Context.open(model, LlamaOptions(batch=32, ubatch=32), Target(), context=256, slots=1).close()
print("smaller fits")
"""


@pytest.mark.slow
def test_a_kv_cache_that_does_not_fit(smollm2: Path) -> None:
    # In a process of its own: the limit on memory cannot be lifted again.
    command = [sys.executable, "-c", WITH_LITTLE_MEMORY, str(smollm2)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    first, second = done.stdout.splitlines()
    assert (
        first.startswith("refused: a cache of 4 x 8192 tokens does not fit into memory:") and second == "smaller fits"
    )


def test_values_that_need_flash_attention(smollm2: Path) -> None:
    # The options refuse quantised values without it; with `auto` llama.cpp switches it on for them.
    model = Model.open(str(smollm2), OPTIONS, Target(), sizes_only=True)
    with log.listen() as heard:
        options = LlamaOptions(cache_type_v="q8_0", flash_attention="auto")
        Context.open(model, options, Target(), context=256, slots=1).close()
    model.close()
    assert any("flash_attn" in line and line.endswith("enabled") for _, line in heard)


def test_llama_cpp_messages_without_the_folder() -> None:
    heard = [(2, "info"), (3, "f: warned"), (4, "load: error in /a/b/m.gguf\n"), (4, "load: error in /a/b/m.gguf")]
    assert reason(heard, "/a/b/m.gguf") == "error in m.gguf"
    assert reason(heard[:2], "") == "f: warned"
    assert reason([], "") == ""
    assert ran_out_of_memory([(4, "ggml: Failed to allocate buffer")]) and not ran_out_of_memory(heard)


@pytest.mark.soak
@walks.examples(60, 1000)
@given(st.text(alphabet="ab  \n\t0<|>äßéñ漢字かな🦊🙂", max_size=60))
def test_tokens_spell_the_text(model: Model, text: str) -> None:
    words = model.vocabulary
    ids = words.tokenize(text, special=False)
    assert b"".join(map(words.piece, ids)) == text.encode("utf-8", "replace")


def test_special_tokens_are_parsed_only_on_request(model: Model) -> None:
    words = model.vocabulary
    assert len(words.tokenize("<|im_end|>", special=True)) == 1
    assert len(words.tokenize("<|im_end|>", special=False)) > 1
    assert words.piece(2) == b"" and words.spelled(2) == "<|im_end|>" and words.spelled(None) == ""


def test_end_of_generation_tokens(model: Model) -> None:
    words = model.vocabulary
    assert words.ends(2) and not words.ends(500)
    assert set(words.enders) == {token for token in range(words.size) if words.ends(token)}


@pytest.mark.parametrize("adds", [False, True])
def test_bos_is_added_exactly_once(model: Model, monkeypatch: pytest.MonkeyPatch, adds: bool) -> None:
    words = model.vocabulary
    monkeypatch.setattr(words, "adds_bos", adds)
    [bos] = words.tokenize("<|im_start|>", special=True)
    assert bos == words.bos
    for text in ("<|im_start|>user", "<|im_start|><|im_start|>user", "<|im_start|>" * 3 + "user"):
        assert words.prompt(text) == words.tokenize("<|im_start|>user", special=True)
    bare = words.tokenize("user", special=True)
    assert words.prompt("user") == ([bos, *bare] if adds else bare)
    monkeypatch.setattr(words, "bos", None)
    assert words.prompt("user") == bare


@pytest.mark.parametrize(
    ("name", "pool"),
    [
        *[(name, "ram") for name in ("CPU", "CPU_Mapped", "CPU_REPACK", "CUDA_Host", "ROCm_Host")],
        *[("CUDA0", "cuda:0"), ("CUDA12", "cuda:12"), ("ROCm1", "cuda:1"), ("Vulkan0", "vulkan:0")],
        *[(name, "mps") for name in ("Metal", "MTL0", "Metal_Mapped")],
    ],
)
def test_pools_are_named_as_torch_names_devices(name: str, pool: str) -> None:
    assert pool_of(name) == pool


def test_cpu_takes_no_accelerator() -> None:
    target = choose("cpu")
    assert target.device is None and target.pool == "ram" and list(target.array()) == [None]


def test_an_accelerator_that_is_not_there() -> None:
    if choose("auto").device is not None:
        pytest.skip("there is one here")
    for device in ("cuda", "cuda:3", "mps"):
        with pytest.raises(LoadFailed, match=f"device: {device} is not there"):
            choose(device)
