"""The manifest: one YAML file that declares one served model; its type, its parser and its JSON schema."""

from host.manifest.document import Document, read
from host.manifest.duration import Duration, seconds
from host.manifest.schema import schema
from host.manifest.spec import Manifest, Queue, load, of_manifest

__all__ = ("Document", "Duration", "Manifest", "Queue", "load", "of_manifest", "read", "schema", "seconds")
