"""The contract of a file format: how an engine recognises its files in a listing, and chooses which to fetch and open.

A listing is the file names of a hub repository, or of a folder on disk or in a package, with `/` between the parts.
Nothing is opened here, and no format is known by name: engines register theirs in `Engine.formats`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec

from host.errors import ModelFileNotFound

TEXT_SUFFIXES = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".py", ".spm", ".vocab", ".bpe", ".metadata")
"""Endings of configuration, tokenizer and template files, which most formats need beside the weights."""


class Choice(msgspec.Struct, kw_only=True, frozen=True):
    """The files to fetch, and the one to open: a file, or a folder (`""` is the listing's root)."""

    files: tuple[str, ...]
    target: str


class FileRequest(msgspec.Struct, kw_only=True, frozen=True):
    """What a manifest asks of a listing."""

    where: str
    """How messages call the listing: the manifest's own words."""
    file: str | None = None
    """A file or folder in it."""
    label: str | None = None
    """The quantization of `org/repo:QUANT`, which always means one of several files."""
    quantization: str | None = None
    """The manifest's `quantization`: one of several files, or how the engine is to load them."""

    @property
    def asked(self) -> str | None:
        """The quantization asked for, whichever way."""
        return self.label or self.quantization


class FileFormat(ABC):
    """One file format of an engine. Import nothing heavy: the host calls it for every manifest."""

    rank: ClassVar[int] = 50
    """Of several formats in one listing, the one of lowest rank is taken where the manifest does not decide."""
    labelled: ClassVar[bool] = False
    """Whether `org/repo:QUANT` can choose among its files."""

    @abstractmethod
    def is_file(self, name: str) -> bool:
        """Return whether a file is of this format, by its name."""

    def contains(self, names: Iterable[str]) -> bool:
        """Return whether the listing has weights of this format."""
        return any(map(self.is_file, names))

    def claims(self, names: Sequence[str], quantization: str) -> bool:
        """Return whether a manifest's `quantization` means a file of this format, though others are there too."""
        return False

    @abstractmethod
    def choose(self, names: Sequence[str], request: FileRequest) -> Choice:
        """Return the files for a request that names none.

        Raises `ModelFileNotFound` that lists what there is when `request.asked` is not there, when parts are missing,
        or when it is not clear which of several models is meant.
        """

    def named(self, file: str, names: Sequence[str], request: FileRequest) -> Choice:
        """Return the choice for a file of this format that the manifest names: it, its other parts, what it needs.

        Raises `ManifestError` when `request.asked` contradicts the name.
        """
        return Choice(files=(file,), target=file)

    def in_folder(self, folder: str, choice: Choice, names: Sequence[str]) -> Choice:
        """Return a choice made inside `folder` (which ends in `/`) for the whole listing `names`."""
        return Choice(files=tuple(folder + file for file in choice.files), target=(folder + choice.target).rstrip("/"))


class SingleFile(FileFormat):
    """One file with one of some endings, and the text files beside it: the format of an engine that declares none."""

    def __init__(self, suffixes: Sequence[str]) -> None:
        self._suffixes = tuple(suffixes)

    def is_file(self, name: str) -> bool:
        """Return whether the name has one of the endings."""
        return name.lower().endswith(self._suffixes)

    def choose(self, names: Sequence[str], request: FileRequest) -> Choice:
        """Return the only file with such an ending; raises `ModelFileNotFound` for none and for several."""
        found = sorted(filter(self.is_file, names))
        if len(found) != 1:
            what = f"several: name one of {', '.join(found[:10])}" if found else "none"
            endings = " or ".join(self._suffixes)
            raise ModelFileNotFound(
                f"{request.where}: one file ending in {endings} is needed, it has {what}", param="model"
            )
        return Choice(files=(*texts(names), found[0]), target=found[0])


def texts(names: Iterable[str]) -> tuple[str, ...]:
    """Return the configuration, tokenizer and template files of a listing, without hidden ones, sorted."""
    return tuple(
        sorted(n for n in names if n.lower().endswith(TEXT_SUFFIXES) and not any(p[:1] == "." for p in n.split("/")))
    )
