"""Default places: granian.toml, the folder of manifests, the URL of the running host.

Files in the working directory take precedence over those shipped with coldframe.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec

import host
from host.errors import ManifestError
from host.settings import Settings, read

CONFIG = "granian.toml"
_PACKAGE = Path(host.__file__).parent


def shipped(name: str) -> Path:
    """Return a file or folder shipped with coldframe: inside the wheel, or beside the package in a checkout."""
    inside = _PACKAGE / "data" / name
    return inside if inside.exists() else _PACKAGE.parent / name


def settings(config: Path | None = None) -> Settings:
    """Return the settings of `config`, else of ./granian.toml, else of the shipped one; raises `ManifestError`."""
    here, ours = Path(CONFIG), shipped(CONFIG)
    file = config or (here if here.is_file() else ours if ours.is_file() else None)
    return read(file, os.environ)


def with_manifests(found: Settings, manifests: Path | None) -> Settings:
    """Return the settings with the folder to serve: the option's, the config's, ./manifests, else the shipped one.

    Raises `ManifestError` when a folder that somebody named is not there.
    """
    folder = manifests or found.manifests
    if not folder.exists():
        if manifests is not None or found.manifests_said:
            key = "--manifests" if manifests is not None else "host.manifests"
            raise ManifestError(f"no such file or folder: {folder}", key=key)
        folder = shipped("manifests")
    return msgspec.structs.replace(found, manifests=folder)


def url(option: str | None) -> str:
    """Return the URL of the host to ask: the option's (or COLDFRAME_URL), else what the config says it listens on."""
    if option is None:
        return settings().url
    whole = (option if "://" in option else f"http://{option}").rstrip("/").removesuffix("/v1")
    place = urlsplit(whole)
    try:
        usable = place.scheme in ("http", "https") and bool(place.hostname) and (place.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise click.BadParameter(
            f"expected an address such as http://127.0.0.1:8000, got {option!r}", param_hint="--url"
        )
    return whole


manifests_option = click.option(
    "--manifests",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of manifests, or one file.  [default: [host].manifests, ./manifests, the shipped ones]",
)
url_option = click.option(
    "--url",
    envvar="COLDFRAME_URL",
    metavar="URL",
    help="The running host; also COLDFRAME_URL.  [default: address and port of granian.toml]",
)
