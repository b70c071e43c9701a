"""Decides which of the engines' file formats a listing of files is taken as, and lets that format choose the files.

The same for a hub repository, a folder on disk and a folder in a package; only names are looked at.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from host.errors import ModelFileNotFound
from host.file_format import Choice, FileFormat, FileRequest


def choose(names: Sequence[str], request: FileRequest, formats: Sequence[FileFormat]) -> Choice:
    """Return what to take; raises `ModelFileNotFound` that lists what there is, `ManifestError` for a contradiction."""
    if request.file is None:
        return _format(names, request, formats).choose(names, request)
    if request.file in names:
        found = next((one for one in formats if one.is_file(request.file)), None)
        return (
            found.named(request.file, names, request) if found else Choice(files=(request.file,), target=request.file)
        )
    folder = request.file.rstrip("/") + "/"
    inside = [name.removeprefix(folder) for name in names if name.startswith(folder)]
    if not inside:
        raise ModelFileNotFound(f"{request.where} has no {request.file}{near(request.file, names)}", param="model")
    chosen = _format(inside, request, formats)
    return chosen.in_folder(folder, chosen.choose(inside, request), names)


def near(wanted: str, names: Sequence[str]) -> str:
    """Return the end of a message: the names most like the one wanted, or all when they are few."""
    by_end = {name.rsplit("/", 1)[-1].lower(): name for name in names}
    matches = difflib.get_close_matches(wanted.rsplit("/", 1)[-1].lower(), by_end, n=5, cutoff=0.5)
    found = [by_end[match] for match in matches] or sorted(names)[:10]
    if not found:
        return "; it is empty"
    return f"; there is {', '.join(found)}" + (" and more" if len(names) > len(found) else "")


def _format(names: Sequence[str], request: FileRequest, formats: Sequence[FileFormat]) -> FileFormat:
    """Return the format to take the listing as; one that is not there raises the better error when it chooses.

    Of those in the listing: the one that claims the quantization, else the one of lowest rank. `org/repo:QUANT` is
    only for formats with labels.
    """
    able = sorted(formats, key=lambda one: one.rank)
    there = [one for one in able if one.contains(names)] or able
    if request.label and there and not there[0].labelled:
        able = [one for one in able if one.labelled]
        there = [one for one in able if one.contains(names) and one.claims(names, request.label)] or able
    if not there:
        raise ModelFileNotFound(f"{request.where}: no engine is installed that takes files of it", param="model")
    asked = request.asked
    return next((one for one in there if asked and one.claims(names, asked)), there[0])
