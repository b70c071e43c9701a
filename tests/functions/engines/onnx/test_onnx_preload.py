"""What importing costs: nothing in the host; in the forkserver no thread, and no word to anybody in any process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from functions.engines.onnx import native_library
from host.registry import Registry


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_plug_in_imports_no_model_library() -> None:
    heavy = ["onnxruntime", "torch", "transformers", "tokenizers", "numpy"]
    code = f"import sys, functions.engines.onnx; print([name for name in {heavy} if name in sys.modules])"
    assert run(code) == "[]"


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
@pytest.mark.parametrize("said", ["0", "1"])
def test_preloading_starts_no_thread_and_imports_no_torch(said: str) -> None:
    code = """
        import os, sys, importlib
        from functions.engines.onnx import ENGINE
        for name in ENGINE.preload:
            importlib.import_module(name)
        print(len(os.listdir("/proc/self/task")), "onnxruntime" in sys.modules, "torch" in sys.modules)
    """
    assert run(code, ORT_DISABLE_TELEMETRY=said) == "1 True False"


def test_the_library_keeps_its_telemetry_off(tmp_path: Path, rampart: Path) -> None:
    """Its official builds write an identifier of the machine into the cache folder, and upload from a thread."""
    code = f"""
        import os
        from functions.engines.onnx.native_library import onnxruntime
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        onnxruntime.InferenceSession({str(rampart / "onnx" / "model_q4.onnx")!r}, settings,
                                     providers=["CPUExecutionProvider"])
        print(len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1)
    """
    assert run(code, HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache")) == "1"
    assert list(tmp_path.rglob("*")) == []


def test_the_engine_is_registered_and_takes_onnx_files() -> None:
    found = Registry.discover()
    assert found.came_from["onnx"] == "onnx"
    assert found.engines["onnx"].suffixes == (".onnx",)
    assert "onnx" in found.functions["embeddings"].instances


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (
            "[ONNXRuntimeError] : 7 : INVALID_PROTOBUF : Load model from /me/model.onnx failed:Parsing failed.",
            "Load model from model.onnx failed:Parsing failed.",
        ),
        (
            "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Odd(1) node with name 'n'",
            "Could not find an implementation for Odd(1) node with name 'n'",
        ),
        ("plain words\nand a second line", "plain words"),
        ("a / b and 1/2 of it", "a / b and 1/2 of it"),
    ],
)
def test_reasons_are_told_without_places(told: str, reason: str) -> None:
    assert native_library.message_of(RuntimeError(told)) == reason
