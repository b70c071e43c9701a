"""Text to token ids with the model's fast tokenizer, in a thread of its own: neither the event loop's nor torch's.

Ids come without padding and uncut, special tokens included; lengths are for the one who asked to judge.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import tokenizers
from tokenizers.normalizers import BertNormalizer

from functions.engines.batching.item import Frame, Ids, PairFrame, Pieces
from functions.engines.transformers.folder import Folder
from host.errors import LoadFailed

A = TypeVar("A")

_SLICE = 64
"""Texts encoded in one go, so that a request of thousands lets others in between."""
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


class Tokenizer(Frame):
    """A model's tokenizer; `lower` is for models that were trained on lower-cased text and do not say so themselves."""

    def __init__(self, model: tokenizers.Tokenizer, *, lower: bool = False) -> None:
        model.no_truncation()
        model.no_padding()
        self._model = model
        self._lower = lower
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")
        self.vocabulary = model.get_vocab_size(with_added_tokens=True)
        """Number of token ids, special ones included."""
        framed = Frame.around(model.encode("a", add_special_tokens=False).ids, model.encode("a").ids)
        super().__init__(framed.prefix, framed.suffix)
        first, second, pair = self.bare("a"), self.bare("b"), model.encode("a", "b")
        self.pair = PairFrame.around(first, second, pair.ids, pair.type_ids) or PairFrame([], [], [])
        """How two texts become one input."""

    async def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text, special tokens included. Cancelling stops at the next slice."""
        return await self._sliced(texts, self._encode)

    async def pieces(self, texts: Sequence[str]) -> list[Pieces]:
        """Return each text's tokens without special ones, with their places. Cancelling stops at the next slice."""
        return await self._sliced(texts, self._pieces)

    async def _sliced(self, texts: Sequence[str], encode: Callable[[Sequence[str]], list[A]]) -> list[A]:
        found: list[A] = []
        loop = asyncio.get_running_loop()
        for start in range(0, len(texts), _SLICE):
            found += await loop.run_in_executor(self._thread, encode, texts[start : start + _SLICE])
        return found

    def _pieces(self, texts: Sequence[str]) -> list[Pieces]:
        texts = [text.lower() for text in texts] if self._lower else list(texts)
        return [_placed(found) for found in self._model.encode_batch(texts, add_special_tokens=False)]

    def _encode(self, texts: Sequence[str]) -> list[Ids]:
        if self._lower:
            texts = [text.lower() for text in texts]
        if len(texts) == 1:
            return [np.array(self._model.encode(texts[0]).ids, dtype=np.int32)]
        return [np.array(encoding.ids, dtype=np.int32) for encoding in self._model.encode_batch_fast(list(texts))]

    def bare(self, text: str) -> list[int]:
        """Return the ids of a short text without special tokens; blocking, for use while loading."""
        return list(self._model.encode(text.lower() if self._lower else text, add_special_tokens=False).ids)

    def id(self, token: str) -> int | None:
        """Return the id of a token as the vocabulary spells it; None for one that is not in it."""
        found = self._model.token_to_id(token)
        return None if found is None else int(found)

    def special(self) -> dict[str, int]:
        """Return the special tokens as templates write them, `<|im_end|>`, with their ids."""
        found = self._model.get_added_tokens_decoder()
        return {token.content: number for number, token in found.items() if token.special}

    def literal(self) -> None:
        """Read what is spelled like a special token as the words that it is, from now on."""
        self._model.encode_special_tokens = True

    def close(self) -> None:
        """Stop the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _placed(found: tokenizers.Encoding) -> Pieces:
    return Pieces(
        ids=np.array(found.ids, dtype=np.int32),
        spans=np.array(found.offsets, dtype=np.int32).reshape(-1, 2),
        words=np.array([-1 if word is None else word for word in found.word_ids], dtype=np.int32),
    )


def load(folder: Folder, threads: int, *, lower: bool = False, trusted: bool = False, framed: bool = True) -> Tokenizer:
    """Return the folder's tokenizer, from `tokenizer.json` or made from the files of older ones by Transformers.

    `framed` is False for models that want no special tokens around a text.
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
        return Tokenizer(model, lower=lower)
    except LoadFailed:
        raise
    except Exception as error:
        raise LoadFailed(f"the tokenizer cannot be read: {str(error).replace(str(folder.path), '…')}") from error


def _read_as_said(model: tokenizers.Tokenizer, config: dict[str, Any]) -> None:
    """Let BERT's kind of tokenizer fold case and accents as `tokenizer_config.json` states it.

    Transformers makes such a tokenizer anew from that file, so models were trained and measured with what it says.
    """
    kind, found = str(config.get("tokenizer_class", "")).removesuffix("Fast"), model.normalizer
    if kind not in _BERTS or not isinstance(found, BertNormalizer):
        return
    for key, name in _READING.items():
        if key in config and config[key] != getattr(found, name):
            setattr(found, name, config[key])
            model.normalizer = found


def _converted(folder: Folder, *, trusted: bool) -> tokenizers.Tokenizer:
    from transformers import AutoTokenizer

    made = AutoTokenizer.from_pretrained(str(folder.path), local_files_only=True, trust_remote_code=trusted)
    fast = getattr(made, "backend_tokenizer", None)
    if not isinstance(fast, tokenizers.Tokenizer):
        raise LoadFailed("tokenizer.json is missing, and Transformers cannot make a fast tokenizer of the other files")
    return fast
