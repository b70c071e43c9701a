"""YAML as authors write it: which word is what, anchors and merges within bounds, and errors that name the line."""

import time

import pytest
import walks
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from host.errors import ManifestError
from host.manifest import load, read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("On", True),
        ("TRUE", True),
        ("no", False),
        ("off", False),
        ("y", "y"),
        ("n", "n"),
        ("yEs", "yEs"),
        ("~", None),
        ("null", None),
        ("", None),
        ("nUll", "nUll"),
        ("0", 0),
        ("-3", -3),
        ("+3", 3),
        ("8_192", 8192),
        ("0x1F", 31),
        ("007", "007"),
        ("0o17", "0o17"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01 10:00:00", "2024-01-01 10:00:00"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("-1.", -1.0),
        ("1e-3", 0.001),
        ("1E6", 1e6),
        ("1.5e+3", 1500.0),
        ("1.2.3", "1.2.3"),
        ("e5", "e5"),
        ("-", [None]),
        ("'1.5'", "1.5"),
        ('"yes"', "yes"),
        ("!!str 5", "5"),
        ("!!int '5'", 5),
        ("!!float 5", 5.0),
        ("|\n  two\n  lines\n", "two\nlines\n"),
        ("ünï", "ünï"),
        ("[a, 1, {b: ~}]", ["a", 1, {"b": None}]),
    ],
)
def test_words_mean_what_authors_mean(data, text, value):
    found = data(f"key: {text}" if text != "-" else "key:\n  -")
    assert found == {"key": value}
    assert type(found["key"]) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &x {p: 1}\nb: *x", {"a": {"p": 1}, "b": {"p": 1}}),
        ("a: &x [1, 2]\nb: [*x, *x]", {"a": [1, 2], "b": [[1, 2], [1, 2]]}),
        ("a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3", {"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}}),
        ("a: &x {p: 1, q: 2}\nb:\n  q: 3\n  <<: *x", {"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}}),
        ("a: {<<: [{p: 1}, {p: 2, q: 2}], r: 3}", {"a": {"p": 1, "q": 2, "r": 3}}),
        ("a: {<<: {<<: {p: 1}, q: 2}, r: 3}", {"a": {"p": 1, "q": 2, "r": 3}}),
        ("a: {'<<': 1}", {"a": {"<<": 1}}),
        ("<<: {a: 1}\nb: 2", {"a": 1, "b": 2}),
    ],
)
def test_aliases_and_merge_keys(data, text, value):
    assert data(text) == value


@pytest.mark.parametrize("text", [b"\xef\xbb\xbftask: chat", b"task: chat\r\n", b"%YAML 1.1\n---\ntask: chat\n...\n"])
def test_byte_order_marks_line_ends_and_directives_are_no_trouble(write, text):
    assert read(write(text)).data == {"task": "chat"}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        ("# nothing\n\n", 1, "empty"),
        ("---\n", 1, "empty"),
        ("- a\n- b", 1, "keys and values"),
        ("just text", 1, "keys and values"),
        ("a: 1\n\tb: 2", 2, "tabs"),
        ("a:\n  - 1\n\t- 2", 3, "tabs"),
        ("a: [1, 2", 1, "not YAML"),
        ("a: 'open", 1, "not YAML"),
        ("a: b: c", 1, "not YAML"),
        ("a: 1\n b: 2", 2, "not YAML"),
        ("a: 1\n---\nb: 2", 2, "second one"),
        ("a: *nowhere", 1, "nowhere"),
        ("a: 1\nb: 2\na: 3", 3, "twice (first on line 1)"),
        ("a: {b: 1, b: 2}", 1, "twice"),
        ("1: a", 1, "in quotes"),
        ("a: 1\non: b", 2, "in quotes"),
        ("~: b", 1, "in quotes"),
        ("? [a, b]\n: c", 1, "one word"),
        ("a:\n  b: !!python/object/apply:os.system [ls]", 2, "!!python/object/apply:os.system"),
        ("a: !!binary aGk=", 1, "!!binary"),
        ("a: !!set {x, y}", 1, "!!set"),
        ("a: !!omap [x: 1]", 1, "!!omap"),
        ("a: !mine b", 1, "!mine"),
        ("a: !!int x", 1, "whole number"),
        ("a: !!float x", 1, "number"),
        ("a: 1\nb: .inf", 2, "never"),
        ("a: .NaN", 1, "number"),
        ("a: 1e999", 1, "number"),
        ("a: 9223372036854775808", 1, "too large"),
        ("a: -9223372036854775809", 1, "too large"),
        ("a: " + "9" * 10_000, 1, "too large"),
        ("a: 0x" + "f" * 10_000, 1, "too large"),
        ("a: &x [*x]", 1, "never ends"),
        ("a: 1\nb: &x\n  c: {d: *x}", 2, "never ends"),
        ("a: &x {<<: *x}", 1, "never ends"),
        ("a: {<<: 5}", 1, "<<"),
        ("a: {<<: [5]}", 1, "<<"),
        ('a: 1\nb: "\0"', 2, "U+0000"),
        ("a: 1\nb: \x7f", 2, "U+007F"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(refused, text, line, words):
    error = refused(whole=text)
    assert error.line == line
    assert words in error.message


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 100_000,
        "a: " + "{b: " * 60_000,
        "\n".join("  " * n + "a:" for n in range(200)),
        "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
        + "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)),
        "a0: &a0 {k: 1}\n" + "\n".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 12)),
        "a: [" + "1," * 100_000 + "]",
    ],
    ids=["lists", "mappings", "blocks", "laughs", "merged-laughs", "items"],
)
def test_bombs_are_refused_quickly(refused, text):
    start = time.process_time()
    assert "levels" in (message := refused(whole=text).message) or "more than 10000 values" in message
    assert time.process_time() - start < 5


def test_a_large_file_is_no_manifest(refused):
    assert "256 KiB" in refused(whole="# " + "x" * (1 << 18)).message


@pytest.mark.parametrize("content", [b"\xff\xfet\0a\0", b"a: \xe9"], ids=["utf-16", "latin-1"])
def test_other_encodings_are_named(refused, content):
    assert refused(whole=content).message == "is not UTF-8 text"


def test_what_is_no_file_is_refused(tmp_path):
    for path, words in ((tmp_path, "is not a file"), (tmp_path / "absent.yaml", "cannot be read")):
        with pytest.raises(ManifestError, match=words):
            load(path)


def test_lines_are_those_of_keys_and_items(write):
    lines = read(write("# first\na: 1\nb:\n  c:\n    - x\n    - y: 2\n")).lines
    assert lines[("a",)] == 2
    assert lines[("b", "c")] == 4
    assert lines[("b", "c", 1, "y")] == 6


@pytest.mark.soak
@settings(walks.examples(200, 5000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="ab:{}[]&*<!-?|>#%~'\"\n\t ,.0123eE_xé\0", max_size=40))
@example("<<: *a")
@example("a: !<> b")
@example("a: ._5")
def test_any_text_is_a_manifest_or_a_manifest_error(write, text):
    try:
        load(write(text))
    except ManifestError as error:
        assert error.message
        assert str(error)


@pytest.mark.soak
@settings(walks.examples(100, 2000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_any_bytes_are_a_manifest_or_a_manifest_error(write, content):
    try:
        load(write(content))
    except ManifestError as error:
        assert error.message
