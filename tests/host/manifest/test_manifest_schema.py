"""The JSON schema: valid, its references resolve, and it takes what the parser takes and refuses what that refuses."""

from importlib.metadata import entry_points
from pathlib import Path

import jsonschema
import msgspec
import pytest
import yaml

from host.manifest import Duration, Manifest, Queue, schema
from host.manifest.schema import docs

SHIPPED = sorted(p for p in (Path(__file__).parents[3] / "manifests").iterdir() if p.suffix in {".yaml", ".yml"})


BASE = "task: chat\nmodel: org/repo\n"


class Inner(msgspec.Struct, kw_only=True, frozen=True):
    """Something inside."""

    wait: Duration = 1.0
    """How long."""


class Small(msgspec.Struct, kw_only=True, frozen=True):
    """Options of an engine."""

    threads: int = 1
    """How many."""
    inner: Inner | None = None
    """More of it."""
    many: list[Inner] = []


class Other:
    class Small(msgspec.Struct, kw_only=True, frozen=True):
        """Options of another engine, whose Struct has the same name."""

        depth: int = 0


def registered():
    """Returns engine name -> Struct of options, for every engine that the installed plug-ins register."""
    modules = {entry.name: _loaded(entry) for entry in entry_points(group="coldframe")}
    hooks = [module.coldframe_engines for module in modules.values() if hasattr(module, "coldframe_engines")]
    return {engine.name: engine.options for hook in hooks for engine in hook()}


def added():
    """Returns of each function the words for its task, its engines, and the Struct of what it adds to their options."""
    modules = [_loaded(entry) for entry in entry_points(group="coldframe")]
    hooks = [module.coldframe_functions for module in modules if hasattr(module, "coldframe_functions")]
    return [((made.name, *made.tasks), tuple(made.instances), made.options) for hook in hooks for made in hook()]


def _loaded(entry):
    try:
        return entry.load()
    except ImportError:
        return None


def validator(options=None, tasks=()):
    made = schema(options, tasks)
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def references(value):
    if isinstance(value, dict):
        yield from ([value["$ref"]] if "$ref" in value else [])
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from references(item)


@pytest.mark.parametrize("options", [None, {"a": Small}, {"a": Small, "b": Other.Small, "c": msgspec.Struct}])
def test_it_is_valid_and_its_references_resolve(options):
    made = schema(options)
    jsonschema.Draft202012Validator.check_schema(made)
    assert made["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for reference in references(made):
        assert reference.removeprefix("#/$defs/") in made["$defs"]


def test_the_installed_engines_make_a_valid_schema():
    made = registered()
    assert "echo" in made
    schema_of_all = schema(made)
    jsonschema.Draft202012Validator.check_schema(schema_of_all)
    assert all(reference.removeprefix("#/$defs/") in schema_of_all["$defs"] for reference in references(schema_of_all))


def test_there_are_shipped_manifests():
    assert SHIPPED


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.name)
def test_shipped_manifests_are_valid_as_their_authors_wrote_them(file):
    made = schema(registered(), (), added())
    jsonschema.Draft202012Validator(made).validate(yaml.safe_load(file.read_text()))


@pytest.mark.parametrize("struct", [Manifest, Queue])
def test_every_key_is_described(struct):
    made = schema()
    component = made if struct is Manifest else made["$defs"]["Queue"]
    assert set(component["properties"]) == set(struct.__struct_fields__)
    for key, described in component["properties"].items():
        assert described["description"] == docs(struct)[key]


def test_only_the_keys_without_default_are_required():
    assert schema()["required"] == ["task", "model"]


GOOD = [
    "",
    "idle: 5m",
    "idle: 1h30m",
    "idle: never",
    "idle: 90",
    "idle: ~",
    "context: auto",
    "context: 8192",
    "context: ~",
    "slots: 4",
    "device: cuda:1",
    "device: ~",
    "quantization: null",
    "aliases: [a, b/c]",
    "aliases: ~",
    "name: a",
    "preload: true",
    "queue: {size: 1, wait: 500ms}",
    "queue: {wait: ~}",
    "queue: ~",
    "options: ~",
    "options: {}",
]
BAD = [
    "idle: soon",
    "idle: -1",
    "context: AUTO",
    "context: 0",
    "slots: -1",
    "device: gpu",
    "name: a b",
    "name: 1.5",
    "aliases: a",
    "aliases: [1]",
    "preload: maybe",
    "queue: 5",
    "queue: {siz: 5}",
    "queue: {size: -1}",
    "unknown: 1",
    "quantization: 4",
    "revision: ''",
    "options: []",
]


@pytest.mark.parametrize("more", GOOD)
def test_it_takes_what_the_parser_takes(manifest, more):
    manifest(more)
    validator().validate(yaml.safe_load(BASE + more))


@pytest.mark.parametrize("more", BAD)
def test_it_refuses_what_the_parser_refuses(refused, more):
    refused(more)
    assert not validator().is_valid(yaml.safe_load(BASE + more))


@pytest.mark.parametrize(
    ("more", "valid"),
    [
        ("options: {threads: 4}", True),
        ("options: {depth: 4}", True),
        ("options: {neither: 4}", False),
        ("engine: a\noptions: {threads: 4, inner: {wait: 5m}}", True),
        ("engine: a\noptions: {threads: ~, inner: ~}", True),
        ("engine: a\noptions: ~", True),
        ("engine: a\noptions: {depth: 4}", False),
        ("engine: a\noptions: {inner: {wait: soon}}", False),
        ("engine: a\noptions: {inner: {wat: 1}}", False),
        ("engine: b\noptions: {depth: 4}", True),
        ("engine: b\noptions: {threads: 4}", False),
        ("engine: c\noptions: {}", True),
        ("engine: c\noptions: {threads: 4}", False),
        ("engine: auto\noptions: {threads: 4}", True),
        ("engine: nope", False),
    ],
)
def test_options_are_those_of_the_engine(more, valid):
    checked = validator({"a": Small, "b": Other.Small, "c": msgspec.Struct})
    assert checked.is_valid(yaml.safe_load(BASE + more)) is valid


@pytest.mark.parametrize(("task", "valid"), [("chat", True), ("text-generation", True), ("chatt", False)])
def test_tasks_are_listed_where_they_are_known(task, valid):
    checked = validator(tasks=["chat", "text-generation"])
    assert checked.is_valid({"task": task, "model": "m"}) is valid


def test_docstrings_below_fields_are_found_in_bases_too():
    class Below(Small):
        more: int = 0
        """Even more."""

    assert docs(Below) == {"threads": "How many.", "inner": "More of it.", "more": "Even more."}


def test_a_struct_without_source_has_no_docs():
    assert docs(msgspec.defstruct("Made", [("a", int)])) == {}
