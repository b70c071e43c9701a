"""The file format ONNX: chooses a graph in a listing by its name, and the files beside it that hold its weights.

One graph is saved in several number formats: `model.onnx`, `model_fp16.onnx`, `model_quantized.onnx`, in the folder
itself or in `onnx/`. Only names are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from functions.engines.checkpoint.file_format import texts
from host.errors import ManifestError, ModelFileNotFound
from host.file_format import Choice, FileFormat, FileRequest

_FOLDERS = ("", "onnx/")
"""Where exports lie, the first one first where both have a file."""
_MODEL = re.compile(r"model(?:_(?P<variant>[\w.-]+))?\.onnx", re.IGNORECASE)
_DATA = re.compile(r"(?:_data|\.data)(?:_\d+)?", re.IGNORECASE)
_WORDS: dict[str, tuple[str, ...]] = {
    "fp32": ("", "fp32"),
    "float32": ("", "fp32"),
    "float16": ("fp16",),
    "f16": ("fp16",),
    "int8": ("int8", "quantized"),
    "q8": ("quantized", "q8"),
    "int4": ("q4", "int4"),
}
"""Words of `quantization`, and what stands behind `model_` for them; any other word stands there as it is."""


class OnnxFormat(FileFormat):
    """ONNX graphs with their weights and the text files of the model; taken last where there are other weights."""

    rank = 20
    labelled = True

    def is_file(self, name: str) -> bool:
        """Return whether a name ends in `.onnx`."""
        return is_onnx(name)

    def choose(self, names: Sequence[str], request: FileRequest) -> Choice:
        """Return the graph of the quantization asked for, `model.onnx` by default, and what belongs to it."""
        return _with_texts(choose(names, request.asked, request.where), names)

    def named(self, file: str, names: Sequence[str], request: FileRequest) -> Choice:
        """Return the graph and what belongs to it; raises `ManifestError` when it is of another quantization."""
        check(file, request.asked, request.where)
        return _with_texts(file, names)

    def in_folder(self, folder: str, choice: Choice, names: Sequence[str]) -> Choice:
        """Return the graph with the text files of the folder and those above it, where a model's own mostly are."""
        return _with_texts(folder + choice.target, names)


def is_onnx(name: str) -> bool:
    """Return whether a file is an ONNX model by its name."""
    return name.lower().endswith(".onnx")


def models(names: Iterable[str]) -> list[str]:
    """Return the ONNX files where exports lie, in order; those elsewhere only when there are none."""
    found = sorted(filter(is_onnx, names))
    return [name for name in found if _folder(name) in _FOLDERS] or found


def choose(names: Sequence[str], quantization: str | None, where: str) -> str:
    """Return the file to open; raises `ModelFileNotFound` that lists what there is.

    Without `quantization` it is `model.onnx`, or the only file there is.
    """
    found = models(names)
    if not found:
        raise ModelFileNotFound(f"{where} has no .onnx file", param="model")
    if quantization is None and len(found) == 1:
        return found[0]
    for variant in _variants(quantization):
        for folder in _FOLDERS:
            match = next((name for name in found if _folder(name) == folder and _variant(name) == variant), None)
            if match:
                return match
    there = ", ".join(f"{name} ({label})" if (label := _label(name)) else name for name in found)
    if quantization is None:
        raise ModelFileNotFound(f"{where} has several ONNX files and no model.onnx: name one of {there}", param="model")
    raise ModelFileNotFound(f"{where} has no {quantization} among its ONNX files: {there}", param="quantization")


def check(name: str, quantization: str | None, where: str) -> None:
    """Raise `ManifestError` when the file named is not of the quantization that is asked for beside it."""
    variant = _variant(name)
    if quantization is not None and variant is not None and variant not in _variants(quantization):
        raise ManifestError(f"{where} is {_label(name)}, not {quantization}: leave one out", key="quantization")


def data(file: str, names: Iterable[str]) -> list[str]:
    """Return the files that hold a model's weights beside it: `model.onnx_data`, `model.onnx.data`, numbered or not."""
    return sorted(name for name in names if name.startswith(file) and _DATA.fullmatch(name[len(file) :]))


def _with_texts(file: str, names: Sequence[str]) -> Choice:
    """Return a graph with its weights, and the text files of the model and of the folder that the graph is in."""
    folder = file[: file.rfind("/") + 1]
    beside = [folder + name for name in texts(n.removeprefix(folder) for n in names if n.startswith(folder))]
    return Choice(files=(*dict.fromkeys((*texts(names), *beside)), file, *data(file, names)), target=file)


def _variants(quantization: str | None) -> tuple[str, ...]:
    word = (quantization or "fp32").lower()
    return _WORDS.get(word, (word,))


def _folder(name: str) -> str:
    return name[: name.rfind("/") + 1]


def _variant(name: str) -> str | None:
    """Return what stands behind `model_`, empty for `model.onnx`; None for files that are called otherwise."""
    match = _MODEL.fullmatch(name.rsplit("/", 1)[-1])
    return (match["variant"] or "").lower() if match else None


def _label(name: str) -> str:
    """Return the word of `quantization` that chooses the file; empty where none does."""
    variant = _variant(name)
    return next((word for word, ends in _WORDS.items() if variant in ends), variant or "")


ONNX = OnnxFormat()
