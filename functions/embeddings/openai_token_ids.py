"""Token ids of OpenAI's vocabularies back to text, as LangChain's client sends them by default.

A `.tiktoken` file has a line for each token: its bytes in base64, and its id. What is in it is checked against the
hash that OpenAI's own library expects. Nothing is fetched: the file is where the manifest says, or where that library
keeps what it fetched.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from functions.embeddings.options import Encoding, TokenIds
from host.errors import ColdframeError, InvalidRequest, LoadFailed
from host.function import ModelRequest
from host.sources import reference
from host.sources.package import PackageSource

_HASHES: dict[Encoding, str] = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "p50k_base": "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
    "r50k_base": "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
}
"""SHA-256 of each file, as in tiktoken 0.14's `openai_public`."""
_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
"""Where OpenAI's library fetches a file from; it keeps it under the SHA-1 of that."""
_SPECIAL: dict[Encoding, dict[int, str]] = {
    "cl100k_base": {
        100257: "<|endoftext|>",
        100258: "<|fim_prefix|>",
        100259: "<|fim_middle|>",
        100260: "<|fim_suffix|>",
        100276: "<|endofprompt|>",
    },
    "o200k_base": {199999: "<|endoftext|>", 200018: "<|endofprompt|>"},
    "p50k_base": {50256: "<|endoftext|>"},
    "r50k_base": {50256: "<|endoftext|>"},
}


class OpenAITokenIds:
    """One vocabulary: the bytes of each id."""

    def __init__(self, name: str, tokens: Mapping[int, bytes]) -> None:
        self.name = name
        self._tokens = tokens

    def text(self, ids: Sequence[int], place: str) -> str:
        """Return the text; raises `InvalidRequest` for ids the vocabulary has not.

        What was cut within a character, as clients that split long texts do, has U+FFFD there.
        """
        try:
            found = b"".join([self._tokens[one] for one in ids])
        except KeyError:
            at = next(at for at, one in enumerate(ids) if one not in self._tokens)
            raise InvalidRequest(
                f"{place} has the token id {ids[at]}, which {self.name} has not", param=place
            ) from None
        return found.decode("utf-8", "replace")


def load(said: str | TokenIds, base: Path) -> OpenAITokenIds | None:
    """Return the vocabulary that the option names, None for the model's own; `base` is the manifest's folder.

    Raises `LoadFailed` where the file is not on this machine, or is another one.
    """
    if said == "own":
        return None
    wanted = said if isinstance(said, TokenIds) else TokenIds(encoding=_named(said))
    if wanted.file is None:
        return _checked(wanted.encoding, _kept(wanted.encoding), "the file that tiktoken keeps")
    try:
        data = _find(wanted.file, base).read_bytes()
    except OSError as error:
        raise _missing(wanted.file, error.strerror or "it cannot be read") from None
    return _checked(wanted.encoding, data, wanted.file)


def _checked(name: Encoding, data: bytes, what: str) -> OpenAITokenIds:
    if hashlib.sha256(data).hexdigest() != _HASHES[name]:
        raise LoadFailed(f"options.token_ids: {what} is not the vocabulary {name}, or is damaged")
    return OpenAITokenIds(name, _parsed(data) | _special(name))


def _named(said: str) -> Encoding:
    return next(name for name in _HASHES if name == said)


def _special(name: Encoding) -> dict[int, bytes]:
    return {number: text.encode() for number, text in _SPECIAL[name].items()}


def _parsed(data: bytes) -> dict[int, bytes]:
    lines = (line.split() for line in data.splitlines() if line)
    return {int(number): binascii.a2b_base64(token) for token, number in lines}


def _find(file: str, base: Path) -> Path:
    try:
        if reference.kind(file) == "package":
            wanted = ModelRequest(model=file, base=base)
            return PackageSource().resolve(wanted, lambda stage, done=0, total=0: None)
    except ColdframeError as error:
        raise _missing(file, str(error)) from None
    return base / Path(file).expanduser()


def _kept(name: Encoding) -> bytes:
    """Return the file that the package tiktoken fetched once and keeps; raises `LoadFailed` where it did not."""
    place = next((os.environ[key] for key in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR") if key in os.environ), None)
    folder = Path(tempfile.gettempdir()) / "data-gym-cache" if place is None else Path(place)
    key = hashlib.sha1(_ADDRESS.format(name).encode(), usedforsecurity=False).hexdigest()
    try:
        if place == "":
            raise FileNotFoundError  # so the package is told to keep nothing
        return (folder / key).read_bytes()
    except OSError:
        raise LoadFailed(
            f"options.token_ids: {name} is not on this machine, and nothing is fetched while loading: name its file "
            "(`token_ids: {encoding: …, file: ./….tiktoken}`), or let the package tiktoken put it into the folder of "
            f"TIKTOKEN_CACHE_DIR once (pip install 'coldframe[tiktoken]'; tiktoken.get_encoding('{name}'))"
        ) from None


def _missing(file: str, why: str) -> LoadFailed:
    return LoadFailed(f"options.token_ids: {file!r} is not there ({why}): expected a path, or package:NAME/FILE")
