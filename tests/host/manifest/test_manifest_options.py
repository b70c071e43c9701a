"""Options of an engine and of a function in one mapping: split, refused with their line, described in the schema."""

from pathlib import Path

import jsonschema
import msgspec
import pytest

from host.errors import ManifestError
from host.manifest import options, schema
from host.manifest.document import Document
from host.manifest.schema import docs
from host.manifest.syntax import parse


class Engine(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """An engine's."""

    threads: int = 1
    """How many."""

    def __post_init__(self):
        if self.threads > 64:
            raise ValueError("`threads` is too many")


class Own(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A function's."""

    labels: list[str] = []
    """What may be said."""


class Clash(msgspec.Struct):
    threads: int = 2


def document(text):
    return Document(parse(f"task: t\nmodel: m\noptions:\n{text}", Path("small.yaml")))


def test_each_part_gets_its_own_keys():
    engine, own = options.read(document("  threads: 3\n  labels: [a]\n"), Engine, Own)
    assert engine == Engine(threads=3)
    assert own == Own(labels=["a"])


@pytest.mark.parametrize("parts", [(Engine, msgspec.Struct), (msgspec.Struct, Own), (msgspec.Struct, msgspec.Struct)])
def test_a_part_may_have_no_options(parts):
    found = options.read(document("  {}\n"), *parts)
    assert [type(part) for part in found] == list(parts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  thread: 3\n", "small.yaml:4: options.thread: unknown key `thread`; did you mean `threads`?"),
        ("  label: x\n", "did you mean `labels`?"),
        ("  labels: x\n", "small.yaml:4: options.labels"),
        ("  threads: 65\n", "`threads` is too many"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text, message):
    with pytest.raises(ManifestError) as caught:
        options.read(document(text), Engine, Own)
    assert message in str(caught.value)


def test_no_key_may_be_in_both():
    with pytest.raises(TypeError, match="threads"):
        options.joined(Engine, Clash)


def test_a_joined_struct_keeps_its_documentation():
    assert docs(options.joined(Engine, Own)) == {"threads": "How many.", "labels": "What may be said."}


@pytest.mark.parametrize(
    ("manifest", "right"),
    [
        ({"task": "t", "engine": "e", "options": {"threads": 2, "labels": ["a"]}}, True),
        ({"task": "t", "options": {"labels": ["a"]}}, True),
        ({"task": "other", "engine": "e", "options": {"threads": 2}}, True),
        ({"task": "other", "engine": "e", "options": {"labels": ["a"]}}, False),
        ({"task": "t", "engine": "e", "options": {"labels": 3}}, False),
    ],
)
def test_the_schema_knows_which_function_takes_what(manifest, right):
    made = schema({"e": Engine}, ["t", "other"], [(["t"], ["e"], Own), (["other"], ["e"], msgspec.Struct)])
    jsonschema.Draft202012Validator.check_schema(made)
    found = list(jsonschema.Draft202012Validator(made).iter_errors({"model": "m", **manifest}))
    assert bool(found) is not right
