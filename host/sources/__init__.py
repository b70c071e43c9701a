"""Where models come from: installed packages, paths and the Hugging Face hub, as one plug-in of three sources.

Importing it is cheap: nothing here reads a model, and huggingface_hub is imported by the first download.
"""

from __future__ import annotations

from host.function import Source
from host.hooks import hookimpl
from host.sources.hub import HubSource
from host.sources.package import PackageSource
from host.sources.path import PathSource
from host.sources.resolve import claimant, resolve

__all__ = ("HubSource", "PackageSource", "PathSource", "claimant", "coldframe_sources", "resolve")


@hookimpl
def coldframe_sources() -> tuple[Source, ...]:
    """Register the three sources; no text is claimed by two of them."""
    return PackageSource(), PathSource(), HubSource()
