"""`coldframe check` and `coldframe pull`: manifests and their models, with nothing served."""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import coldframe_echo
import jsonschema
import pytest
import yaml

from host.registry import Registry
from tests.hub import FakeHub

MODEL = Path(coldframe_echo.__file__).parent / "model.echo"

# ------------------------------------------------------------------------------------------------ check: what is right


def test_a_good_manifest_is_printed_with_every_default(run, manifests):
    file = manifests.write("a", idle=90, queue={"wait": "never"}, options={"load_seconds": 2})
    result = run("check", file)
    assert result.exit_code == 0, result.stdout
    head, _, rest = result.stdout.partition("\n")
    assert head == f"# {file}: ok"
    found = yaml.safe_load(rest)
    assert (found["name"], found["engine"], found["idle"]) == ("a", "echo", "1m30s")
    assert found["queue"] == {"size": 64, "wait": "never"}
    assert found["options"]["load_seconds"] == 2
    assert found["options"]["hoard_bytes"] == 0
    assert found["placement"] == "process"


def test_what_is_printed_is_itself_a_manifest(run, manifests):
    printed = run("check", manifests.write("a", idle="never", aliases=["b"])).stdout
    again = manifests.path.parent / "again.yaml"
    again.write_text(printed)
    result = run("check", again)
    assert result.exit_code == 0, result.stdout
    assert result.stdout.partition("\n")[2] == printed.partition("\n")[2]


def test_the_engine_is_chosen_by_the_files_where_they_are_here(run, elsewhere):
    (elsewhere / "words.echo").write_text("some words")
    (elsewhere / "m.yaml").write_text("task: text-echo\nmodel: ./words.echo\n")
    assert "engine: echo" in run("check", "m.yaml").stdout


def test_a_folder_is_all_its_manifests(run, manifests):
    for name in ("a", "b"):
        manifests.write(name)
    (manifests.path / "notes.txt").write_text("not a manifest")
    assert re.findall(r"# (\S+): ok", run("check", "manifests").stdout) == ["manifests/a.yaml", "manifests/b.yaml"]


def test_a_file_that_is_given_twice_is_checked_once(run, manifests):
    file = manifests.write("a")
    result = run("check", file, "manifests", file)
    assert (result.exit_code, result.stdout.count(": ok")) == (0, 1)


# ------------------------------------------------------------------------------------------------ check: what is wrong


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("task: echo\nmodle: x\n", 2, "model"),
        ("task: echo\nmodel: package:coldframe_echo/model.echo\nidel: 3\n", 3, "did you mean `idle`?"),
        ("task: ecco\nmodel: package:coldframe_echo/model.echo\n", 1, "did you mean `echo`?"),
        ("task: echo\nmodel: package:coldframe_echo/none.echo\n", 2, "no such file"),
        ("task: echo\nmodel: package:no_such_package/x.echo\n", 2, "no package"),
        ("task: echo\nmodel: package:coldframe_echo/model.echo\nengine: llama\n", 3, "does not run on `llama`"),
        ("task: echo\nmodel: package:coldframe_echo/model.echo\nplacement: moon\n", 3, "no such placement"),
        ("task: echo\nmodel: package:coldframe_echo/model.echo\noptions:\n  deff: true\n", 4, "did you mean `deaf`?"),
        ("task: echo\nmodel: package:coldframe_echo/model.echo\naliases: [x, x]\n", 3, "stands here twice"),
        ("task: embeddings\nmodel: package:coldframe_echo/model.echo\n", 2, "no engine of `embeddings` runs"),
        ("task: [echo\n", None, "is not YAML"),
        ("", 1, "empty"),
    ],
)
def test_a_wrong_manifest_is_one_line_with_its_place(run, elsewhere, text, line, words):
    (elsewhere / "m.yaml").write_text(text)
    result = run("check", "m.yaml")
    assert result.exit_code == 1
    (told,) = result.stdout.splitlines()
    assert told.startswith("m.yaml:" if line is None else f"m.yaml:{line}: ")
    assert words in told


def test_the_others_are_checked_all_the_same(run, manifests):
    manifests.write("a")
    (manifests.path / "b.yaml").write_text("task: echo\n")
    manifests.write("c")
    result = run("check", "manifests")
    assert result.exit_code == 1
    assert result.stdout.count(": ok") == 2


@pytest.mark.parametrize(
    ("second", "key"), [({"name": "a"}, "name"), ({"aliases": ["a"]}, "aliases"), ({"aliases": ["b"]}, "aliases")]
)
def test_names_are_unique_over_everything_given(run, manifests, elsewhere, second, key):
    manifests.write("a", aliases=["b"])
    other = elsewhere / "other.yaml"
    other.write_text(json.dumps({"task": "echo", "model": "package:coldframe_echo/model.echo", **second}, indent=1))
    result = run("check", "manifests", other)
    assert result.exit_code == 1
    assert re.search(rf"other\.yaml:\d+: {key}: the name `[ab]` is taken by manifests/a\.yaml", result.stdout)


@pytest.mark.parametrize(("path", "words"), [("nowhere", "no such file or folder"), (".", "has no manifest")])
def test_a_path_without_manifests_is_wrong(run, path, words):
    result = run("check", path)
    assert result.exit_code == 1
    assert words in result.stdout


def test_nothing_to_check_is_a_usage_error(run):
    result = run("check")
    assert result.exit_code == 2
    assert "--schema" in result.stderr


# ------------------------------------------------------------------------------------------------ check --schema


def test_the_schema_knows_what_is_installed(run):
    schema = json.loads(run("check", "--schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    registry = Registry.discover()
    assert set(schema["properties"]["task"]["enum"]) >= set(registry.functions)
    assert set(schema["properties"]["engine"]["enum"]) == {"auto", None, *registry.engines}
    good = {"task": "echo", "model": "x", "engine": "echo", "options": {"deaf": True}}
    jsonschema.validate(good, schema)
    for wrong in ({"task": "ecco"}, {"idel": 3}, {"options": {"deff": True}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**good, **wrong}, schema)


# ------------------------------------------------------------------------------------------------ pull


def test_a_manifests_model_is_found_and_its_path_printed(run, manifests):
    manifests.write("a", aliases=["b"])
    result = run("pull", "a", "b")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{MODEL}\n{MODEL}\n"


@pytest.mark.parametrize("model", ["package:coldframe_echo/model.echo", "./words.echo"])
def test_a_bare_reference_is_pulled(run, elsewhere, model):
    (elsewhere / "words.echo").write_text("words")
    result = run("pull", model)
    assert result.exit_code == 0, result.stderr
    assert Path(result.stdout.strip()).read_text()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nothing"], "no manifest in"),
        (["package:coldframe_echo/none.echo"], "no such file"),
        (["./none.echo"], "no such file"),
        (["a//b"], "is no model"),
        (["package:coldframe_echo/model.echo", "--revision", "x"], "only hub repositories have revisions"),
    ],
)
def test_what_cannot_be_had_is_one_line(run, args, words):
    result = run("pull", *args)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("coldframe: ")
    assert words in line


def test_a_manifest_has_its_own_revision(run, manifests):
    manifests.write("a")
    result = run("pull", "a", "--revision", "x")
    assert result.exit_code == 2
    assert "has its own key `revision`" in result.stderr


# ------------------------------------------------------------------------------------------------ pull from a hub


@pytest.fixture
def hub(tmp_path, monkeypatch):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("host.sources.hub_client.PAUSES", (0.0, 0.0))
    with FakeHub() as fake:
        monkeypatch.setenv("HF_ENDPOINT", fake.url)
        yield fake


def test_a_repository_is_fetched_and_its_path_is_all_that_is_printed(run, hub):
    hub.add("org/repo", {"words.gguf": b"GGUF" + bytes(200_000)})
    result = run("pull", "org/repo")
    assert result.exit_code == 0, result.stderr
    (path,) = result.stdout.splitlines()
    assert Path(path).stat().st_size == 200_004
    assert result.stderr == ""
    assert run("pull", "org/repo/words.gguf").stdout == result.stdout


def test_a_bar_is_shown_on_a_terminal(hub, elsewhere):
    hub.add("org/repo", {"words.gguf": b"GGUF" + bytes(3_000_000)})
    hub.options.slow = 0.01
    ours, theirs = os.openpty()
    command = [sys.executable, "-c", "from host.cli import main; main()", "pull", "org/repo"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 4096):
            shown += piece
    path = process.stdout.read().decode().strip()
    process.stdout.close()
    os.close(ours)
    assert process.wait() == 0
    assert Path(path).stat().st_size == 3_000_004
    assert b"org/repo" in shown
    assert b"3.0 MB" in shown


def test_what_the_hub_does_not_have_is_one_line(run, hub):
    result = run("pull", "org/none")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "knows no model org/none" in result.stderr
