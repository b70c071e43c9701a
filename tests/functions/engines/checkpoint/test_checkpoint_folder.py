"""A model's folder: files that are missing, broken or outside of it, and the bytes of its weights."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import safetensors.torch
import torch

from functions.engines.checkpoint.folder import Folder
from host.errors import LoadFailed


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "model.safetensors is missing"),
        ({"pytorch_model.bin": b"x"}, "pytorch_model.bin is a pickle"),
        ({"model.safetensors": b""}, "not a safetensors file"),
        ({"model.safetensors": b"version https://git-lfs.github.com/spec/v1"}, "not a safetensors file"),
        ({"model.safetensors": (2).to_bytes(8, "little") + b"[]"}, "broken safetensors header"),
        ({"model.safetensors": (9).to_bytes(8, "little") + b'{"a": 1 }'}, "broken safetensors header"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "one", "b": "two"}}', "one": b""}, "missing: two"),
        ({"model.safetensors.index.json": b'{"weight_map": {}}'}, "none named"),
    ],
)
def test_weights_that_are_not_there(tmp_path: Path, files: dict[str, bytes], said: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(LoadFailed, match=re.escape(said)):
        Folder(tmp_path).weights(4)


def test_only_floats_change_their_size(tmp_path: Path) -> None:
    tensors = {"a": torch.zeros(10), "b": torch.zeros(10, dtype=torch.int64), "c": torch.zeros(10, dtype=torch.float16)}
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    assert Folder(tmp_path).weights(4) == 40 + 80 + 40
    assert Folder(tmp_path).weights(2) == 20 + 80 + 20


@pytest.mark.parametrize("missing", [1, 100])
def test_weights_that_were_cut_short(tmp_path: Path, missing: int) -> None:
    """A download that broke off: the header is whole, the end of the tensors is not there."""
    file = tmp_path / "model.safetensors"
    safetensors.torch.save_file({"x": torch.zeros(100, 4)}, file)
    assert Folder(tmp_path).weights(4) == 1600
    file.write_bytes(file.read_bytes()[:-missing])
    with pytest.raises(LoadFailed, match=r"model\.safetensors is shorter than its header says"):
        Folder(tmp_path).weights(4)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(LoadFailed, match="takes a folder"):
        Folder(tmp_path / "model.safetensors")


def test_links_do_not_lead_outside(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "out").symlink_to(tmp_path)
    with pytest.raises(LoadFailed, match="outside"):
        Folder(tmp_path / "model").inside("out")
