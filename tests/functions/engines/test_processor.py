"""The processor's name, from the kernel's text."""

from __future__ import annotations

from pathlib import Path

from functions.engines.processor import processor

AMD = """processor\t: 0
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC
stepping\t: 1
flags\t\t: fpu avx512f avx512_bf16

processor\t: 1
model name\t: another
flags\t\t: amx_tile
"""


def test_the_first_processor_is_named(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(AMD)
    found = processor(file)
    assert found.model == "AMD EPYC 26 2 1"
    assert found.has("avx512_bf16")
    assert found.has("avx512")
    assert not found.has("amx")


def test_a_flag_more_is_another_processor(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(AMD)
    (tmp_path / "b").write_text(AMD.replace("avx512f", "avx512f amx_tile"))
    assert processor(tmp_path / "a").fingerprint != processor(tmp_path / "b").fingerprint


def test_without_cpuinfo_the_platform_names_it(tmp_path: Path) -> None:
    found = processor(tmp_path / "none")
    assert found.flags == frozenset()
    assert found.fingerprint
