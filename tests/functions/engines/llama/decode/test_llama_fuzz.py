"""Hundreds of files with mutated heads, each opened and computed in a fork of its own.

llama.cpp may abort or crash on some: that is what workers are for. It must not hang, and what it refuses must come as
one of our errors. Our own reader of heads runs in the host's place, so to speak: it must never do worse than refuse.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import walks
from ggufs import llamas

from functions.engines.llama.model import gguf

EACH = walks.size(40, 60)
TRY = """
import json, os, resource, signal, sys, traceback
from pathlib import Path
from functions.engines.llama.model.context import Context
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.memory.estimate import MemoryEstimate
from host.errors import ColdframeError

def attempt(path):
    options, target = LlamaOptions(batch=32, ubatch=32), Target()
    estimate = MemoryEstimate(path, options)
    estimate.model(), estimate.layers(), estimate.context(target, 64, 1)
    model = Model.open(path, options, target)
    for name in ("general.architecture", "general.name"):
        model.metadata(name)
    tokens = model.vocabulary.prompt("Hello you <s>")[:20]
    context = Context.open(model, options, target, context=64, slots=1)
    context.begin()
    context.add(0, tokens, 0, output=1)
    if context.compute() == 0:
        context.logits(len(tokens) - 1)
    context.close()
    model.close()

outcomes = {}
for path in sorted(map(str, Path(sys.argv[1]).glob("*.gguf"))):
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(60)
        try:
            attempt(path)
            code = 0
        except (ColdframeError, MemoryError):
            code = 10
        except BaseException:
            traceback.print_exc()
            code = 11
        os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    outcomes.setdefault(status, []).append(path)
print(json.dumps(outcomes))
"""


def mutated(whole: bytes, head: int, dice: random.Random) -> bytes:
    data = bytearray(whole)
    for _ in range(dice.choice([1, 1, 1, 2, 4, 16])):
        if len(data) < 8:
            break
        at = dice.randrange(4, min(head, len(data)))
        match dice.randrange(6):
            case 0:
                data[at] ^= 1 << dice.randrange(8)
            case 1:
                data[at : at + 8] = struct.pack("<Q", dice.choice([0, 1, 255, 2**31, 2**32 - 1, 2**63, 2**64 - 1]))
            case 2:
                data[at : at + 4] = struct.pack("<I", dice.randrange(64))
            case 3:
                del data[at : at + dice.randrange(1, 40)]
            case 4:
                data[at:at] = data[at : at + dice.randrange(1, 40)]
            case 5:
                del data[at + dice.randrange(len(data) - at) :]
    return bytes(data)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return llamas.write(tmp_path_factory.mktemp("gguf") / "m.gguf", *llamas.llama(layers=1)).read_bytes()


def heads(whole: bytes) -> int:
    """Return where the numbers of the first tensor begin, about."""
    return whole.index(b"ffn_down") + 200


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("batch", walks.seeds(3, 12))
def test_llama_cpp_in_forks(whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    dice = random.Random(batch)
    for number in range(EACH):
        (tmp_path / f"{number:03}.gguf").write_bytes(mutated(whole, heads(whole), dice))
    done = subprocess.run([sys.executable, "-c", TRY, str(tmp_path)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    assert sum(map(len, outcomes.values())) == EACH
    assert outcomes.get("10"), "some are refused"
    assert "11" not in outcomes, f"an error that is not ours: {done.stderr[-2000:]}"
    assert "-14" not in outcomes, f"hangs on {outcomes['-14']}"
    died = sum(len(files) for code, files in outcomes.items() if int(code) < 0)
    assert died <= EACH // 4, outcomes


def test_the_header_reader_only_raises_its_own_errors(whole: bytes, tmp_path: Path) -> None:
    dice, path, refused = random.Random(9), tmp_path / "m.gguf", 0
    began = time.process_time()
    for _ in range(2000):
        path.write_bytes(mutated(whole, heads(whole), dice))
        try:
            found = gguf.read(path)
        except gguf.GgufError:
            refused += 1
        else:
            assert all(size >= 0 for size in found.tensors.values())
    assert refused > 500 and time.process_time() - began < 30


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GGUF", "ends within its header"),
        (b"PK\x03\x04" + bytes(60), "not a GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version is 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "counts more"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 63), "ends within"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 77), "unknown type 77"),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 8, 1 << 50),
            "longer than the file",
        ),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<I", 9) + bytes(80), "9 dimensions"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, 1, 999, 0), "unknown type 999"),
    ],
)
def test_errors_in_a_header(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(gguf.GgufError, match=words):
        gguf.read(tmp_path / "m.gguf")


def test_a_header_has_the_bytes_of_tensors(tmp_path: Path, smollm2: Path) -> None:
    metadata, tensors = llamas.llama()
    found = gguf.read(llamas.write(tmp_path / "m.gguf", metadata, tensors))
    assert found.tensors == {name: tensor.nbytes for name, tensor in tensors.items()}
    assert found.texts["general.architecture"] == "llama"
    # The real file has an output that is the embedding again, kept once; the sum is what llama.cpp says.
    assert sum(gguf.read(smollm2).tensors.values()) == 96_576_768


def test_all_files_of_a_split_model(tmp_path: Path) -> None:
    metadata, tensors = llamas.llama()
    for number, names in enumerate((list(tensors)[:5], list(tensors)[5:]), 1):
        part = {name: tensors[name] for name in names}
        llamas.write(tmp_path / f"m-{number:05d}-of-00002.gguf", metadata, part)
    found = gguf.read(tmp_path / "m-00001-of-00002.gguf")
    assert set(found.tensors) == set(tensors)
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    with pytest.raises(FileNotFoundError):
        gguf.read(tmp_path / "m-00001-of-00002.gguf")
