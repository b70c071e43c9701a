"""`coldframe ls`: what is installed, what is disabled, and what is wrong with manifests."""

import json

import pluggy
import pytest

from host import hooks
from host.cli import defaults
from host.cli.ls import _lines, inventory
from host.cli.manifests import ManifestSet
from host.function import Engine, Function, Operation
from host.registry import Origin, Registry


def test_shows_plugins_with_where_they_came_from(run, manifests):
    manifests.write("a", aliases=["b"])
    result = run("ls")
    assert result.exit_code == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["echo", "echo", "echo,", "echo_once", "text-echo", "echo", "coldframe-echo", "-"] in rows
    assert ["echo", ".echo", "echo", "coldframe-echo", "-"] in rows
    assert ["SOURCES", "package,", "path,", "hub"] in rows
    assert ["PLACEMENTS", "inline,", "process"] in rows
    assert ["a", "echo", "echo", "process", "package:coldframe_echo/model.echo", "b", "manifests/a.yaml"] in rows


def test_json_says_the_same(run, manifests):
    manifests.write("a", aliases=["b"])
    (manifests.path / "bad.yaml").write_text("task: echo\nmodle: x\n")
    found = json.loads(run("ls", "--json").stdout)
    (echo,) = (row for row in found["functions"] if row["name"] == "echo")
    assert echo["distribution"] == "coldframe-echo"
    assert echo["disabled"] is None
    assert found["manifests"] == [
        {
            "name": "a",
            "aliases": ["b"],
            "task": "echo",
            "engine": "echo",
            "placement": "process",
            "model": "package:coldframe_echo/model.echo",
            "remote_code": False,
            "file": "manifests/a.yaml",
        }
    ]
    (problem,) = found["problems"]
    assert (problem["file"], problem["line"]) == ("bad.yaml", 2)
    assert "model" in problem["message"]


def test_models_that_run_code_of_their_own_are_named(run, manifests):
    for name, options in (("a", {"trust_remote_code": True}), ("b", {"trust_remote_code": False}), ("c", {})):
        written = f"task: embeddings\nengine: transformers\nmodel: ./{name}\noptions: {json.dumps(options)}\n"
        (manifests.path / f"{name}.yaml").write_text(written)
        (manifests.path / name).mkdir()
        (manifests.path / name / "config.json").write_text("{}")
        (manifests.path / name / "model.safetensors").touch()
    assert "Python code in the model's own folder runs for: a (trust_remote_code)" in run("ls").stdout
    found = json.loads(run("ls", "--json").stdout)
    assert {row["name"]: row["remote_code"] for row in found["manifests"]} == {"a": True, "b": False, "c": False}


def test_a_broken_manifest_is_shown_with_its_line(run, manifests):
    (manifests.path / "bad.yaml").write_text("task: echo\nmodel: package:coldframe_echo/model.echo\nidel: 3\n")
    result = run("ls")
    assert result.exit_code == 0
    assert "not served: bad.yaml:3: idel: " in result.stdout
    assert "There is no manifest in manifests that can be served." in result.stdout


def test_a_folder_that_is_not_there_is_an_error(run):
    result = run("ls", "--manifests", "nowhere")
    assert result.exit_code == 1
    assert result.stderr == "coldframe: --manifests: no such file or folder: nowhere\n"


class Lame:
    @staticmethod
    @hooks.hookimpl
    def coldframe_engines():
        return [Engine(name="lame", summary="", requires=("no_such_library",))]

    @staticmethod
    @hooks.hookimpl
    def coldframe_functions():
        operation = Operation(name="limp", request=int, answer=int)
        return [Function(name="walk", summary="", operations=(operation,), instances={"lame": "x:Y"})]


@pytest.fixture
def lame(manifests):
    plugins = pluggy.PluginManager(hooks.GROUP)
    plugins.add_hookspecs(hooks)
    plugins.register(Lame, name="lame_plugin")
    origins = (
        Origin(plugin="lame_plugin", module="lame", distribution="lame-dist"),
        Origin(plugin="broken", module="broken", distribution="broken-dist", disabled="ImportError: no module"),
    )
    return "\n".join(_lines(inventory(ManifestSet(manifests.path, Registry(plugins, origins)))))


def test_what_is_disabled_is_shown_with_the_reason(lame):
    assert "not installed: no_such_library" in lame
    (row,) = (line for line in lame.splitlines() if line.startswith("walk"))
    assert "lame-dist" in row
    assert "no engine to run on" in row
    assert "The plug-in broken is disabled: ImportError: no module" in lame


# ------------------------------------------------------------------------------------------------ where things are


def test_what_is_shipped_is_found_in_a_checkout_and_in_a_wheel(tmp_path, monkeypatch):
    assert defaults.shipped("granian.toml").is_file()
    package = tmp_path / "host"
    (package / "data" / "manifests").mkdir(parents=True)
    (package / "data" / "granian.toml").write_text("")
    monkeypatch.setattr(defaults, "_PACKAGE", package)
    assert defaults.shipped("granian.toml") == package / "data" / "granian.toml"
    assert defaults.shipped("manifests") == package / "data" / "manifests"


def test_the_config_is_the_one_named_then_the_one_here_then_the_shipped_one(elsewhere, tmp_path):
    assert defaults.settings().port == 8000
    (elsewhere / "granian.toml").write_text("[host]\nport = 1\n")
    named = tmp_path / "other.toml"
    named.write_text("[host]\nport = 2\n")
    assert defaults.settings().port == 1
    assert defaults.settings(named).port == 2


def test_the_manifests_are_the_ones_named_then_the_ones_here_then_the_shipped_ones(elsewhere, tmp_path):
    def folder(config="", option=None):
        (elsewhere / "granian.toml").write_text(config)
        return defaults.with_manifests(defaults.settings(), option).manifests

    assert folder() == defaults.shipped("manifests")
    (elsewhere / "manifests").mkdir()
    assert str(folder()) == "manifests"
    (elsewhere / "models").mkdir()
    assert str(folder('[host]\nmanifests = "models"\n')) == "models"
    assert folder('[host]\nmanifests = "models"\n', tmp_path) == tmp_path


def test_a_folder_that_the_config_names_has_to_exist(run, elsewhere):
    (elsewhere / "granian.toml").write_text('[host]\nmanifests = "models"\n')
    result = run("ls")
    assert (result.exit_code, result.stderr) == (1, "coldframe: host.manifests: no such file or folder: models\n")


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        ("http://h:1", "http://h:1"),
        ("http://h:1/", "http://h:1"),
        ("http://h:1/v1", "http://h:1"),
        ("h:1", "http://h:1"),
        ("https://h/prefix", "https://h/prefix"),
    ],
)
def test_a_url_is_taken_as_people_write_it(option, wanted):
    assert defaults.url(option) == wanted


@pytest.mark.parametrize("option", ["", "ftp://h", "http://", "http://h:port", "http://h:99999"])
def test_what_is_no_url_is_refused(run, option):
    result = run("ps", "--url", option)
    assert result.exit_code == 2
    assert "expected an address such as http://127.0.0.1:8000" in result.stderr


def test_without_a_url_the_config_and_port_say_where_the_host_is(elsewhere, monkeypatch):
    monkeypatch.setenv("PORT", "81")
    assert defaults.url(None) == "http://127.0.0.1:81"
    (elsewhere / "granian.toml").write_text('[host]\nport = 82\naddress = "0.0.0.0"\n')
    assert defaults.url(None) == "http://127.0.0.1:82"
