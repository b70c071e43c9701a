"""The format of Transformers and Sentence-Transformers folders: safetensors and the text files beside them.

Pickles, other frameworks' weights and training leftovers are left out. Only names are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch

from host.errors import ModelFileNotFound
from host.file_format import TEXT_SUFFIXES, Choice, FileFormat, FileRequest

_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt", ".joblib", ".msgpack", ".h5", ".ot")
_ELSEWHERE = (
    *("onnx*", "openvino*", "tf", "tensorflow", "flax", "jax", "coreml*", "tflite", "mlx*", "gguf*", "ctranslate2"),
    *("tensorrt*", "original", "metal", "checkpoint*", "runs", "logs", "eval*", "results", "examples", "assets", ".*"),
)
_LAYERS = ("sparse_linear.safetensors", "colbert_linear.safetensors")
"""Layers beside a model's weights, by which embedding models give more than one kind of vector."""
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.safetensors$")


class CheckpointFormat(FileFormat):
    """A folder of safetensors; `quantization` is how they are loaded, so it never chooses among files."""

    rank = 0

    def is_file(self, name: str) -> bool:
        """Return whether a name ends in `.safetensors`."""
        return name.lower().endswith(".safetensors")

    def contains(self, names: Iterable[str]) -> bool:
        """Return whether any safetensors of the listing are a model's."""
        return has_weights(names)

    def choose(self, names: Sequence[str], request: FileRequest) -> Choice:
        """Return the files of the folder, which is opened as a whole."""
        return Choice(files=choose(names, request.where), target="")


def has_weights(names: Iterable[str]) -> bool:
    """Return whether any safetensors of the listing are a model's."""
    return any(name.endswith(".safetensors") for name in _ours(names))


def texts(names: Iterable[str]) -> tuple[str, ...]:
    """Return the configuration, tokenizer and template files of a listing."""
    return tuple(sorted(name for name in _ours(names) if name.lower().endswith(TEXT_SUFFIXES)))


def choose(names: Sequence[str], where: str) -> tuple[str, ...]:
    """Return the files of the folder to bring here; raises `ModelFileNotFound` that says what there is instead."""
    folders: dict[str, list[str]] = {}
    for name in _ours(names):
        if name.endswith(".safetensors"):
            folders.setdefault(name.rpartition("/")[0], []).append(name)
    if not folders:
        raise ModelFileNotFound(f"{where} has {_instead(names)}", param="model")
    weights = {file for files in folders.values() for file in _weights(files, where)}
    weights |= {file for files in folders.values() for file in files if file.endswith(_LAYERS)}
    return (*texts(names), *sorted(weights))


def _ours(names: Iterable[str]) -> list[str]:
    """Return the names outside the folders of other frameworks and of training."""
    return [
        name
        for name in names
        if not any(fnmatch(part.lower(), pattern) for part in name.split("/")[:-1] for pattern in _ELSEWHERE)
        and not name.startswith(".")
    ]


def _weights(files: list[str], where: str) -> list[str]:
    """Return one set of weights of a folder: `model.safetensors`, else its shards, else whatever lies there."""
    folder = files[0].rpartition("/")[0]
    start = f"{folder}/model" if folder else "model"
    if f"{start}.safetensors" in files:
        return [f"{start}.safetensors"]
    sharded = [file for file in files if file.startswith(f"{start}-") and _SHARD.search(file)]
    if not sharded:
        return files
    match = _SHARD.search(sharded[0])
    count = int(match[2]) if match else 0
    missing = {f"{start}-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)} - set(sharded)
    if missing:
        raise ModelFileNotFound(f"{where} has not all shards: {', '.join(sorted(missing)[:5])} missing", param="model")
    return sharded


def _instead(names: Sequence[str]) -> str:
    pickles = sorted({name[name.rindex(".") :] for name in names if name.lower().endswith(_PICKLES)})
    if pickles:
        return f"only weights in {', '.join(pickles)}, which are never loaded because they may run code: no safetensors"
    return "neither .safetensors nor .gguf weights"


CHECKPOINT = CheckpointFormat()
