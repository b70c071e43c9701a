"""Decodes token ids of OpenAI's vocabularies to text; LangChain's client sends such ids by default.

A `.tiktoken` file has a line for each token: its bytes in base64, and its id. Its content is checked against the hash
that OpenAI's tiktoken library expects. Nothing is downloaded: the file is the manifest's, or one in tiktoken's cache.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from functions.embeddings.options import TiktokenEncoding, TokenIds
from host.errors import ColdframeError, InvalidRequest, LoadFailed
from host.function import ModelRequest
from host.sources import reference
from host.sources.package import PackageSource

_HASHES: dict[TiktokenEncoding, str] = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "p50k_base": "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
    "r50k_base": "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
}
"""SHA-256 of each file, as in tiktoken 0.14's `openai_public`."""
_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
"""The address from which tiktoken downloads a file; the SHA-1 of it is the file's name in the cache."""
_SPECIAL: dict[TiktokenEncoding, dict[int, str]] = {
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
    """A vocabulary: the bytes of each token id."""

    def __init__(self, name: str, tokens: Mapping[int, bytes]) -> None:
        self.name = name
        self._tokens = tokens

    def decode(self, ids: Sequence[int], param: str) -> str:
        """Return the text of token ids; raises `InvalidRequest` naming `param` for unknown ids.

        Incomplete characters, which clients make when they split long texts, become U+FFFD.
        """
        try:
            found = b"".join([self._tokens[one] for one in ids])
        except KeyError:
            at = next(at for at, one in enumerate(ids) if one not in self._tokens)
            raise InvalidRequest(
                f"{param} has the token id {ids[at]}, which {self.name} has not", param=param
            ) from None
        return found.decode("utf-8", "replace")


def load(option: str | TokenIds, base: Path) -> OpenAITokenIds | None:
    """Return the vocabulary of the option, None for the model's own; `base` is the manifest's folder.

    Raises `LoadFailed` where the file is not on this machine, or does not match its hash.
    """
    if option == "own":
        return None
    token_ids = option if isinstance(option, TokenIds) else TokenIds(encoding=_encoding(option))
    if token_ids.file is None:
        return _create(token_ids.encoding, _read_cached(token_ids.encoding), "the file in tiktoken's cache")
    try:
        data = _find(token_ids.file, base).read_bytes()
    except OSError as error:
        raise _missing(token_ids.file, error.strerror or "it cannot be read") from None
    return _create(token_ids.encoding, data, token_ids.file)


def _create(name: TiktokenEncoding, data: bytes, what: str) -> OpenAITokenIds:
    if hashlib.sha256(data).hexdigest() != _HASHES[name]:
        raise LoadFailed(f"options.token_ids: {what} is not the vocabulary {name}, or is damaged")
    return OpenAITokenIds(name, _parse(data) | _special_tokens(name))


def _encoding(option: str) -> TiktokenEncoding:
    return next(name for name in _HASHES if name == option)


def _special_tokens(name: TiktokenEncoding) -> dict[int, bytes]:
    return {number: text.encode() for number, text in _SPECIAL[name].items()}


def _parse(data: bytes) -> dict[int, bytes]:
    lines = (line.split() for line in data.splitlines() if line)
    return {int(number): binascii.a2b_base64(token) for token, number in lines}


def _find(file: str, base: Path) -> Path:
    try:
        if reference.kind(file) == "package":
            request = ModelRequest(model=file, base=base)
            return PackageSource().resolve(request, lambda stage, done=0, total=0: None)
    except ColdframeError as error:
        raise _missing(file, str(error)) from None
    return base / Path(file).expanduser()


def _read_cached(name: TiktokenEncoding) -> bytes:
    """Return the file from tiktoken's cache; raises `LoadFailed` where it is not there."""
    place = next((os.environ[key] for key in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR") if key in os.environ), None)
    folder = Path(tempfile.gettempdir()) / "data-gym-cache" if place is None else Path(place)
    key = hashlib.sha1(_ADDRESS.format(name).encode(), usedforsecurity=False).hexdigest()
    try:
        if place == "":
            raise FileNotFoundError  # an empty value disables tiktoken's cache
        return (folder / key).read_bytes()
    except OSError:
        raise LoadFailed(
            f"options.token_ids: {name} is not on this machine, and nothing is fetched while loading: name its file "
            "(`token_ids: {encoding: …, file: ./….tiktoken}`), or let the package tiktoken put it into the folder of "
            f"TIKTOKEN_CACHE_DIR once (pip install 'coldframe[tiktoken]'; tiktoken.get_encoding('{name}'))"
        ) from None


def _missing(file: str, why: str) -> LoadFailed:
    return LoadFailed(f"options.token_ids: {file!r} is not there ({why}): expected a path, or package:NAME/FILE")
