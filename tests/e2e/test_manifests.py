"""The folder is watched: what comes, changes, breaks or goes takes effect without a restart, and nobody is cut off."""

import threading
import time

import pytest


@pytest.fixture
def host(start):
    return start({"a": {}})


def test_a_manifest_that_comes_is_served(host):
    host.write("b")
    host.until(lambda: host.status("b"))
    assert host.echo("b").status_code == 200
    assert "b" in {model["id"] for model in host.client.get("/v1/models").json()["data"]}


def test_a_manifest_that_goes_is_not_and_its_streams_end_well(host, frames):
    with host.open(text="1 2 3 4 5 6", delay=0.15) as response:
        got = frames(response)
        assert next(got)["text"] == "1"
        (host.folder / "a.yaml").unlink()
        host.until(lambda: host.status("a") is None)
        assert host.echo("a").status_code == 404
        assert [frame["text"] for frame in got if "text" in frame] == [" 2", " 3", " 4", " 5", " 6"]
    host.until(lambda: len(host.tree()) == 2)  # the host and the forkserver


def test_a_manifest_that_changes_is_new_for_new_calls_and_old_for_running_ones(host, frames):
    with host.open(text="1 2 3 4 5 6", delay=0.15) as response:
        got = frames(response)
        assert next(got)["text"] == "1"
        old = host.status("a")["pid"]
        host.write("a", slots=7)
        host.until(lambda: host.status("a")["state"] == "cold")
        assert host.echo("a", text="new").json()["text"] == "new"
        status = host.status("a")
        assert (status["slots"], status["pid"] != old) == (7, True)
        assert [frame["text"] for frame in got if "text" in frame] == [" 2", " 3", " 4", " 5", " 6"]
    host.until(lambda: old not in host.tree())


def test_calls_that_wait_for_the_old_one_go_to_the_new_one(host):
    host.write("one", slots=1)
    host.until(lambda: host.status("one"))
    with host.open("one", hang=True) as running:
        lines = running.iter_lines()
        next(lines)
        answers = []
        waits = threading.Thread(target=lambda: answers.append(host.echo("one", text="waited").json()["text"]))
        waits.start()
        host.until(lambda: host.status("one")["waiting"] == 1)
        host.write("one", slots=2)
        waits.join(60)
        assert answers == ["waited"]


def test_a_broken_one_is_reported_and_the_last_good_one_goes_on(host):
    assert host.echo().status_code == 200
    pid = host.status("a")["pid"]
    for text, key in (
        ("task: echo\nmodel: [", None),
        ("task: ech\nmodel: x\n", "task"),
        ("", None),
        ("name: a\nmodell: x\n", "modell"),
    ):
        (host.folder / "a.yaml").write_text(text)
        host.until(lambda key=key: [p["key"] for p in problems(host)] == [key])
        (problem,) = problems(host)
        assert (problem["file"], problem["serving_last_good"]) == ("a.yaml", True)
        assert problem["message"]
        assert host.echo().status_code == 200
        assert host.status("a")["pid"] == pid
    host.write("a")
    host.until(lambda: problems(host) == [])
    assert host.status("a")["pid"] == pid  # says what it said before


def test_a_broken_newcomer_is_reported_and_mended(host):
    (host.folder / "new.yaml").write_text("task: ech\nmodel: ./x.echo\n")
    host.until(lambda: problems(host))
    assert problems(host)[0]["serving_last_good"] is False
    assert host.status("new") is None
    host.write("new")
    host.until(lambda: host.status("new"))
    assert problems(host) == []


def test_a_name_that_two_claim_stays_with_the_first_file(host):
    host.echo()
    pid = host.status("a")["pid"]
    host.write("a", file="z", slots=3)
    host.write("y", aliases=["a"])
    host.until(lambda: len(problems(host)) == 2)
    assert {problem["file"] for problem in problems(host)} == {"y.yaml", "z.yaml"}
    assert all("taken by a.yaml" in problem["message"] for problem in problems(host))
    assert host.status("a")["pid"] == pid
    (host.folder / "a.yaml").unlink()
    host.until(lambda: len(problems(host)) == 1)  # y comes before z, and has the name now
    assert host.echo("a").status_code == 200


def test_a_renamed_file_of_the_same_name_changes_nothing(host):
    host.echo()
    pid = host.status("a")["pid"]
    (host.folder / "a.yaml").rename(host.folder / "b.yaml")
    looked(host)
    assert host.status("a")["pid"] == pid
    assert host.echo().status_code == 200


def test_a_renamed_model_is_served_under_its_new_name_only(host):
    host.write("b", file="a")
    host.until(lambda: host.status("b"))
    assert host.echo("a").status_code == 404
    assert host.echo("b").status_code == 200


def test_two_hundred_at_once(host):
    for n in range(200):
        host.write(f"m{n:03}", aliases=[f"alias-{n}"])
    host.until(lambda: len(host.client.get("/v1/functions").json()["data"]) == 201)
    assert host.echo("alias-199").status_code == 200
    for file in host.folder.glob("m*.yaml"):
        file.unlink()
    host.until(lambda: len(host.client.get("/v1/functions").json()["data"]) == 1)


def test_other_files_are_nobodys_business(host):
    for name in ("README.md", ".hidden.yaml", "x.yaml~", "x.yaml.swp", "4913"):
        (host.folder / name).write_text("{{{")
    looked(host)
    assert problems(host) == []


def test_preload_loads_at_the_start_and_when_it_comes(start):
    host = start({"a": {"preload": True}, "b": {}})
    host.until_state("a", "ready")
    host.write("c", preload=True)
    host.until_state("c", "ready")
    assert host.status("b")["state"] == "cold"


def test_a_folder_that_is_made_later_is_watched(start, tmp_path):
    host = start({}, manifests=str(tmp_path / "later" / "deep"))
    host.folder = tmp_path / "later" / "deep"
    host.folder.mkdir(parents=True)
    time.sleep(0.7)
    host.write("a")
    host.until(lambda: host.status("a"))
    assert host.echo("a").status_code == 200


def test_only_serves_one_and_what_it_becomes(start):
    host = start({"a": {"aliases": ["alias"]}, "b": {}}, only="alias")
    assert [f["name"] for f in host.client.get("/v1/functions").json()["data"]] == ["a"]
    assert host.echo("b").status_code == 404
    host.write("c")
    host.write("a", aliases=["alias"], slots=2)
    host.until(lambda: host.echo("alias").status_code == 200 and host.status("a")["slots"] == 2)
    assert [f["name"] for f in host.client.get("/v1/functions").json()["data"]] == ["a"]


def looked(host):
    """Wait until the host has read the folder as it is now."""
    host.write("last")
    host.until(lambda: host.status("last"))


def problems(host):
    return host.client.get("/v1/functions").json()["problems"]
