"""A folder becomes what is served: names, problems, last good ones, and what happens when it changes."""

import asyncio

import pytest

from host import catalog as catalog_module
from host.catalog import _existing, manifest_files, read_folder
from host.errors import ModelFileNotFound, ModelNotFound
from host.state import State

pytestmark = pytest.mark.anyio
GOOD = "task: echo\nmodel: package:coldframe_echo/model.echo\nplacement: inline\n"


@pytest.fixture
async def made(house):
    return await house()


def refresh(made, **files):
    for name, text in files.items():
        path = made.folder / f"{name}.yaml"
        path.unlink(missing_ok=True) if text is None else path.write_text(text)
    made.runtime.catalog.refresh()
    return made.runtime.catalog


async def test_names_come_from_files_or_from_within(made):
    catalog = refresh(made, a=GOOD, b=GOOD + "name: bee\naliases: [b1, org/b2]\n")
    assert [d.name for d in catalog] == ["a", "bee"]
    assert len(catalog) == 2
    assert catalog.find("b1") is catalog.find("org/b2") is catalog.find("bee")
    with pytest.raises(ModelNotFound):
        catalog.find("b")


async def test_a_second_look_changes_nothing(made):
    catalog = refresh(made, a=GOOD)
    before = catalog.find("a")
    assert refresh(made, a=GOOD).find("a") is before
    assert refresh(made, a=GOOD + "# a comment\n").find("a") is before
    assert catalog.entry(before.manifest).file.name == "a.yaml"


async def test_a_change_retires_the_old_one(made):
    before = refresh(made, a=GOOD).find("a")
    await before.load()
    after = refresh(made, a=GOOD + "slots: 3\n").find("a")
    assert after is not before
    await made.until(lambda: before.state is State.COLD)
    assert [event.reason for event in made.told("Evicted")] == ["changed"]
    refresh(made, a=None)
    assert len(made.runtime.catalog) == 0


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("task: [", None, 1),
        (GOOD + "slots: many\n", "slots", 4),
        (GOOD + "slotz: 1\n", "slotz", 4),
        (GOOD.replace("echo\nmodel", "ech\nmodel"), "task", 1),
        (GOOD.replace("inline", "nowhere"), "placement", 3),
        (GOOD + "options: {capacityy: 2}\n", "options.capacityy", 4),
        (GOOD + "engine: llama\n", "engine", 4),
    ],
    ids=["no yaml", "type", "unknown", "task", "placement", "option", "engine"],
)
async def test_a_problem_says_where_it_is_and_hurts_no_other_file(made, text, key, line):
    catalog = refresh(made, a=text, b=GOOD)
    assert [d.name for d in catalog] == ["b"]
    (problem,) = catalog.problems.values()
    assert (problem.file, problem.serving_last_good) == ("a.yaml", False)
    assert (problem.key or "").endswith(key.rpartition(".")[2] if key else "")
    assert problem.line in (line, None) if key == "model" else problem.line == line


async def test_a_broken_file_keeps_what_it_last_said_well(made):
    before = refresh(made, a=GOOD + "aliases: [x]\n").find("x")
    catalog = refresh(made, a="task: [")
    assert catalog.find("x") is before
    assert next(iter(catalog.problems.values())).serving_last_good
    assert refresh(made, a="still: broken").find("x") is before
    assert refresh(made, a=GOOD).find("a") is not before
    assert catalog.problems == {}


async def test_the_first_file_keeps_a_name_that_two_claim(made):
    catalog = refresh(
        made, b=GOOD + "name: x\n", a=GOOD + "name: x\n", c=GOOD + "aliases: [x]\n", d=GOOD + "aliases: [d]\n"
    )
    assert catalog.entry(catalog.find("x").manifest).file.name == "a.yaml"
    told = {problem.file: problem.message for problem in catalog.problems.values()}
    assert told.keys() == {"b.yaml", "c.yaml", "d.yaml"}
    assert "taken by a.yaml" in told["b.yaml"]
    assert "stands here twice" in told["d.yaml"]


async def test_a_last_good_one_gives_way_to_whoever_has_its_name_now(made):
    refresh(made, b=GOOD + "name: x\n")
    catalog = refresh(made, a=GOOD + "name: x\nslots: 2\n", b="broken: [")
    assert catalog.find("x").manifest.slots == 2
    assert [problem.serving_last_good for problem in catalog.problems.values()] == [False]


async def test_a_name_stays_with_the_file_that_is_served_under_it(made):
    refresh(made, b=GOOD)
    served = made.runtime.catalog.find("b")
    catalog = refresh(made, a=GOOD + "aliases: [b]\n")
    assert catalog.find("b") is served
    assert [problem.file for problem in catalog.problems.values()] == ["a.yaml"]
    catalog = refresh(made, b=None)
    assert catalog.find("b").name == "a"


async def test_what_cannot_be_a_manifest_is_told(made):
    (made.folder / "dir.yaml").mkdir()
    (made.folder / "link.yaml").symlink_to(made.folder / "nowhere")
    catalog = refresh(made, a=GOOD)
    assert catalog.find("a")
    assert sorted(problem.file for problem in catalog.problems.values()) == ["dir.yaml", "link.yaml"]


async def test_a_model_that_is_not_here_yet_is_the_calls_to_tell(made):
    catalog = refresh(made, a=GOOD.replace("package:coldframe_echo/model.echo", "./late.echo"))
    assert not catalog.problems
    with pytest.raises(ModelFileNotFound):
        await catalog.find("a").acquire()
    (made.folder / "late.echo").write_text("here")
    await catalog.find("a").load()


async def test_a_check_that_raises_anything_is_that_files_problem(made):
    check = made.runtime.check

    def broken(manifest, document):
        if manifest.name == "a":
            raise ZeroDivisionError("secret")
        return check(manifest, document)

    for name in "ab":
        (made.folder / f"{name}.yaml").write_text(GOOD)
    entries, problems = read_folder(made.folder, broken)
    assert [entry.manifest.name for entry in entries.values()] == ["b"]
    assert "ZeroDivisionError" in next(iter(problems.values())).message
    assert "secret" not in next(iter(problems.values())).message


async def test_files_that_are_no_manifests(tmp_path):
    for name in ("b.yaml", "a.yml", ".x.yaml", "c.txt", "d.yaml~", "e.YAML.bak"):
        (tmp_path / name).write_text("")
    (tmp_path / "dir.yaml").mkdir()
    (tmp_path / "link.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loud.YAML").write_text("")
    assert [file.name for file in manifest_files(tmp_path)] == ["a.yml", "b.yaml", "dir.yaml", "link.yaml", "loud.YAML"]
    assert manifest_files(tmp_path / "c.txt") == [tmp_path / "c.txt"]
    assert manifest_files(tmp_path / "missing") == []


async def test_the_nearest_folder_that_exists_is_watched(tmp_path):
    assert _existing(tmp_path) == tmp_path
    assert _existing(tmp_path / "x/y/z") == tmp_path


async def test_links_that_are_switched_are_seen(made):
    """As Kubernetes mounts a ConfigMap: files are links into a folder that is itself a link."""
    for version, slots in (("v1", 1), ("v2", 2)):
        (made.folder.parent / version).mkdir(exist_ok=True)
        (made.folder.parent / version / "a.yaml").write_text(GOOD + f"slots: {slots}\n")
    data = made.folder / "..data"
    data.symlink_to(made.folder.parent / "v1")
    (made.folder / "a.yaml").symlink_to("..data/a.yaml")
    made.runtime.start(warm=False)
    assert made.runtime.catalog.find("a").manifest.slots == 1
    await asyncio.sleep(0.3)
    draft = made.folder / "..tmp"
    draft.symlink_to(made.folder.parent / "v2")
    draft.replace(data)
    await made.until(lambda: made.runtime.catalog.find("a").manifest.slots == 2)


async def test_a_change_in_the_moment_watching_begins_is_seen(made, monkeypatch):
    monkeypatch.setattr(catalog_module, "_LOOK", 300)
    (made.folder / "a.yaml").write_text(GOOD)
    made.runtime.start(warm=False)
    (made.folder / "b.yaml").write_text(GOOD)  # nobody watches yet
    await made.until(lambda: len(made.runtime.catalog) == 2)
