"""`coldframe run` without a running host: the manifest is opened for one call, and nothing is left behind."""

import json
import os
import re
import signal
import socket

import pytest


@pytest.fixture(autouse=True)
def nobody(elsewhere):
    """The config names a port at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (elsewhere / "granian.toml").write_text(f"[host]\nport = {port}\n")


@pytest.mark.parametrize("args", [["--inline"], ["--inline", "--no-host"], ["--inline", "--manifests", "manifests"]])
def test_the_manifest_is_opened_here(run, manifests, args):
    manifests.write("a", aliases=["b"])
    for name in ("a", "b"):
        result = run("run", name, "hello", "out there", *args)
        assert (result.exit_code, result.stdout) == (0, "hello out there\n"), result.stderr


def test_a_manifest_file_is_opened_by_its_path(run, elsewhere):
    (elsewhere / "words.echo").write_text("words of the model")
    (elsewhere / "my.yaml").write_text("task: echo\nmodel: ./words.echo\n")
    result = run("run", "./my.yaml", "stream=true", "--inline")
    assert (result.exit_code, result.stdout) == (0, "words of the model\n"), result.stderr


def test_inline_is_this_very_process(run, manifests):
    manifests.write("a")
    assert json.loads(run("run", "a", "report=true", "--inline").stdout)["pid"] == os.getpid()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["a", "hi", "error=queue_full"], "(queue_full)"),
        (["a", "hi", "cuont=1"], "unknown field `cuont`; did you mean `count`? (invalid_request)"),
        (["b", "hi"], "the weights are stale (load_failed)"),
        (["c", "hi"], "is named `c`; there are: a, b; not usable: bad.yaml:2: "),
        (["bad", "hi"], "is named `bad`; there are: a, b; not usable: bad.yaml:2: "),
        (["manifests/bad.yaml", "hi"], "bad.yaml:2: "),
    ],
)
def test_what_goes_wrong_is_one_line(run, manifests, args, words):
    manifests.write("a")
    manifests.write("b", options={"load_fails": "the weights are stale"})
    (manifests.path / "bad.yaml").write_text("task: echo\nmodle: x\n")
    result = run("run", *args, "--inline")
    assert result.exit_code == 1
    said = [line for line in result.stderr.splitlines() if not line.startswith("echo read ")]  # that is the instance
    (line,) = said
    assert line.startswith("coldframe: ")
    assert words in line


def test_without_a_host_at_the_default_url_one_process_is_used_and_given_back(shell, manifests, mark):
    manifests.write("a")
    result = shell("run", "a", "report=true", env=mark.env)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["pid"] > 0
    assert result.stderr == ""
    assert not mark.pids(), "nothing is left at the moment it ends"


def test_a_worker_that_dies_is_one_line(shell, manifests, mark):
    manifests.write("a")
    result = shell("run", "a", "one two three", "crash_after=2", "delay=0.1", env=mark.env)
    assert result.returncode == 1
    assert result.stdout.startswith("one"), "what was said before stays said"
    assert re.search(r"^coldframe: .*SIGSEGV.* \(instance_died\)$", result.stderr)
    assert mark.gone()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("during", ["load", "answer"])
def test_it_leaves_no_process_behind_when_it_is_interrupted(shell, manifests, mark, number, status, during):
    manifests.write("a", options={"load_seconds": 60 if during == "load" else 0})
    process = shell("run", "a", "hi", "hang=true", wait=False, env=mark.env)
    if during == "answer":
        assert process.stdout.read(2) == "hi"
    else:
        while len(mark.pids()) < 3:  # itself, the forkserver and the worker
            assert process.poll() is None
    process.send_signal(number)
    assert process.wait(60) == status
    assert not mark.pids()
    assert process.stderr.read() == ""


def test_verbose_shows_the_log(shell, manifests):
    manifests.write("a")
    result = shell("run", "a", "hi", "-v", "--inline")
    assert result.stdout == "hi\n"
    assert '"event": "request"' in result.stderr


def test_whoever_has_read_enough_may_leave(shell, manifests, mark):
    manifests.write("a")
    process = shell("run", "a", "word", "count=100000", wait=False, env=mark.env)
    assert process.stdout.read(4) == "word"
    process.stdout.close()
    assert process.wait(60) == 1
    assert process.stderr.read() == ""
    process.stdout = None
    assert mark.gone()
