"""The host names no engine, model library or file format: what it knows of them, engines declare."""

import ast
import re
from pathlib import Path

import pytest

import host

FOLDER = Path(host.__file__).parent
ENGINES = re.compile(r"llama|gguf|onnx|safetensors|\btorch\b|(?<!_)transformers", re.IGNORECASE)
ALLOWED = {
    # how a manifest's `model` may be written: examples, and endings that no repository's name has
    "sources/reference.py",
    # the variable by which the hub's client, too, is set offline
    "sources/cache.py",
}
FILES = sorted(file for file in FOLDER.rglob("*.py") if file.relative_to(FOLDER).as_posix() not in ALLOWED)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(FOLDER).as_posix())
def test_no_engine_is_named_outside_of_documentation(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    documentation = {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    named = [
        f"{node.lineno}: {word}"
        for node in ast.walk(tree)
        if node not in documentation
        for word in _words(node)
        if ENGINES.search(word)
    ]
    assert not named


def _words(node: ast.AST) -> list[str]:
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [*(alias.name for alias in names), getattr(node, "module", None) or ""]
    return []
