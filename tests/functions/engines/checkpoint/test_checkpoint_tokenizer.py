"""MiniLM's real tokenizer, against Transformers' own."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from functions.engines.checkpoint import tokenizer
from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.tokenizer import FastTokenizer
from host.errors import InvalidRequest, LoadFailed

pytestmark = pytest.mark.anyio

TEXTS = ["Hello, world!", "naïve café 日本語 🙂", "  spaces\n\nand lines ", "[SEP] in the text", "x" * 300, "a"]


@pytest.fixture(scope="module")
def ours(minilm: Path) -> Iterator[FastTokenizer]:
    made = tokenizer.load(Folder(minilm), threads=2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def theirs(minilm: Path) -> transformers.PreTrainedTokenizerBase:
    return transformers.AutoTokenizer.from_pretrained(minilm)


async def test_ids_are_those_of_transformers(ours: FastTokenizer, theirs: transformers.PreTrainedTokenizerBase) -> None:
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


async def test_settings_that_say_null_change_nothing(minilm: Path, tmp_path: Path) -> None:
    shutil.copytree(minilm, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    nothing = dict.fromkeys(("do_lower_case", "strip_accents", "tokenize_chinese_chars"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | nothing | {"tokenizer_class": "BertTokenizer"}))
    plain, made = (tokenizer.load(Folder(folder), threads=2) for folder in (minilm, tmp_path))
    expected, found = [(await one.encode(["Naïve CAFÉ 日本語"]))[0].tolist() for one in (plain, made)]
    plain.close()
    made.close()
    assert found == expected


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


async def test_neither_padded_nor_cut(ours: FastTokenizer) -> None:
    short, long = await ours.encode(["a", "a " * 1000])
    assert len(short) == 3
    assert len(long) == 1002


async def test_many_texts_let_others_in_between(ours: FastTokenizer) -> None:
    many = asyncio.create_task(ours.encode(["some words " * 200] * 1500))
    await asyncio.sleep(0)
    await ours.encode(["one"])
    assert not many.done()
    assert len(await many) == 1500


async def test_cancelling_stops_between_slices(ours: FastTokenizer) -> None:
    many = asyncio.create_task(ours.encode(["some words " * 200] * 20_000))
    await asyncio.sleep(0.01)
    many.cancel()
    with pytest.raises(asyncio.CancelledError):
        await many
    assert len((await asyncio.wait_for(ours.encode(["one"]), 60))[0]) == 3


def test_special_tokens_around_a_text(ours: FastTokenizer) -> None:
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
def test_ids_get_their_frame(ours: FastTokenizer, ids: list[int], before: tuple[int, ...], found: list[int]) -> None:
    assert ours.frame(ids, before).tolist() == found


@pytest.mark.parametrize("limit", [3, 8, 20, 100])
async def test_cut_as_transformers_cuts(
    ours: FastTokenizer, theirs: transformers.PreTrainedTokenizerBase, limit: int
) -> None:
    text = "the quick brown fox jumps over the lazy dog and runs away from it"
    expected = theirs(text, truncation=True, max_length=limit)["input_ids"]
    assert ours.cut((await ours.encode([text]))[0], limit).tolist() == expected


def test_a_tokenizer_without_special_tokens() -> None:
    made = FastTokenizer(tokenizers.Tokenizer(WordLevel({"a": 0, "?": 1}, unk_token="?")))
    assert (made.prefix, made.suffix) == ([], [])
    assert made.frame([0, 1]).tolist() == [0, 1]
    assert made.cut(made.frame([0, 1, 0]), 2).tolist() == [0, 1]
    made.close()


async def test_lower_casing() -> None:
    made = FastTokenizer(tokenizers.Tokenizer(WordLevel({"abc": 0, "?": 1}, unk_token="?")), lower=True)
    assert (await made.encode(["ABC"]))[0].tolist() == [0]
    assert made.bare("Abc") == [0]
    made.close()


async def test_made_of_older_files(minilm: Path, tmp_path: Path, ours: FastTokenizer) -> None:
    for name in ("vocab.txt", "tokenizer_config.json", "special_tokens_map.json", "config.json"):
        shutil.copy(minilm / name, tmp_path)
    made = tokenizer.load(Folder(tmp_path), threads=1)
    plain = [text for text in TEXTS if "[SEP]" not in text]
    assert [x.tolist() for x in await made.encode(plain)] == [x.tolist() for x in await ours.encode(plain)]
    made.close()


@pytest.mark.parametrize(
    "files", [["config.json"], ["config.json", "tokenizer_config.json"], ["config.json", "special_tokens_map.json"]]
)
def test_a_folder_without_a_vocabulary_is_refused(minilm: Path, tmp_path: Path, files: list[str]) -> None:
    """Transformers makes a tokenizer of special tokens of it, to which every word is unknown."""
    for name in files:
        shutil.copy(minilm / name, tmp_path)
    with pytest.raises(LoadFailed, match=r"the folder has no tokenizer: tokenizer\.json is missing"):
        tokenizer.load(Folder(tmp_path), threads=1)


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 231508\n"


@pytest.mark.parametrize(
    ("vocabulary", "config"),
    [
        ("", {}),
        (POINTER, {"vocab_size": 30_522}),
        (POINTER, {"text_config": {"vocab_size": 30_522}}),
        ("\n".join(f"word{at}" for at in range(290)), {"vocab_size": 30_522}),
    ],
)
def test_what_is_left_of_a_vocabulary_is_refused(
    minilm: Path, tmp_path: Path, vocabulary: str, config: dict[str, Any]
) -> None:
    shutil.copy(minilm / "tokenizer_config.json", tmp_path)
    (tmp_path / "vocab.txt").write_text(vocabulary)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"} | config))
    with pytest.raises(LoadFailed, match=r"has only \d+ tokens.*its vocabulary is missing or broken"):
        tokenizer.load(Folder(tmp_path), threads=1)


@pytest.mark.parametrize("stated", [None, 400, 30_522])
def test_a_small_vocabulary_that_suits_the_model_is_read(minilm: Path, tmp_path: Path, stated: int | None) -> None:
    shutil.copy(minilm / "tokenizer_config.json", tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{at}" for at in range(310))]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "bert"} | ({"vocab_size": stated} if stated else {}))
    )
    made = tokenizer.load(Folder(tmp_path), threads=1)
    assert made.bare("word7") == [12]
    made.close()


def grown(added: int, *, base: int = 6) -> FastTokenizer:
    """Return a tokenizer of `base` words, the first two of them around each text, and of added tokens behind them."""
    words = tokenizers.Tokenizer(WordLevel({f"w{at}": at for at in range(base)}, unk_token="w2"))
    words.pre_tokenizer = Whitespace()
    words.post_processor = TemplateProcessing(single="w0 $A w1", special_tokens=[("w0", 0), ("w1", 1)])
    words.add_tokens([f"more{at}" for at in range(added)])
    return FastTokenizer(words)


@pytest.mark.parametrize("rows", [6, 7, 8])
async def test_tokens_without_a_row_are_refused(rows: int) -> None:
    made = grown(3)
    made.bound(rows)
    assert made.vocabulary == rows
    fine, text = ["w3", *(f"more{at}" for at in range(rows - 6))], f"w3 more{rows - 6}"
    assert [len(ids) for ids in await made.encode(fine)] == [3] * len(fine)
    said = rf"the text '{text}' has the token 'more{rows - 6}' \(id {rows}\), but .* ends at {rows - 1}"
    for ask in (made.encode, made.pieces):
        for texts in ([text], [*fine, text]):
            with pytest.raises(InvalidRequest, match=said):
                await ask(texts)
    with pytest.raises(InvalidRequest, match="the text that begins with 'w3 w3"):
        await made.encode(["w3 " * 20 + text])
    with pytest.raises(LoadFailed, match=said):
        made.bare(text)
    made.close()


async def test_as_many_rows_as_tokens_refuse_nothing() -> None:
    made = grown(3)
    made.bound(64)
    assert made.vocabulary == 9
    assert [ids.tolist() for ids in await made.encode(["more2"])] == [[0, 8, 1]]
    made.close()


@pytest.mark.parametrize("rows", [2, 5])
def test_a_vocabulary_of_another_model_is_refused(rows: int) -> None:
    made = grown(3)
    with pytest.raises(LoadFailed, match=f"words up to the id 5, but the model's embeddings only {rows} rows"):
        made.bound(rows)
    made.close()


def test_special_tokens_without_a_row_are_refused() -> None:
    words = tokenizers.Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="a"))
    words.add_special_tokens(["<s>"])
    words.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
    made = FastTokenizer(words)
    with pytest.raises(LoadFailed, match=r"puts around texts the token '<s>' \(id 2\)"):
        made.bound(2)
    made.close()


@pytest.mark.parametrize("content", ["", "{", json.dumps({"version": "1.0"})])
def test_a_broken_file_is_told_without_its_place(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(LoadFailed, match="tokenizer cannot be read") as caught:
        tokenizer.load(Folder(tmp_path), threads=1)
    assert str(tmp_path) not in caught.value.message
