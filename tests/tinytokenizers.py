"""Tiny tokenizers of every kind there is, trained on a few sentences: what they do to text is what real ones do."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import tokenizers
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from functions.engines.checkpoint.tokenizer import FastTokenizer

CORPUS = (
    "Clara Barton lives in Berkeley California , and works for the Red Cross in Washington .",
    "My name is Wolfgang and I live in Berlin ( Germany ) near the river Spree .",
    "The quick brown fox jumps over the lazy dog while Johannes Brahms plays the piano .",
    "and My , The , Clara , Barton",
)
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
NEWER = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def wordpiece() -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=140, special_tokens=SPECIAL))
    return framed(made)


def bytelevel(*, prefix: bool = False) -> tokenizers.Tokenizer:
    """As RoBERTa has it; with `prefix` a space is put before every text."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    made.train_from_iterator(CORPUS, _bytes())
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=prefix)
    return made


def newer() -> tokenizers.Tokenizer:
    """As GPT-4, Llama 3 and Qwen have it: a punctuation mark belongs to the word behind it; NFC before that."""
    made = tokenizers.Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(NEWER), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    made.train_from_iterator([*CORPUS, *["abc,def (Berlin) /tmp/x =y ...\nand .\n"] * 9], _bytes())
    return framed(made)


def metaspace(*, split: bool, fold: bool = False) -> tokenizers.Tokenizer:
    """With `split` as XLM-RoBERTa has it, else as DeBERTa-v2. Long words are two pieces: `▁Ber` and `lin`.

    With `fold` text is normalised as ALBERT does it: ligatures taken apart, accents stripped, lower case, no space at
    the ends.
    """
    pieces = dict.fromkeys(SPECIAL, 0.0)
    for word in dict.fromkeys(" ".join(CORPUS).split()):
        word = word.lower() if fold else word
        pieces |= {f"▁{word[:3]}": -1.0, word[3:]: -1.0} if len(word) > 5 else {f"▁{word}": -1.0}
    pieces |= dict.fromkeys("▁,.()", -9.0)
    made = tokenizers.Tokenizer(models.Unigram(list(pieces.items()), 3))
    if fold:
        steps = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]
        made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(Regex(" {2,}"), " ")])
    marks = pre_tokenizers.Metaspace()
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), marks]) if split else marks
    return framed(made)


def whole() -> tokenizers.Tokenizer:
    """As Llama 2 has it: nothing is split before the merges, a mark for a space is put before every text, and bytes
    stand for what is not in the vocabulary."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    made.normalizer = normalizers.Sequence(steps)
    made.decoder = decoders.ByteFallback()
    special = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=500, special_tokens=special))
    return framed(made)


def unigram() -> tokenizers.Tokenizer:
    """As DeBERTa-v3 and T5 have it: NFKC, no space at the ends, and a vocabulary that was trained."""
    made = tokenizers.Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.train_from_iterator(
        CORPUS, trainers.UnigramTrainer(show_progress=False, vocab_size=90, unk_token="<unk>", special_tokens=SPECIAL)
    )
    return framed(made)


def llama() -> tokenizers.Tokenizer:
    """As `whole`, with a vocabulary whose pieces never run over a space, as SentencePiece trains them."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(show_progress=False, vocab_size=140, special_tokens=SPECIAL))
    made.pre_tokenizer = None
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return framed(made)


def merging() -> tokenizers.Tokenizer:
    """One whose tokens run over spaces and marks."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    made.train_from_iterator(
        ["of the", "of\nthe", "of,the"] * 9,
        trainers.BpeTrainer(show_progress=False, vocab_size=40, special_tokens=SPECIAL),
    )
    return made


def framed(made: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return made


def _bytes() -> trainers.BpeTrainer:
    return trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=SPECIAL
    )


TOKENIZERS: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "bert": wordpiece,
    "distilbert": wordpiece,
    "roberta": bytelevel,
    "modernbert": bytelevel,
    "xlm-roberta": lambda: metaspace(split=True),
    "deberta-v2": lambda: metaspace(split=False),
    "prefixed": lambda: bytelevel(prefix=True),
    "newer": newer,
    "folding": lambda: metaspace(split=True, fold=True),
    "whole": whole,
    "unigram": unigram,
    "llama": llama,
    "merging": merging,
}
"""By the architectures that have them, and some more."""

WORDS = (  # noqa: SIM905
    "Clara Barton lives Berlin de U.S. O'Brien can't 1,234.5 x@y.org a_b - ... José 日本語 東京 ไทย שלום 한국어 😀 "
    "ﬁne \u200b <s> </s> <|end|> e\u0301 (Germany) «x» of the не в"
).split(" ")
BETWEEN = (
    *(*"    ,/='", "  ", "\n", "\r\n", "\n\n", "\t", ", ", " \n ", "。", "，", "\u3000", "\u00a0", ""),  # noqa: RUF001
    *("\x0b", "\x0c", "\x1c", "\x85"),
)
TEXTS = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(BETWEEN)), min_size=8, max_size=40).map(
    lambda parts: "".join(map("".join, parts))
)
"""Texts of words and what stands between them that tokenizers of all kinds are known to treat in a way of their own."""


@cache
def literal(kind: str) -> FastTokenizer:
    """Return a tokenizer that reads special tokens in a text as words."""
    made = FastTokenizer(TOKENIZERS[kind]())
    made.literal()
    return made
