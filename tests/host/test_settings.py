"""granian.toml: every key, its default, and what is said of one that is wrong."""

import math
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from host import machine
from host.errors import ManifestError
from host.manifest.schema import docs
from host.settings import REFUSED, HostSettings, Settings, address, read

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "granian.toml"
HOST_KEYS = [field.name for field in msgspec.structs.fields(HostSettings)]


@pytest.fixture
def said(tmp_path):
    def write(text, environment=None):
        file = tmp_path / "granian.toml"
        file.write_text(text)
        return read(file, environment)

    return write


def refused(said, text, environment=None):
    with pytest.raises(ManifestError) as raised:
        said(text, environment)
    return raised.value


# ------------------------------------------------------------------------------------------------ defaults


def test_no_file_is_all_defaults():
    found = read(None)
    assert (found.address, found.port, found.manifests, found.manifests_said) == (
        "127.0.0.1",
        8000,
        Path("manifests"),
        False,
    )
    assert found.budget == {"ram": int(machine.memory_total() * 0.9)}
    assert found.threads == machine.cores()
    assert (found.grace, found.drain, found.stop, found.stall) == (30.0, 30.0, 5.0, 300.0)
    assert (found.max_body, found.log, found.log_level, found.granian) == (32 << 20, "auto", "info", {})


@pytest.mark.parametrize("text", ["", "[host]\n", "[granian]\n[host]\n"])
def test_an_empty_file_is_the_same_as_none(said, text):
    assert said(text) == read(None)


def test_a_byte_order_mark_is_no_obstacle(said):
    assert said("\ufeff[host]\nport = 9\n").port == 9


# ------------------------------------------------------------------------------------------------ the table host


@pytest.mark.parametrize(
    ("line", "attribute", "value"),
    [
        ('manifests = "models"', "manifests", Path("models")),
        ('manifests = "~/models"', "manifests", Path("~/models").expanduser()),
        ('address = "0.0.0.0"', "address", "0.0.0.0"),
        ('address = "localhost"', "address", "127.0.0.1"),
        ('address = "[::1]"', "address", "::1"),
        ("port = 0", "port", 0),
        ("port = 65535", "port", 65535),
        ('memory = "8GiB"', "budget", {"ram": 8 << 30}),
        ("memory = 1000", "budget", {"ram": 1000}),
        ("threads = 3", "threads", 3),
        ('grace = "1m30s"', "grace", 90.0),
        ("grace = 2", "grace", 2.0),
        ("grace = 0.5", "grace", 0.5),
        ('drain = "never"', "drain", math.inf),
        ('stop = "500ms"', "stop", 0.5),
        ('stall = "1h"', "stall", 3600.0),
        ('max_body = "500KB"', "max_body", 500_000),
        ('log = "json"', "log", "json"),
        ('log_level = "debug"', "log_level", "debug"),
    ],
)
def test_a_key_is_read(said, line, attribute, value):
    assert getattr(said(f"[host]\n{line}\n"), attribute) == value


def test_accelerators_join_the_budget(said):
    found = said('[host]\nmemory = "1GB"\nvram = {"cuda:0" = "20GiB", "cuda:1" = 5, mps = "1GB"}\n')
    assert found.budget == {"ram": 10**9, "cuda:0": 20 << 30, "cuda:1": 5, "mps": 10**9}


@pytest.mark.parametrize(
    ("line", "key", "cure"),
    [
        ("prot = 1", "host.prot", "did you mean `port`?"),
        ("xyz = 1", "host.xyz", "known: manifests, address, port"),
        ("port = 65536", "host.port", "a whole number from 0 to 65535, got `65536`"),
        ("port = -1", "host.port", "from 0 to 65535"),
        ('port = "80"', "host.port", "in quotes"),
        ("port = 80.5", "host.port", "a whole number"),
        ('address = "example.org"', "host.address", "an IP address such as"),
        ('address = ""', "host.address", "not empty"),
        ('manifests = ""', "host.manifests", "not empty"),
        ("manifests = 3", "host.manifests", "got `3`"),
        ("memory = true", "host.memory", "got `true`"),
        ("memory = 0", "host.memory", "a size such as 8GiB"),
        ('memory = "8 gigs"', "host.memory", "a size such as 8GiB"),
        ('vram = {cuda = "8GiB"}', 'host.vram."cuda"', "such as cuda:0"),
        ('vram = {ram = "8GiB"}', 'host.vram."ram"', "such as cuda:0"),
        ('vram = {"cuda:0" = "much"}', 'host.vram."cuda:0"', "a size such as 8GiB"),
        ('vram = "8GiB"', "host.vram", "keys and values"),
        ("threads = 0", "host.threads", "from 1 to 4096"),
        ('threads = "all"', "host.threads", "`auto`"),
        ('grace = "soon"', "host.grace", "a time such as"),
        ("grace = -1", "host.grace", "a time such as"),
        ("grace = inf", "host.grace", "a time such as"),
        ("grace = true", "host.grace", "got `true`"),
        ('drain = "5"', "host.drain", "a time such as"),
        ('stop = "never"', "host.stop", "would never go"),
        ('stall = "x"', "host.stall", "a time such as"),
        ('max_body = "-1MB"', "host.max_body", "a size such as"),
        ('log = "jsn"', "host.log", "did you mean `json`?"),
        ('log_level = "chatty"', "host.log_level", "`debug`"),
    ],
)
def test_a_wrong_value_is_refused_with_key_and_cure(said, line, key, cure):
    error = refused(said, f"[host]\n{line}\n")
    assert error.key == key
    assert cure in error.message
    assert str(error).startswith(str(error.file))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[hots]\n", "did you mean `host`?"),
        ("port = 8000\n", "known: host, granian"),
        ("host = 3\n", "write it as [host]"),
        ("granian = []\n", "write it as [granian]"),
        ("[host\n", "is not TOML"),
        ("[host]\nport = 1\nport = 2\n", "is not TOML"),
    ],
)
def test_a_file_that_is_no_config_is_refused(said, text, words):
    assert words in refused(said, text).message


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(ManifestError, match="cannot be read: No such file"):
        read(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"[host]\nlog = '\xe4'\n")
    with pytest.raises(ManifestError, match="is not TOML"):
        read(tmp_path / "latin.toml")


# ------------------------------------------------------------------------------------------------ PORT


@pytest.mark.parametrize(
    ("text", "environment", "port"),
    [
        ("", {"PORT": "81"}, 81),
        ("", {"PORT": " 81 "}, 81),
        ("", {"PORT": ""}, 8000),
        ("", {}, 8000),
        ("[host]\nport = 9\n", {"PORT": "81"}, 9),
        ("[host]\nport = 8000\n", {"PORT": "81"}, 8000),
        ("[host]\nport = 0\n", {"PORT": "81"}, 0),
        ("[host]\nport = 9\n", {"PORT": "none of its business"}, 9),
    ],
)
def test_the_environment_comes_after_the_file(said, text, environment, port):
    assert said(text, environment).port == port


@pytest.mark.parametrize("word", ["http", "-1", "65536", "8000.0", "٣"])
def test_a_port_in_the_environment_that_is_none_is_refused(said, word):
    error = refused(said, "", {"PORT": word})
    assert error.key == "PORT"
    assert "from 0 to 65535" in error.message


def test_without_an_environment_none_is_read(said, monkeypatch):
    monkeypatch.setenv("PORT", "81")
    assert said("").port == 8000


# ------------------------------------------------------------------------------------------------ the table granian


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ("backlog = 5", 5),
        ("websockets = true", True),
        ('url_path_prefix = "/x"', "/x"),
        ('ssl_ca = "/"', Path("/")),
        ('ssl_crl = ["/"]', [Path("/")]),
        ("blocking_threads = 1", 1),
    ],
)
def test_parameters_of_granian_become_what_it_takes(said, lines, value):
    assert list(said(f"[granian]\n{lines}\n").granian.values()) == [value]


def test_enumerations_and_tables_become_granians_own_types(said):
    from granian.constants import HTTPModes
    from granian.http import HTTP1Settings

    found = said('[granian]\nhttp = "1"\nhttp1_settings = {keep_alive = false}\n').granian
    assert found == {"http": HTTPModes.http1, "http1_settings": HTTP1Settings(keep_alive=False)}


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_what_the_host_sets_itself_is_refused(said, key):
    assert refused(said, f"[granian]\n{key} = 'x'\n").message == REFUSED[key]


@pytest.mark.parametrize(
    ("line", "key", "cure"),
    [
        ("backlogg = 1", "granian.backlogg", "did you mean `backlog`?"),
        ('backlog = "many"', "granian.backlog", "a whole number"),
        ('http = "3"', "granian.http", "`auto`, `1` or `2`"),
        ("ssl_key = 3", "granian.ssl_key", "a path"),
        ('ssl_key = "/nowhere/key.pem"', "granian.ssl_key", "no such file"),
        ('static_path_mount = ["/nowhere"]', "granian.static_path_mount", "no such file or folder: /nowhere"),
        ('ssl_cert = "/"', "granian.ssl_key", "both"),
        ('ssl_key = "/"', "granian.ssl_cert", "both"),
        ("backlog = -1", "granian.backlog", "from 1"),
        ("runtime_threads = 0", "granian.runtime_threads", "from 1"),
        ("blocking_threads = 2", "granian.blocking_threads", "from 1 to 1"),
        ("blocking_threads_idle_timeout = 4", "granian.blocking_threads_idle_timeout", "from 5 to 600"),
        ("http1_settings = {keep_aliv = 1}", "granian.http1_settings.keep_aliv", "did you mean `keep_alive`?"),
        ("http1_settings = {keep_alive = 1}", "granian.http1_settings.keep_alive", "bool"),
    ],
)
def test_what_granian_does_not_take_is_refused(said, line, key, cure):
    error = refused(said, f"[granian]\n{line}\n")
    assert error.key == key
    assert cure in error.message


# ------------------------------------------------------------------------------------------------ address and URL


@pytest.mark.parametrize(
    ("given", "url", "loopback"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000", True),
        ("127.0.0.2", "http://127.0.0.2:8000", True),
        ("0.0.0.0", "http://127.0.0.1:8000", False),
        ("::1", "http://[::1]:8000", True),
        ("::", "http://[::1]:8000", False),
        ("192.168.1.5", "http://192.168.1.5:8000", False),
    ],
)
def test_the_url_is_where_a_client_on_this_machine_connects(given, url, loopback):
    found = msgspec.structs.replace(read(None), address=address(given))
    assert (found.url, found.loopback) == (url, loopback)


def test_a_certificate_makes_the_url_https(said):
    assert said('[granian]\nssl_cert = "/"\nssl_key = "/"\n').url == "https://127.0.0.1:8000"


@pytest.mark.parametrize("prefix", ["models", "/models", "/models/"])
def test_a_prefix_is_part_of_the_url(said, prefix):
    assert said(f'[granian]\nurl_path_prefix = "{prefix}"\n').url == "http://127.0.0.1:8000/models"


# ------------------------------------------------------------------------------------------------ the shipped file


def uncommented():
    """Return the shipped file's `[host]` with every key taken in."""
    part = SHIPPED.read_text().split("[host]\n")[1].split("\n[granian]\n")[0]
    return tomllib.loads("\n".join(re.findall(r"^# ((?:\w+ = |\[).+)$", part, re.MULTILINE)))


def test_the_shipped_file_sets_nothing():
    assert read(SHIPPED) == read(None)


def test_the_shipped_file_shows_every_host_key_with_its_default(said):
    shown = uncommented()
    assert sorted(shown) == sorted(HOST_KEYS)
    spelled = "\n".join(f"{key} = {_toml(value)}" for key, value in shown.items())
    found = msgspec.structs.asdict(said(f"[host]\n{spelled}\n"))
    assert found | {"manifests_said": False} == msgspec.structs.asdict(read(None))


def test_the_shipped_file_shows_granian_keys_that_it_takes_with_their_defaults(said):
    from granian.http import HTTP1Settings

    from host.serve import _DEFAULTS

    spelled = SHIPPED.read_text().split("\n[granian]\n")[1]
    keys = "\n".join(re.findall(r"^# ((?:\w+ = |\[).+)$", spelled, re.MULTILINE))
    keys = re.sub(r'"/etc/coldframe/\w+.pem"', '"/"', keys)
    found = said(f"[granian]\n{keys}\n").granian
    assert len(found) >= 12
    assert found["http1_settings"] == HTTP1Settings()
    assert {key: found[key] for key in _DEFAULTS} == _DEFAULTS


def _toml(value):
    if isinstance(value, dict):
        return "{}"
    return f'"{value}"' if isinstance(value, str) else str(value)


# ------------------------------------------------------------------------------------------------ documentation


def test_every_setting_is_documented():
    text = (ROOT / "docs/settings.md").read_text()
    missing = [key for key in HOST_KEYS if f"| `{key}` |" not in text]
    assert not missing, "docs/settings.md has no row for these"
    assert set(docs(HostSettings)) == set(HOST_KEYS), "each key has a docstring below it"


def test_the_documentation_names_no_setting_that_is_none():
    part = (ROOT / "docs/settings.md").read_text().partition("## [host]")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) == sorted(HOST_KEYS)


def test_the_granian_keys_of_the_documentation_are_taken():
    import inspect

    from granian.server.embed import Server

    part = (ROOT / "docs/settings.md").read_text().partition("## [granian]")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)
    assert named
    assert set(named) <= set(inspect.signature(Server.__init__).parameters) - set(REFUSED)


def test_settings_are_a_value():
    assert isinstance(read(None), Settings)
    with pytest.raises(AttributeError):
        read(None).port = 1
