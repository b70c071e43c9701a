"""Token ids of OpenAI's vocabularies, from a file and from the package tiktoken, and what happens without either."""

from __future__ import annotations

import sys
import typing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import tiktoken
from stfolders import vectors
from tinymodels import tiny

from functions.embeddings import openai_token_ids
from functions.embeddings.options import EmbeddingsOptions, TiktokenEncoding, TokenIds
from host.errors import InvalidRequest, LoadFailed, ManifestError

KEY = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
"""The file of cl100k_base in tiktoken's cache, which some packages bring along."""
INNER = f"litellm/litellm_core_utils/tokenizers/{KEY}"
TEXTS = [
    "river stone",
    "Grüße aus Zürich, 世界! 🦜",
    "  def f():\n\t\treturn '<b>'\n\n",
    "<|endoftext|> and <|fim_prefix|>",
    "é\u0301",
]


@pytest.fixture(scope="module")
def cache() -> Path:
    found = find_spec("litellm")
    if found is None or found.origin is None:
        pytest.skip("litellm, whose package holds the vocabulary, is not installed")
    return Path(found.origin).parent / "litellm_core_utils" / "tokenizers"


@pytest.fixture
def encoding(cache: Path, monkeypatch: pytest.MonkeyPatch) -> tiktoken.Encoding:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
    return tiktoken.get_encoding("cl100k_base")


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_text_again(cache: Path, encoding: tiktoken.Encoding, text: str) -> None:
    made = [
        openai_token_ids.load(said, cache)
        for said in (
            TokenIds(file=f"package:{INNER}"),
            TokenIds(file=KEY),
            TokenIds(file=str(cache / KEY)),
            "cl100k_base",
        )
    ]
    for one in made:
        assert one is not None
        assert one.decode(encoding.encode(text, allowed_special="all"), "input") == text
        assert one.decode(encoding.encode(text, disallowed_special=()), "input") == text


def test_every_id_of_the_vocabulary(cache: Path, encoding: tiktoken.Encoding) -> None:
    made = openai_token_ids.load(TokenIds(file=KEY), cache)
    assert made is not None
    for one in [*range(0, 100_256, 97), 100_257, 100_258, 100_259, 100_260, 100_276]:
        expected = encoding.decode_single_token_bytes(one).decode("utf-8", "replace")
        assert made.decode([one], "input") == expected


def test_what_is_cut_within_a_character_has_a_mark_there(cache: Path, encoding: tiktoken.Encoding) -> None:
    made = openai_token_ids.load(TokenIds(file=KEY), cache)
    assert made is not None
    ids = encoding.encode("🦜")
    assert len(ids) > 1
    assert made.decode(ids[:1], "input") == "\ufffd"


@pytest.mark.parametrize("wrong", [100_256, 100_261, 100_277, 2**40])
def test_ids_that_are_not_in_it_are_named(cache: Path, wrong: int) -> None:
    made = openai_token_ids.load(TokenIds(file=KEY), cache)
    assert made is not None
    with pytest.raises(
        InvalidRequest, match=rf"input\[4\] has the token id {wrong}, which cl100k_base has not"
    ) as caught:
        made.decode([5, wrong], "input[4]")
    assert caught.value.param == "input[4]"


def test_the_models_own_vocabulary_needs_nothing() -> None:
    assert openai_token_ids.load("own", Path("/nowhere")) is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (TokenIds(file="nowhere.tiktoken"), "'nowhere.tiktoken' is not there .*expected a path, or package:NAME/FILE"),
        (TokenIds(file="package:litellm/nowhere"), "'package:litellm/nowhere' is not there"),
        (TokenIds(file="package:no_such_package/x"), "is not there"),
        (TokenIds(file="."), "is not there"),
        (TokenIds(encoding="o200k_base", file=f"package:{INNER}"), "is not the vocabulary o200k_base, or is damaged"),
    ],
)
def test_files_that_are_missing_or_others(tmp_path: Path, cache: Path, said: TokenIds, why: str) -> None:
    with pytest.raises(LoadFailed, match=rf"options\.token_ids: .*{why}"):
        openai_token_ids.load(said, tmp_path)


def test_a_damaged_file_is_not_read(tmp_path: Path, cache: Path) -> None:
    data = bytearray((cache / KEY).read_bytes())
    data[1000] ^= 1
    (tmp_path / "cl100k_base.tiktoken").write_bytes(data)
    with pytest.raises(LoadFailed, match="is damaged"):
        openai_token_ids.load(TokenIds(file="cl100k_base.tiktoken"), tmp_path)


def test_what_the_package_keeps_is_read_without_it(
    monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    for name, other in (("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"), ("DATA_GYM_CACHE_DIR", "TIKTOKEN_CACHE_DIR")):
        monkeypatch.setenv(name, str(cache))
        monkeypatch.delenv(other, raising=False)
        made = openai_token_ids.load("cl100k_base", tmp_path)
        assert made is not None
        assert made.decode([0, 1], "input") == '!"'


@pytest.mark.parametrize("name", typing.get_args(TiktokenEncoding))
def test_the_package_keeps_each_vocabulary_where_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: TiktokenEncoding
) -> None:
    """The package reads the file under the same name, so what it has fetched is found."""
    import tiktoken.load

    asked: list[Path] = []

    def exists(path: str) -> bool:
        asked.append(Path(path))
        raise LookupError

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tiktoken.load.os.path, "exists", exists)
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, name, None)
    del tiktoken.registry.ENCODINGS[name]
    with pytest.raises(LookupError):
        tiktoken.get_encoding(name)
    monkeypatch.undo()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    asked[0].write_bytes(b"IQ== 0\n")
    with pytest.raises(LoadFailed, match=f"is not the vocabulary {name}, or is damaged"):
        openai_token_ids.load(name, tmp_path)


@pytest.mark.parametrize("place", ["", "empty", None])
def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str | None) -> None:
    import socket

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "create_connection", never)
    monkeypatch.setattr(socket, "getaddrinfo", never)
    for name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if place is not None:
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", place and str(tmp_path / place))
    with pytest.raises(
        LoadFailed,
        match=r"p50k_base is not on this machine, and nothing is fetched .*file: .*get_encoding\('p50k_base'\)",
    ):
        openai_token_ids.load("p50k_base", tmp_path)


@pytest.mark.parametrize(
    "said", ["own", "cl100k_base", "o200k_base", {"file": "x"}, {"encoding": "p50k_base", "file": "x"}]
)
def test_what_a_manifest_may_say(said: Any) -> None:
    assert msgspec.convert({"token_ids": said}, EmbeddingsOptions).token_ids is not None


def test_what_a_manifest_may_not_say(opener: Any, tmp_path: Path) -> None:
    for said in ("cl200k", 5, {"encoding": "cl200k"}, {"path": "x"}):
        with pytest.raises(ManifestError, match="token_ids"):
            opener(tiny(tmp_path), {"token_ids": said})


@pytest.mark.anyio
async def test_ids_of_a_client_have_the_vectors_of_the_text(
    opener: Any, tmp_path: Path, cache: Path, encoding: tiktoken.Encoding
) -> None:
    ours = opener(tiny(tmp_path), {"token_ids": {"file": str(cache / KEY)}})
    texts = ["river stone", "light of the window"]
    ids = [encoding.encode(text) for text in texts]
    assert max(map(max, ids)) > 40
    assert np.array_equal(await vectors(ours, ids), await vectors(ours, texts))
    assert np.array_equal(await vectors(ours, ids[0]), await vectors(ours, texts[0]))
    with pytest.raises(InvalidRequest, match=r"input\[1\] has the token id 100256"):
        await vectors(ours, [ids[0], [100_256]])
    plain = opener(tiny(tmp_path))
    with pytest.raises(InvalidRequest, match=r"options\.token_ids in the manifest"):
        await vectors(plain, ids)
