"""Pooling and the layers behind it in numpy, compared with those in torch on the same numbers and the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import tinymodels
import torch

from functions.engines.checkpoint.folder import Folder
from functions.engines.onnx.sentence import layers, pooling
from functions.engines.transformers.sentence import layers as torch_layers
from functions.engines.transformers.sentence import pooling as torch_pooling
from host.errors import LoadFailed

MODES = ["cls", "max", "mean", "mean_sqrt_len", "weighted_mean", "last"]
CPU = torch.device("cpu")


@pytest.mark.parametrize("modes", [*([mode] for mode in MODES), ["cls", "max", "mean"], MODES])
@pytest.mark.parametrize("prompts", [None, [0, 0, 0], [2, 1, 0]])
def test_pooling_is_that_of_torch(modes: list[Any], prompts: list[int] | None) -> None:
    hidden = np.random.default_rng(3).normal(size=(3, 6, 5)).astype(np.float32)
    mask = np.array([[1] * 6, [1] * 4 + [0] * 2, [1] + [0] * 5])
    found = pooling.pool(hidden, mask, modes, prompts)
    expected = torch_pooling.pool(torch.from_numpy(hidden), torch.from_numpy(mask), modes, prompts).numpy()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)


def dense(folder: Path, name: str, activation: str, *, bias: bool = True, **more: Any) -> None:
    torch.manual_seed(5)
    config = {"activation_function": f"torch.nn.modules.activation.{activation}", **more}
    tinymodels.write(folder, {f"{name}/config.json": config})
    tensors = {"linear.weight": torch.randn(3, 4)} | ({"linear.bias": torch.randn(3)} if bias else {})
    safetensors.torch.save_file(tensors, folder / name / "model.safetensors")


@pytest.mark.parametrize("activation", ["Identity", "Tanh", "ReLU", "Sigmoid", "SiLU"])
@pytest.mark.parametrize("bias", [True, False])
def test_layers_are_those_of_torch(tmp_path: Path, activation: str, bias: bool) -> None:
    dense(tmp_path, "2_Dense", activation, bias=bias)
    tinymodels.write(tmp_path, {"3_LayerNorm/config.json": {}})
    norm = {"norm.weight": torch.randn(3), "norm.bias": torch.randn(3)}
    safetensors.torch.save_file(norm, tmp_path / "3_LayerNorm" / "model.safetensors")
    steps = (("Dense", "2_Dense"), ("LayerNorm", "3_LayerNorm"), ("Normalize", ""))
    found, size = layers.load(steps, Folder(tmp_path), 4)
    expected, _ = torch_layers.load(steps, Folder(tmp_path), 4, CPU)
    vectors = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)
    numbers, tensors = vectors, torch.from_numpy(vectors)
    for ours, theirs in zip(found, expected, strict=True):
        numbers, tensors = ours(numbers), theirs(tensors)
    assert size == 3
    assert numbers.dtype == np.float32
    np.testing.assert_allclose(numbers, tensors.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("activation", "more", "size", "told"),
    [
        ("GELU", {}, 4, "activation_function GELU is not served by the onnx engine"),
        ("Tanh", {"use_residual": True}, 4, "use_residual is not served"),
        ("Tanh", {}, 7, r"no linear\.weight for vectors of 7 numbers"),
    ],
)
def test_layers_that_are_not_served(
    tmp_path: Path, activation: str, more: dict[str, Any], size: int, told: str
) -> None:
    dense(tmp_path, "2_Dense", activation, **more)
    with pytest.raises(LoadFailed, match=told):
        layers.load((("Dense", "2_Dense"),), Folder(tmp_path), size)


def test_a_layer_norm_of_another_size(tmp_path: Path) -> None:
    tinymodels.write(tmp_path, {"2_LayerNorm/config.json": {}})
    safetensors.torch.save_file({"norm.weight": torch.ones(3)}, tmp_path / "2_LayerNorm" / "model.safetensors")
    with pytest.raises(LoadFailed, match=r"no norm\.weight of 4 numbers"):
        layers.load((("LayerNorm", "2_LayerNorm"),), Folder(tmp_path), 4)


def test_vectors_of_zeros_stay_what_they_are() -> None:
    assert pooling.scale(np.zeros((1, 3), dtype=np.float32)).tolist() == [[0, 0, 0]]
