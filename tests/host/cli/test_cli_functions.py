"""How every installed function is spoken to from the command line, and the real ones for real."""

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from host.registry import Registry

FUNCTIONS = list(Registry.discover().functions.values())
SPOKEN = [function for function in FUNCTIONS if function.cli]
SHIPPED = Path(__file__).parents[3] / "manifests"


def shell(function):
    module, _, name = function.cli.partition(":")
    return getattr(importlib.import_module(module), name)()


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_a_path_is_one_of_the_functions_routes(function):
    routes = {path for route in function.routes for path in route.paths}
    paths = {operation.path for operation in function.operations if operation.path}
    assert paths <= routes
    assert paths or not function.cli, "words need a route to go to"


@pytest.mark.parametrize("function", SPOKEN, ids=lambda function: function.name)
def test_words_become_a_json_object(function):
    body = shell(function).body("some words")
    assert "some words" in json.dumps(body)
    assert "model" not in body


@pytest.mark.parametrize("function", SPOKEN, ids=lambda function: function.name)
def test_a_shell_needs_no_model_library(function):
    heavy = ["torch", "transformers", "llama_cpp", "numpy", "litestar"]
    module = function.cli.partition(":")[0]
    script = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout
    assert found in ("[]\n", "['litestar']\n"), "a plug-in's package may import its routes"


@pytest.mark.parametrize(
    ("name", "answer", "text"),
    [
        ("chat", {"choices": [{"delta": {"role": "assistant", "content": "a"}}]}, "a"),
        ("chat", {"choices": [{"delta": {}, "finish_reason": "stop"}]}, ""),
        ("chat", {"choices": [], "usage": {"total_tokens": 3}}, ""),
        ("chat", {"choices": [{"message": {"content": "whole"}}]}, "whole"),
        ("embeddings", {"data": [{"embedding": [1.0, 2.0]}, {"embedding": [3.0]}]}, "[1.0,2.0]\n[3.0]"),
        ("echo", {"token": "x", "text": " word"}, " word"),
        ("echo", {"text": "", "report": {"pid": 1}}, '{"pid": 1}'),
        ("echo", {"event": "end", "usage": {}}, ""),
    ],
)
def test_answers_become_text(name, answer, text):
    (function,) = (function for function in FUNCTIONS if function.name == name)
    assert shell(function).show(answer) == text


@pytest.mark.slow
def test_a_chat_model_answers_words(shell_of_the_shipped):
    result = shell_of_the_shipped("smollm2-135m", "Say hello.", "temperature=0", "max_tokens=8")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    whole = shell_of_the_shipped(
        "smollm2-135m", "--json", json.dumps({"messages": [{"role": "user", "content": "Say hello."}]}),
        "temperature=0", "max_tokens=8",
    )  # fmt: skip
    assert whole.stdout == result.stdout, "streamed or not, it says the same"


@pytest.mark.slow
def test_an_embeddings_model_embeds_words(shell_of_the_shipped):
    result = shell_of_the_shipped("all-minilm-l6-v2", "a", "text")
    assert result.returncode == 0, result.stderr
    vector = json.loads(result.stdout)
    assert len(vector) == 384
    assert math.isclose(math.fsum(number * number for number in vector), 1.0, abs_tol=1e-3)


@pytest.fixture
def shell_of_the_shipped():
    """Runs `coldframe run` on the shipped manifests, without a host."""

    def ask(*args):
        command = [sys.executable, "-c", "from host.cli import main; main()", "run", "--manifests", str(SHIPPED), *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    return ask
