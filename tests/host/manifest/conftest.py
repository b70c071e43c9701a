"""Manifests for tests are written to real files, because the lines in error messages are about files."""

import pytest

from host.errors import ManifestError
from host.manifest import load, read

BASE = "task: chat\nmodel: org/repo\n"


@pytest.fixture
def write(tmp_path):
    def write(text, name="small.yaml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def manifest(write):
    """Returns the manifest of two valid lines and what is added below them."""
    return lambda more="": load(write(BASE + more))[0]


@pytest.fixture
def data(write):
    """Returns what a file says, as plain data."""
    return lambda text: read(write(text)).data


@pytest.fixture
def refused(write):
    """Returns the error of a file that is no manifest: `more` stands below two valid lines, so its line is the 3rd."""

    def refused(more="", whole=None):
        with pytest.raises(ManifestError) as caught:
            load(write(BASE + more if whole is None else whole))
        return caught.value

    return refused
