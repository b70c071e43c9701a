"""The one decision of what a listing of files gives: a GGUF with its shards, a folder of safetensors, or an ONNX file.

The same for a hub repository, a folder on disk and a folder in a package; it sees names only.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import msgspec

from host.errors import ManifestError, ModelFileNotFound
from host.sources import checkpoint, gguf, onnx

_TRANSFORMERS = ("bf16", "fp16", "f16", "int8", "int4")
"""Words of `quantization` that Transformers takes too: they do not turn a repository with both into a GGUF one."""


class Choice(msgspec.Struct, kw_only=True, frozen=True):
    """The files to have here, and the one to open: a file, or a folder (`""` is the listing's root)."""

    files: tuple[str, ...]
    target: str


class Wish(msgspec.Struct, kw_only=True, frozen=True):
    """What is wanted of a listing."""

    where: str
    """How messages call it: the manifest's own words."""
    file: str | None = None
    """A file or folder in it."""
    named: str | None = None
    """The quantization of `org/repo:QUANT`: only GGUF and ONNX have that."""
    quantization: str | None = None
    """The manifest's `quantization`: GGUF's, the end of an ONNX file's name, or how Transformers loads."""
    suffixes: Sequence[str] = ()


def choose(names: Sequence[str], wish: Wish) -> Choice:
    """Return what to take; raises `ModelFileNotFound` telling what there is, `ManifestError` for a contradiction."""
    if wish.file is None:
        return _choose(names, wish)
    if wish.file in names:
        return _named(wish.file, names, wish)
    folder = wish.file.rstrip("/") + "/"
    inside = [name.removeprefix(folder) for name in names if name.startswith(folder)]
    if not inside:
        raise ModelFileNotFound(f"{wish.where} has no {wish.file}{near(wish.file, names)}", param="model")
    choice = _choose(inside, wish)
    if onnx.is_onnx(choice.target):
        return _with_texts(folder + choice.target, names)
    return Choice(files=tuple(folder + file for file in choice.files), target=(folder + choice.target).rstrip("/"))


def near(wanted: str, names: Sequence[str]) -> str:
    """Return the end of a message: the names most like the one wanted, or all when they are few."""
    by_end = {name.rsplit("/", 1)[-1].lower(): name for name in names}
    matches = difflib.get_close_matches(wanted.rsplit("/", 1)[-1].lower(), by_end, n=5, cutoff=0.5)
    found = [by_end[match] for match in matches] or sorted(names)[:10]
    if not found:
        return "; it is empty"
    return f"; there is {', '.join(found)}" + (" and more" if len(names) > len(found) else "")


def _named(file: str, names: Sequence[str], wish: Wish) -> Choice:
    """Return a file that was named, whatever it is, with its shards."""
    if onnx.is_onnx(file):
        onnx.check(file, wish.named or wish.quantization, wish.where)
        return _with_texts(file, names)
    if not gguf.is_gguf(file):
        return Choice(files=(file,), target=file)
    model = gguf.whole(gguf.shards(file, names), wish.where)
    asked = wish.named or wish.quantization
    if asked and model.label and gguf.label(f"{asked}.gguf") not in (None, model.label):
        raise ManifestError(f"{wish.where} is {model.label}, not {asked}: leave one of the two out", key="quantization")
    return Choice(files=model.files, target=model.files[0])


def _choose(names: Sequence[str], wish: Wish) -> Choice:
    if _wants_onnx(names, wish):
        return _with_texts(onnx.choose(names, wish.named or wish.quantization, wish.where), names)
    other = tuple(suffix for suffix in wish.suffixes if suffix not in (".gguf", ".safetensors"))
    if other and not {".gguf", ".safetensors"} & set(wish.suffixes):
        return _by_suffix(names, other, wish.where)
    if _wants_gguf(names, wish):
        files = gguf.choose(names, wish.named or wish.quantization, wish.where)
        return Choice(files=files, target=files[0])
    return Choice(files=checkpoint.choose(names, wish.where), target="")


def _wants_onnx(names: Sequence[str], wish: Wish) -> bool:
    """Say whether an ONNX file is meant: its engine asks, or none does and there are weights of no other kind."""
    if wish.suffixes:
        return ".onnx" in wish.suffixes
    others = checkpoint.has_weights(names) or any(gguf.is_gguf(name) for name in names)
    return not others and any(onnx.is_onnx(name) for name in names)


def _wants_gguf(names: Sequence[str], wish: Wish) -> bool:
    """Decide between GGUF and safetensors: the engine's endings, a quantization only GGUF has, then what is there."""
    if ".gguf" in wish.suffixes or wish.named:
        return True
    if not checkpoint.has_weights(names):
        return any(gguf.is_gguf(name) for name in names)
    asks = wish.quantization is not None and wish.quantization.lower() not in _TRANSFORMERS
    return asks and bool(gguf.models(names))


def _with_texts(file: str, names: Sequence[str]) -> Choice:
    """Return an ONNX file with its weights, and the text files of the model and of the folder that the file is in."""
    folder = file[: file.rfind("/") + 1]
    beside = [folder + name for name in checkpoint.texts(n.removeprefix(folder) for n in names if n.startswith(folder))]
    texts = dict.fromkeys((*checkpoint.texts(names), *beside))
    return Choice(files=(*texts, file, *onnx.data(file, names)), target=file)


def _by_suffix(names: Sequence[str], suffixes: tuple[str, ...], where: str) -> Choice:
    """Return the only file with an ending that some other engine takes, and the text files a model has beside it."""
    found = sorted(name for name in names if name.lower().endswith(suffixes))
    if len(found) != 1:
        what = f"several: name one of {', '.join(found[:10])}" if found else "none"
        raise ModelFileNotFound(f"{where}: one file ending in {' or '.join(suffixes)} is needed, it has {what}")
    return Choice(files=(*checkpoint.texts(names), found[0]), target=found[0])
