"""Options of engines: any Struct fitted from a file, with nulls, times, unions and nesting, and errors with lines."""

import math
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from host.errors import ManifestError
from host.manifest import Duration, read


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct, kw_only=True, frozen=True):
    wait: Duration = 1.0
    depth: Annotated[int, msgspec.Meta(gt=0, lt=10)] = 3


class Disk(msgspec.Struct, kw_only=True, frozen=True, tag="disk", tag_field="kind"):
    path: str


class Net(msgspec.Struct, kw_only=True, frozen=True, tag="net", tag_field="kind"):
    timeout: Duration = 2.0


class Options(msgspec.Struct, kw_only=True, frozen=True):
    threads: int | None = 4
    scale: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    mode: Literal["fast", "exact", "off"] = "fast"
    switch: Literal["on", "off"] | bool = "on"
    colour: Colour = Colour.RED
    inner: Inner = Inner()
    maybe: Inner | None = None
    many: list[Inner] = []
    named: dict[str, Inner] = {}
    pause: Duration | None = None
    store: Disk | Net | None = None
    anything: Any = None
    renamed: int = msgspec.field(default=0, name="re-named")


@pytest.fixture
def options(write):
    return lambda text: read(write(f"task: x\noptions:\n  {text}\n")).convert(Options, ("options",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", Options()),
        ("threads: ~", Options(threads=None)),
        ("scale: ~", Options()),
        ("scale: 1", Options(scale=1.0)),
        ("mode: ~", Options()),
        ("mode: off", Options(mode="off")),
        ("mode: 'off'", Options(mode="off")),
        ("switch: off", Options(switch=False)),
        ("switch: 'off'", Options(switch="off")),
        ("colour: blue", Options(colour=Colour.BLUE)),
        ("inner: {wait: 5m, depth: ~}", Options(inner=Inner(wait=300.0))),
        ("maybe: {wait: never}", Options(maybe=Inner(wait=math.inf))),
        ("many: [{wait: 1h}, {}]", Options(many=[Inner(wait=3600.0), Inner()])),
        ("named: {a: {wait: 2s}}", Options(named={"a": Inner(wait=2.0)})),
        ("pause: 3s", Options(pause=3.0)),
        ("pause: ~", Options(pause=None)),
        ("store: {kind: net, timeout: 1m}", Options(store=Net(timeout=60.0))),
        ("store: {kind: disk, path: x}", Options(store=Disk(path="x"))),
        ("anything: {a: [1, ~]}", Options(anything={"a": [1, None]})),
        ("re-named: 3", Options(renamed=3)),
    ],
)
def test_fits(options, text, expected):
    assert options(text) == expected


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("thread: 1", "options.thread", "did you mean `threads`?"),
        ("re_named: 1", "options.re_named", "did you mean `re-named`?"),
        ("threads: many", "options.threads", "expected a whole number, got `many`"),
        ("scale: 1.5", "options.scale", "expected a number from 0 to 1, got `1.5`"),
        ("mode: of", "options.mode", "expected `exact`, `fast` or `off`, got `of`; did you mean `off`?"),
        ("mode: on", "options.mode", "expected `exact`, `fast` or `off`, got `on`"),
        ("colour: green", "options.colour", "expected `red` or `blue`, got `green`"),
        ("inner: {depht: 1}", "options.inner.depht", "did you mean `depth`?"),
        ("inner: {depth: 10}", "options.inner.depth", "from more than 0 to less than 10"),
        ("maybe: {wait: soon}", "options.maybe.wait", "a time"),
        ("maybe: [1]", "options.maybe", "keys and values (wait, depth)"),
        ("many: [{}, {depth: x}]", "options.many[1].depth", "whole number"),
        ("many: [{}, {x: y}]", "options.many[1].x", "known keys: depth, wait"),
        ("named: {a: {wait: -1}}", "options.named.a.wait", "a time"),
        ("pause: soon", "options.pause", "a time"),
        ("store: {kind: net, timeot: 1m}", "options.store.timeot", "did you mean `timeout`?"),
        ("store: {kind: disk}", "options.store.path", "the key `path` is required"),
        ("store: {kind: tape}", "options.store.kind", "tape"),
        ("re-named: x", "options.re-named", "whole number"),
    ],
)
def test_refuses(options, text, key, words):
    with pytest.raises(ManifestError) as caught:
        options(text)
    assert (caught.value.key, caught.value.line) == (key, 3)
    assert words in caught.value.message


@pytest.mark.parametrize("text", ["task: x", "options:", "options: {}"])
def test_options_that_are_not_there_are_the_defaults(write, text):
    assert read(write(text)).convert(Options, ("options",)) == Options()


def test_an_engine_without_options_takes_none(write):
    assert read(write("options: {}")).convert(msgspec.Struct, ("options",)) == msgspec.Struct()
    with pytest.raises(ManifestError, match="known keys: none"):
        read(write("options: {a: 1}")).convert(msgspec.Struct, ("options",))


def test_the_line_of_a_value_that_an_alias_repeats_is_where_it_stands(write):
    document = read(write("common: &c\n  depth: wrong\noptions:\n  inner: *c\n"))
    with pytest.raises(ManifestError) as caught:
        document.convert(Options, ("options",))
    assert caught.value.line == 2


def test_errors_about_a_place_without_a_line_take_the_nearest_one_above(write):
    assert read(write("a:\n  b: 1")).error("x", ("a", "b", "c", "d")).line == 2
