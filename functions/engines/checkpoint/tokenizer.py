"""Tokenises with the model's fast tokenizer (Hugging Face tokenizers) in a separate thread.

Ids come with special tokens and without padding or truncation; callers check lengths.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import tokenizers
from tokenizers.normalizers import BertNormalizer

from functions.engines.batching.item import Encoding, Frame, Ids, PairFrame
from functions.engines.batching.side_thread import SideThread
from functions.engines.checkpoint.folder import Folder
from host.errors import InvalidRequest, LoadFailed

A = TypeVar("A")

_SLICE = 64
"""Texts encoded per call, so that other requests get their turn between the slices of a large one."""
_BERTS = frozenset(
    {"BertTokenizer", "ConvBertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "FunnelTokenizer"}
    | {"LayoutLMTokenizer", "LayoutLMv2Tokenizer", "MPNetTokenizer", "MobileBertTokenizer", "RetriBertTokenizer"}
    | {"SplinterTokenizer", "SqueezeBertTokenizer"}
)
"""Classes of Transformers that read texts as `tokenizer_config.json` says, whatever stands in `tokenizer.json`."""
_READING = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""What that file says, and the normaliser's name for it."""
_VOCABULARIES = ("*vocab*", "*.model", "*.tiktoken", "*.spm", "*.bpe", "tekken.json", "merges.txt", "dict.txt")
"""Files that a tokenizer can be made of. Without any, Transformers makes one with special tokens only."""
_SHARE = 100
"""A vocabulary of less than a hundredth of what `config.json` states is not the model's. Tables are longer than
vocabularies by some rows that round them up; what is left of a broken file are a few words and five special tokens."""
_QUOTED = 40
"""Most characters of a text quoted in an error message."""


class FastTokenizer(Frame):
    """A model's tokenizer; `lower` lower-cases texts first, for models whose tokenizer files do not."""

    def __init__(self, model: tokenizers.Tokenizer, *, lower: bool = False) -> None:
        model.no_truncation()
        model.no_padding()
        self._model = model
        self._lower = lower
        self._thread = SideThread("tokenizer")
        added = model.get_added_tokens_decoder()
        self._end = max(model.get_vocab_size(with_added_tokens=True), 1 + max(added, default=-1))
        self.vocabulary = self._end
        """The id behind the last one that the model reads, special ones included."""
        framed = Frame.around(model.encode("a", add_special_tokens=False).ids, model.encode("a").ids)
        super().__init__(framed.prefix, framed.suffix)
        first, second, pair = self.bare("a"), self.bare("b"), model.encode("a", "b")
        self.pair = PairFrame.around(first, second, pair.ids, pair.type_ids) or PairFrame([], [], [])
        """How two texts become one input."""

    async def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text, special tokens included. Cancelling stops at the next slice."""
        return await self._sliced(texts, self._encode)

    async def pieces(self, texts: Sequence[str]) -> list[Encoding]:
        """Return each text's tokens without special ones, with their places. Cancelling stops at the next slice."""
        return await self._sliced(texts, self._pieces)

    async def _sliced(self, texts: Sequence[str], encode: Callable[[Sequence[str]], list[A]]) -> list[A]:
        found: list[A] = []
        for start in range(0, len(texts), _SLICE):
            found += await self._thread.run(encode, texts[start : start + _SLICE])
        return found

    def _pieces(self, texts: Sequence[str]) -> list[Encoding]:
        texts = [text.lower() for text in texts] if self._lower else list(texts)
        pieces = [_placed(found) for found in self._model.encode_batch(texts, add_special_tokens=False)]
        self._check(texts, [one.ids for one in pieces])
        return pieces

    def _encode(self, texts: Sequence[str]) -> list[Ids]:
        if self._lower:
            texts = [text.lower() for text in texts]
        alone = len(texts) == 1
        encoded = [self._model.encode(texts[0])] if alone else self._model.encode_batch_fast(list(texts))
        found = [np.array(encoding.ids, dtype=np.int32) for encoding in encoded]
        self._check(texts, found)
        return found

    def _check(self, texts: Sequence[str], found: Sequence[Ids]) -> None:
        """Raise `InvalidRequest` for a text with a token beyond the model's vocabulary."""
        if self.vocabulary >= self._end:
            return
        for text, ids in zip(texts, found, strict=True):
            if len(ids) and int(ids.max()) >= self.vocabulary:
                raise InvalidRequest(f"{_quoted(text)} has {self._unread(int(ids.max()))}: leave it out")

    def _unread(self, number: int) -> str:
        token = self._model.id_to_token(number)
        return f"the token {token!r} (id {number}), but the model's vocabulary ends at {self.vocabulary - 1}"

    def bound(self, rows: int) -> None:
        """Set the number of embedding rows of the model; texts with ids of `rows` or above are refused from now on.

        Raises `LoadFailed` where more than a few added tokens have no row: words of the plain vocabulary, or what
        stands around every text.
        """
        self.vocabulary = min(self.vocabulary, rows)
        if self.word >= rows:
            raise LoadFailed(
                f"the tokenizer has words up to the id {self.word}, but the model's embeddings only {rows} rows: "
                "the two are not of one model"
            )
        pair = self.pair
        last = max((*self.prefix, *self.suffix, *pair.before, *pair.between, *pair.after), default=0)
        if last >= rows:
            raise LoadFailed(f"the tokenizer puts around texts {self._unread(last)}")

    @property
    def word(self) -> int:
        """The last id of the plain vocabulary, without added tokens; 0 where there is none."""
        added = self._model.get_added_tokens_decoder()
        plain = range(self._model.get_vocab_size(with_added_tokens=False) - 1, -1, -1)
        return next((number for number in plain if number not in added), 0)

    def bare(self, text: str) -> list[int]:
        """Return the ids of a short text without special tokens; blocking, for use while loading.

        Raises `LoadFailed` for a text with a token beyond the model's vocabulary.
        """
        ids = list(self._model.encode(text.lower() if self._lower else text, add_special_tokens=False).ids)
        if self.vocabulary < self._end and max(ids, default=0) >= self.vocabulary:
            raise LoadFailed(f"{_quoted(text)} has {self._unread(max(ids))}")
        return ids

    def id(self, token: str) -> int | None:
        """Return the id of a token as the vocabulary spells it; None for one that is not in it."""
        found = self._model.token_to_id(token)
        return None if found is None else int(found)

    def special(self) -> dict[str, int]:
        """Return the special tokens as templates write them, `<|im_end|>`, with their ids."""
        found = self._model.get_added_tokens_decoder()
        return {token.content: number for number, token in found.items() if token.special}

    def literal(self) -> None:
        """From now on, tokenise text that spells a special token as plain text."""
        self._model.encode_special_tokens = True

    def close(self) -> None:
        """Stop the thread."""
        self._thread.close()


def _placed(found: tokenizers.Encoding) -> Encoding:
    return Encoding(
        ids=np.array(found.ids, dtype=np.int32),
        spans=np.array(found.offsets, dtype=np.int32).reshape(-1, 2),
        words=np.array([-1 if word is None else word for word in found.word_ids], dtype=np.int32),
    )


def _quoted(text: str) -> str:
    return f"the text {text!r}" if len(text) <= _QUOTED else f"the text that begins with {text[:_QUOTED]!r}"


def load(
    folder: Folder, threads: int, *, lower: bool = False, trusted: bool = False, framed: bool = True
) -> FastTokenizer:
    """Return the folder's tokenizer, from `tokenizer.json` or made from the files of older ones by Transformers.

    `framed` is False for models that take no special tokens around a text.
    """
    # The library reads both before its first parallel call; without them it takes every core it sees.
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    try:
        if folder.has("tokenizer.json"):
            model = tokenizers.Tokenizer.from_file(str(folder.path / "tokenizer.json"))
            _read_as_said(model, folder.mapping("tokenizer_config.json"))
        else:
            model = _converted(folder, trusted=trusted)
        if not framed:
            model.post_processor = None
        return FastTokenizer(model, lower=lower)
    except LoadFailed:
        raise
    except Exception as error:
        raise LoadFailed(f"the tokenizer cannot be read: {str(error).replace(str(folder.path), '…')}") from error


def _read_as_said(model: tokenizers.Tokenizer, config: dict[str, Any]) -> None:
    """Make a BERT tokenizer fold case and accents as `tokenizer_config.json` states.

    Transformers makes such a tokenizer anew from that file, so models were trained and measured with what it says.
    """
    kind, found = str(config.get("tokenizer_class", "")).removesuffix("Fast"), model.normalizer
    if kind not in _BERTS or not isinstance(found, BertNormalizer):
        return
    for key, name in _READING.items():
        unsaid = key not in config or (config[key] is None and key != "strip_accents")
        if not unsaid and config[key] != getattr(found, name):
            setattr(found, name, config[key])
            model.normalizer = found


def _converted(folder: Folder, *, trusted: bool) -> tokenizers.Tokenizer:
    if not trusted and not any(any(folder.path.glob(name)) for name in _VOCABULARIES):
        raise LoadFailed("the folder has no tokenizer: tokenizer.json is missing")
    from transformers import AutoTokenizer

    made = AutoTokenizer.from_pretrained(str(folder.path), local_files_only=True, trust_remote_code=trusted)
    fast = getattr(made, "backend_tokenizer", None)
    if not isinstance(fast, tokenizers.Tokenizer):
        raise LoadFailed("tokenizer.json is missing, and Transformers cannot make a fast tokenizer of the other files")
    _check_vocabulary(fast, folder.mapping("config.json"))
    return fast


def _check_vocabulary(made: tokenizers.Tokenizer, config: dict[str, Any]) -> None:
    """Raise `LoadFailed` for a tokenizer that was made of nothing, or of what is left of a file."""
    text = config.get("text_config")
    stated = config.get("vocab_size") or (text.get("vocab_size") if isinstance(text, dict) else None)
    count = made.get_vocab_size(with_added_tokens=True)
    least = stated // _SHARE if isinstance(stated, int) else 0
    if count <= max(least, len(made.get_added_tokens_decoder())):
        rows = f", and config.json states {stated}" if stated else ""
        raise LoadFailed(
            f"tokenizer.json is missing, and the tokenizer made of the other files has only {count} tokens{rows}: "
            "its vocabulary is missing or broken"
        )
