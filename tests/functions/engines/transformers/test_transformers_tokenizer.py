"""MiniLM's real tokenizer, against Transformers' own."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import tokenizers
import transformers
from tokenizers.models import WordLevel

from functions.engines.transformers import tokenizer
from functions.engines.transformers.folder import Folder
from functions.engines.transformers.tokenizer import Tokenizer
from host.errors import LoadFailed

pytestmark = pytest.mark.anyio

TEXTS = ["Hello, world!", "naïve café 日本語 🙂", "  spaces\n\nand lines ", "[SEP] in the text", "x" * 300, "a"]


@pytest.fixture(scope="module")
def ours(minilm: Path) -> Iterator[Tokenizer]:
    made = tokenizer.load(Folder(minilm), threads=2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def theirs(minilm: Path) -> transformers.PreTrainedTokenizerBase:
    return transformers.AutoTokenizer.from_pretrained(minilm)


async def test_ids_are_those_of_transformers(ours: Tokenizer, theirs: transformers.PreTrainedTokenizerBase) -> None:
    expected = theirs(TEXTS)["input_ids"]
    assert [ids.tolist() for ids in await ours.encode(TEXTS)] == expected
    assert [(await ours.encode([text]))[0].tolist() for text in TEXTS] == expected


@pytest.mark.parametrize("kind", ["BertTokenizer", "BertTokenizerFast", "MPNetTokenizer"])
@pytest.mark.parametrize(
    "said",
    [{"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}, {"do_lower_case": True}],
)
async def test_case_and_accents_are_folded_as_the_configuration_says(
    minilm: Path, tmp_path: Path, kind: str, said: dict[str, bool]
) -> None:
    """Transformers makes BERT's tokenizers anew from `tokenizer_config.json`, whatever `tokenizer.json` says."""
    shutil.copytree(minilm, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | said | {"tokenizer_class": kind}))
    if said == {"do_lower_case": True}:
        changed = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        changed.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=False)
        changed.save(str(tmp_path / "tokenizer.json"))
    as_saved = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    as_saved.no_padding()
    texts = ["Naïve café, Grüße 日本語 日本", *TEXTS]
    made = tokenizer.load(Folder(tmp_path), threads=2)
    found = [ids.tolist() for ids in await made.encode(texts)]
    made.close()
    assert found[0] != as_saved.encode(texts[0]).ids
    if kind != "MPNetTokenizer":  # whose special tokens are others
        assert found == transformers.AutoTokenizer.from_pretrained(tmp_path)(texts)["input_ids"]


async def test_other_tokenizers_are_what_their_file_says(minilm: Path, tmp_path: Path) -> None:
    shutil.copytree(minilm, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors"))
    said = {"do_lower_case": False, "tokenizer_class": "PreTrainedTokenizerFast"}
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | said))
    made = tokenizer.load(Folder(tmp_path), threads=2)
    found = [ids.tolist() for ids in await made.encode(TEXTS)]
    made.close()
    assert found == transformers.AutoTokenizer.from_pretrained(tmp_path)(TEXTS)["input_ids"]


async def test_texts_without_special_tokens(minilm: Path) -> None:
    made = tokenizer.load(Folder(minilm), threads=2, framed=False)
    assert (made.prefix, made.suffix) == ([], [])
    assert [ids.tolist() for ids in await made.encode(["Hello, world!", ""])] == [made.bare("Hello, world!"), []]
    made.close()


async def test_neither_padded_nor_cut(ours: Tokenizer) -> None:
    short, long = await ours.encode(["a", "a " * 1000])
    assert len(short) == 3
    assert len(long) == 1002


async def test_many_texts_let_others_in_between(ours: Tokenizer) -> None:
    many = asyncio.create_task(ours.encode(["some words " * 200] * 1500))
    await asyncio.sleep(0)
    await ours.encode(["one"])
    assert not many.done()
    assert len(await many) == 1500


async def test_cancelling_stops_between_slices(ours: Tokenizer) -> None:
    many = asyncio.create_task(ours.encode(["some words " * 200] * 20_000))
    await asyncio.sleep(0.01)
    many.cancel()
    with pytest.raises(asyncio.CancelledError):
        await many
    assert len((await asyncio.wait_for(ours.encode(["one"]), 60))[0]) == 3


def test_special_tokens_around_a_text(ours: Tokenizer) -> None:
    assert (ours.prefix, ours.suffix) == ([101], [102])
    assert ours.vocabulary == 30522


@pytest.mark.parametrize(
    ("ids", "before", "found"),
    [
        ([5, 6], (), [101, 5, 6, 102]),
        ([101, 5, 6, 102], (), [101, 5, 6, 102]),
        ([101, 5], (), [101, 101, 5, 102]),
        ([5, 6], (8, 9), [101, 8, 9, 5, 6, 102]),
        ([101, 5, 102], (8,), [101, 8, 5, 102]),
        ([101, 102], (), [101, 102]),
    ],
)
def test_ids_get_their_frame(ours: Tokenizer, ids: list[int], before: tuple[int, ...], found: list[int]) -> None:
    assert ours.frame(ids, before).tolist() == found


@pytest.mark.parametrize("limit", [3, 8, 20, 100])
async def test_cut_as_transformers_cuts(
    ours: Tokenizer, theirs: transformers.PreTrainedTokenizerBase, limit: int
) -> None:
    text = "the quick brown fox jumps over the lazy dog and runs away from it"
    expected = theirs(text, truncation=True, max_length=limit)["input_ids"]
    assert ours.cut((await ours.encode([text]))[0], limit).tolist() == expected


def test_a_tokenizer_without_special_tokens() -> None:
    made = Tokenizer(tokenizers.Tokenizer(WordLevel({"a": 0, "?": 1}, unk_token="?")))
    assert (made.prefix, made.suffix) == ([], [])
    assert made.frame([0, 1]).tolist() == [0, 1]
    assert made.cut(made.frame([0, 1, 0]), 2).tolist() == [0, 1]
    made.close()


async def test_lower_casing() -> None:
    made = Tokenizer(tokenizers.Tokenizer(WordLevel({"abc": 0, "?": 1}, unk_token="?")), lower=True)
    assert (await made.encode(["ABC"]))[0].tolist() == [0]
    assert made.bare("Abc") == [0]
    made.close()


async def test_made_of_older_files(minilm: Path, tmp_path: Path, ours: Tokenizer) -> None:
    for name in ("vocab.txt", "tokenizer_config.json", "special_tokens_map.json", "config.json"):
        shutil.copy(minilm / name, tmp_path)
    made = tokenizer.load(Folder(tmp_path), threads=1)
    plain = [text for text in TEXTS if "[SEP]" not in text]
    assert [x.tolist() for x in await made.encode(plain)] == [x.tolist() for x in await ours.encode(plain)]
    made.close()


@pytest.mark.parametrize("content", ["", "{", json.dumps({"version": "1.0"})])
def test_a_broken_file_is_told_without_its_place(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(LoadFailed, match="tokenizer cannot be read") as caught:
        tokenizer.load(Folder(tmp_path), threads=1)
    assert str(tmp_path) not in caught.value.message
