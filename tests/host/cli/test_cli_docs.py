"""The command line explains itself: in --help, and in docs/cli.md, which names each command and option and no other."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from host.cli import COMMANDS, group

DOCS = (Path(__file__).parents[3] / "docs/cli.md").read_text()


def command(name):
    return group.get_command(click.Context(group), name)


def options(name):
    """The option strings of a command, as a user types them."""
    params = [param for param in command(name).params if isinstance(param, click.Option)]
    return sorted(word for param in params for word in param.opts)


def section(name):
    return DOCS.partition(f"\n## coldframe {name}\n")[2].partition("\n## ")[0]


def test_every_command_has_a_section_and_a_row_and_no_other_has():
    assert re.findall(r"^## coldframe (\w+)$", DOCS, re.MULTILINE) == list(COMMANDS)
    assert re.findall(r"^\| \[`(\w+)`\]", DOCS, re.MULTILINE) == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_row_and_no_other_has(name):
    rows = [line.split("|")[1] for line in section(name).splitlines() if line.startswith("| `-")]
    assert sorted(word for row in rows for word in re.findall(r"`(-[-\w]+)", row)) == options(name)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_a_help_text(run, name):
    result = run(name, "--help")
    assert result.exit_code == 0
    assert all(word in result.stdout for word in options(name))
    for param in command(name).params:
        if isinstance(param, click.Option):
            assert param.help, param.name
            assert param.help.rstrip("]").endswith((".", "8000", "ones", "one", "first", "toml", "0.0.1")), param.help
    assert run(name, "-h").stdout == result.stdout


def test_the_group_lists_every_command(run):
    result = run("--help")
    assert result.exit_code == 0
    assert re.findall(r"^  (\w+)  ", result.stdout, re.MULTILINE) == list(COMMANDS)


def test_the_version_is_the_packages(run):
    from host import __version__

    assert run("--version").stdout == run("-V").stdout == f"coldframe, version {__version__}\n"


@pytest.mark.parametrize(
    ("args", "words"), [(["sevre"], "no such command `sevre`; there are: serve, ls"), ([], "Usage")]
)
def test_what_is_no_command_is_told_with_what_there_is(run, args, words):
    result = run(*args)
    assert result.exit_code == 2
    assert words in result.stderr


def test_the_entry_point_is_this_one():
    from importlib.metadata import entry_points

    (entry,) = entry_points(group="console_scripts", name="coldframe")
    assert entry.load() is importlib.import_module("host.cli").main


@pytest.mark.parametrize(
    ("modules", "kept_out"),
    [
        (["host.cli"], ["litestar", "granian", "httpx", "rich", "structlog", "yaml"]),
        (
            ["host.cli.serve", "host.serve", "host.runtime", "granian.server.embed"],
            ["httpx", "rich.live", "rich.progress"],
        ),
        (["host.cli.ps", "host.cli.load", "host.cli.run"], ["litestar", "granian", "httpx", "rich.progress"]),
        (["host.cli.ls", "host.cli.check", "host.cli.pull"], ["httpx", "granian", "rich.progress"]),
    ],
)
def test_imports_are_late(modules, kept_out):
    script = f"import sys, {', '.join(modules)}; print([m for m in {kept_out} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"
