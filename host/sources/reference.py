"""The text of a manifest's `model`, taken apart: `package:…`, a path, or a reference to a hub repository.

Text alone decides which of the three it is; whether anything of that name exists is not known here.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from host.errors import ManifestError

PACKAGE = "package:"
WEIGHTS = (".gguf", ".safetensors", ".onnx", ".bin", ".pt", ".pth", ".skops", ".joblib", ".zip")
FORMS = "`package:name/file`, `./path/to/file-or-folder`, `org/repo`, `org/repo:Q4_K_M` or `org/repo/file.gguf`"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
_QUANTIZATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")


class Reference(msgspec.Struct, kw_only=True, frozen=True):
    """A hub repository, and what of it is wanted."""

    org: str
    repo: str
    quantization: str | None = None
    file: str | None = None
    """A file or a folder inside the repository, `/` between its parts."""

    @property
    def id(self) -> str:
        """Return `org/repo`, as the hub's API spells it."""
        return f"{self.org}/{self.repo}"


def kind(model: str) -> Literal["package", "path", "hub"]:
    """Return which of the three the text is.

    A path begins with `.`, `/` or `~`, or has no slash at all, or is a folder and a file with a weights' ending
    (`models/chat.gguf`: no repository is named like that). Everything else with a slash is a hub reference.
    """
    if model.startswith(PACKAGE):
        return "package"
    parts = model.split("/")
    if model.startswith((".", "/", "~")) or len(parts) == 1:
        return "path"
    if len(parts) == 2 and ":" not in model and model.lower().endswith(WEIGHTS):
        return "path"
    return "hub"


def parse(model: str) -> Reference:
    """Return `org/repo[:QUANT][/file or folder]` taken apart; raises `ManifestError` for any other text."""
    parts = model.split("/")
    if len(parts) < 2:
        raise _wrong(model, "a hub reference has at least an organisation and a repository")
    org, second, *inner = parts
    repo, colon, quantization = second.partition(":")
    if colon and not _QUANTIZATION.fullmatch(quantization):
        raise _wrong(model, "after `:` stands a quantization such as Q4_K_M")
    if ":" in org or any(":" in part for part in inner):
        raise _wrong(model, "`:` stands only between the repository and a quantization")
    for what, name in (("organisation", org), ("repository", repo)):
        _check_name(model, what, name)
    if len(f"{org}/{repo}") > 96:
        raise _wrong(model, "the hub's names have at most 96 characters")
    if any(part in ("", ".", "..") or part != part.strip() or not part.isprintable() for part in inner):
        raise _wrong(model, "a part of the file's path is empty, `.` or `..`, or has spaces around it")
    if any("\\" in part for part in inner):
        raise _wrong(model, "the parts of a path are separated by `/`")
    return Reference(org=org, repo=repo, quantization=quantization or None, file="/".join(inner) or None)


def check_revision(revision: str) -> str:
    """Return the branch, tag or commit; raises `ManifestError` when it cannot be one."""
    if not _REVISION.fullmatch(revision) or ".." in revision or "//" in revision or revision.endswith(("/", ".lock")):
        raise ManifestError(f"{revision!r} is no branch, tag or commit", key="revision")
    return revision


def _check_name(model: str, what: str, name: str) -> None:
    if not name:
        raise _wrong(model, f"the {what} is empty")
    if "@" in name:
        raise _wrong(model, "a revision is pinned by the key `revision`, not by `@`")
    if not _NAME.fullmatch(name) or ".." in name or "--" in name or name.endswith(".git"):
        raise _wrong(model, f"{name!r} cannot be the name of a hub {what}")


def _wrong(model: str, why: str) -> ManifestError:
    return ManifestError(f"{model!r} is no model: {why}; expected {FORMS}", key="model")
