"""The manifest's keys: defaults, what each takes, and what each refuses, with the words that help."""

import math

import msgspec
import pytest

from host.errors import ManifestError
from host.manifest import Manifest, Queue, load, of_manifest

OPTIONAL = [field.name for field in msgspec.structs.fields(Manifest) if not field.required]


def test_two_keys_are_enough(manifest):
    assert manifest() == Manifest(task="chat", model="org/repo", name="small")


def test_the_design_s_example_in_full(manifest):
    found = manifest(
        "name: smollm2-135m\ndevice: cuda:1\nquantization: Q4_K_M\ncontext: 8192\naliases: [gpt-4o-mini]\n"
        "engine: auto\nslots: auto\nidle: 5m\npreload: false\nplacement: process\n"
        "queue: {size: 64, wait: 60s}\noptions: {}\n"
    )
    assert found.aliases == ("gpt-4o-mini",)
    assert (found.device, found.context, found.slots) == ("cuda:1", 8192, "auto")
    assert (found.idle, found.queue) == (300.0, Queue())


@pytest.mark.parametrize("null", ["~", "null", ""])
@pytest.mark.parametrize("key", OPTIONAL)
def test_null_is_as_good_as_absent(manifest, key, null):
    assert manifest(f"{key}: {null}\n") == manifest()


@pytest.mark.parametrize("key", ["size", "wait"])
def test_null_is_as_good_as_absent_inside_the_queue(manifest, key):
    assert manifest(f"queue: {{{key}: ~}}\n").queue == Queue()


@pytest.mark.parametrize("key", ["task", "model"])
@pytest.mark.parametrize("line", ["", "{key}: ~\n"])
def test_required_keys_are_named(refused, key, line):
    other = {"task": "model: m\n", "model": "task: chat\n"}[key]
    error = refused(whole=other + line.format(key=key))
    assert (error.key, error.message) == (key, f"the key `{key}` is required")


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("name: org/model:tag@1.0+x", "name", "org/model:tag@1.0+x"),
        ("name: 2024-01-01", "name", "2024-01-01"),
        ("name: '1.5'", "name", "1.5"),
        ("revision: '0123456'", "revision", "0123456"),
        ("revision: 0123456", "revision", "0123456"),
        ("device: cpu", "device", "cpu"),
        ("device: cuda", "device", "cuda"),
        ("device: cuda:15", "device", "cuda:15"),
        ("device: mps", "device", "mps"),
        ("context: 1", "context", 1),
        ("context: 131_072", "context", 131_072),
        ("context: auto", "context", "auto"),
        ("slots: 16", "slots", 16),
        ("aliases: []", "aliases", ()),
        ("aliases:\n- a\n- b/c", "aliases", ("a", "b/c")),
        ("idle: 0", "idle", 0.0),
        ("idle: never", "idle", math.inf),
        ("idle: 1h30m", "idle", 5400.0),
        ("preload: yes", "preload", True),
        ("preload: off", "preload", False),
        ("queue: {size: 0}", "queue", Queue(size=0)),
        ("queue: {wait: 500ms}", "queue", Queue(wait=0.5)),
        ("queue: {wait: never}", "queue", Queue(wait=math.inf)),
        ("options: {a: {b: [1, 2.5, x, ~, yes]}}", "options", {"a": {"b": [1, 2.5, "x", None, True]}}),
        ("quantization: Q4_K_M", "quantization", "Q4_K_M"),
    ],
)
def test_what_keys_take(manifest, text, key, value):
    assert getattr(manifest(text), key) == value


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("name: 1.5", "name", ['"1.5"', "quotes"]),
        ("name: 7", "name", ['"7"', "quotes"]),
        ("name: on", "name", ['"on"', "quotes"]),
        ("name: ''", "name", ["letters, digits"]),
        ("name: a b", "name", ["letters, digits", "`a b`"]),
        ("name: -a", "name", ["letters, digits"]),
        ('name: "a\\n"', "name", ["letters, digits", r"`a\n`"]),
        ("name: " + "a" * 201, "name", ["200"]),
        ("name: [a]", "name", ["a list"]),
        ("revision: 1234567", "revision", ['"1234567"']),
        ("revision: 1234e5", "revision", ['"1234e5"']),
        ('revision: "a\\tb"', "revision", ["one line"]),
        ("quantization: 4", "quantization", ['"4"']),
        ("quantization: ''", "quantization", ["not empty"]),
        ("device: gpu", "device", ["`cuda`", "`mps`", "`gpu`"]),
        ("device: 'cuda:'", "device", ["`cuda:1`"]),
        ("device: cuda:01", "device", ["`cuda:1`"]),
        ("device: CPU", "device", ["`cpu`"]),
        ("context: 0", "context", ["from 1 to", "`auto`", "`0`"]),
        ("context: -1", "context", ["from 1 to"]),
        ("context: 2147483648", "context", ["2147483647"]),
        ("context: 1e5", "context", ["whole number"]),
        ("context: AUTO", "context", ["whole number", "did you mean `auto`?"]),
        ("context: aut", "context", ["did you mean `auto`?"]),
        ("context: '8192'", "context", ["in quotes"]),
        ("context: yes", "context", ["`yes`"]),
        ("slots: 0", "slots", ["from 1 to 4096", "`auto`"]),
        ("slots: 4097", "slots", ["4096"]),
        ("slots: AUTO", "slots", ["did you mean `auto`?"]),
        ("slots: 1.5", "slots", ["whole number"]),
        ("aliases: gpt-4", "aliases", ["a list", "[gpt-4]"]),
        ("aliases: [ok, 3.5]", "aliases[1]", ['"3.5"']),
        ("aliases: [~]", "aliases[0]", ["nothing"]),
        ("aliases: {a: b}", "aliases", ["a list", "keys and values"]),
        ("idle: 5 minutes", "idle", ["30s, 5m, 2h", "never", "`5 minutes`"]),
        ("idle: -1", "idle", ["never", "`-1`"]),
        ("idle: off", "idle", ["`off`"]),
        ("idle: 1:30", "idle", ["`1:30`"]),
        ("idle: '300'", "idle", ["30s"]),
        ("idle: [5m]", "idle", ["a list"]),
        ("idle: .nan", "idle", ["number"]),
        ("idle: .inf", "idle", ["never"]),
        ("preload: maybe", "preload", ["true or false", "`maybe`"]),
        ("preload: 1", "preload", ["true or false"]),
        ("preload: 'yes'", "preload", ["in quotes"]),
        ("engine: 5", "engine", ['"5"']),
        ("placement: ''", "placement", ["not empty"]),
        ("queue: 5", "queue", ["size, wait"]),
        ("queue: [1]", "queue", ["size, wait"]),
        ("queue: {size: -1}", "queue.size", ["from 0 to"]),
        ("queue: {size: 1.5}", "queue.size", ["whole number"]),
        ("queue: {wait: soon}", "queue.wait", ["30s"]),
        ("options: [a]", "options", ["keys and values"]),
        ("options: a", "options", ["keys and values"]),
    ],
)
def test_what_keys_refuse(refused, text, key, words):
    error = refused(text)
    assert (error.key, error.line) == (key, 3)
    assert error.file.name == "small.yaml"
    for word in words:
        assert word in error.message


@pytest.mark.parametrize(
    ("text", "key", "near"),
    [
        ("contxt: 5", "contxt", "did you mean `context`?"),
        ("Context: 5", "Context", "did you mean `context`?"),
        ("alias: [a]", "alias", "did you mean `aliases`?"),
        ("quantisation: q", "quantisation", "did you mean `quantization`?"),
        ("pre-load: yes", "pre-load", "did you mean `preload`?"),
        ("zzz: 1", "zzz", "known keys: aliases, context, device"),
        ("queue: {waits: 1s}", "queue.waits", "did you mean `wait`?"),
        ("queue: {xyz: 1s}", "queue.xyz", "known keys: size, wait"),
    ],
)
def test_unknown_keys_name_the_nearest(refused, text, key, near):
    error = refused(text)
    assert (error.key, error.line) == (key, 3)
    assert near in error.message


def test_the_error_reads_like_a_compiler_s(refused):
    assert str(refused("idle: x")).startswith(f"{refused('idle: x').file}:3: idle: expected a time")


@pytest.mark.parametrize("file", ["small.yaml", "SmolLM2-135M.Q4.yaml", "a+b@c.yml"])
def test_the_name_is_the_file_s_where_none_is_set(write, file):
    assert load(write("task: chat\nmodel: m", file))[0].name == file.rpartition(".")[0]


@pytest.mark.parametrize("file", ["two words.yaml", "ünï.yaml", "-x.yaml", "a" * 201 + ".yaml"])
def test_a_file_s_name_that_cannot_be_a_model_s_is_refused(write, file):
    path = write("task: chat\nmodel: m", file)
    with pytest.raises(ManifestError, match="set `name`") as caught:
        load(path)
    assert caught.value.key == "name"
    assert load(write("task: chat\nmodel: m\nname: fine", file))[0].name == "fine"


def test_manifests_survive_the_wire(manifest):
    found = manifest("idle: never\naliases: [a]\noptions: {x: [1, ~]}")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Manifest) == found


@pytest.mark.parametrize("keys", [{}, {"idle": math.inf, "queue": Queue(wait=math.inf, size=1), "aliases": ("a", "b")}])
def test_a_manifest_made_in_code_is_checked_as_a_file_is(tmp_path, keys):
    made = Manifest(task="chat", model="m", name="x", options={"a": [1, None]}, **keys)
    checked, document = of_manifest(made, tmp_path)
    assert checked == made
    assert document.file.parent == tmp_path


@pytest.mark.parametrize(
    ("keys", "key"),
    [({"name": ""}, "name"), ({"name": "a b"}, "name"), ({"context": 0}, "context"), ({"idle": -1}, "idle")],
)
def test_a_manifest_made_in_code_is_refused_as_a_file_is(keys, key):
    with pytest.raises(ManifestError) as caught:
        of_manifest(Manifest(**{"task": "chat", "model": "m", "name": "x", **keys}))
    assert caught.value.key == key
