"""Tokenises texts and pairs and builds the sequences to compute: one for each text, window, or text with a hypothesis.

All sequences of a request are counted before the first is built, so that a request for too many costs no memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from functions.classify import truncation
from functions.classify.inputs import Input, Pair
from functions.classify.read_options import ReadOptions
from functions.classify.truncation import InputSpans
from functions.engines.batching.chunked_tokenizer import ChunkedTokenizer, Tokens
from functions.engines.batching.classifier import TextTokenizer
from functions.engines.batching.item import Ids, Item, PairFrame

_YIELD_EVERY = 512
"""Sequences counted or built before the event loop runs other work: a few milliseconds."""


class TokenizedInput(msgspec.Struct, kw_only=True, frozen=True):
    """The sequences of one text, of a pair, or of a text with a hypothesis."""

    items: list[Item]
    tokens: list[int]
    """Tokens of the windowed text in each sequence."""
    truncated: bool
    pair: bool
    """Whether the sequences are of two texts."""


class WindowTokenizer:
    """Tokenises the inputs of one model, in windows where they are too long. `pair` is the template of two texts."""

    def __init__(self, tokenizer: TextTokenizer, pair: PairFrame) -> None:
        self._tokenizer = ChunkedTokenizer(tokenizer)
        self._prefix = np.array(tokenizer.prefix, dtype=np.int32)
        self._suffix = np.array(tokenizer.suffix, dtype=np.int32)
        self._extra = len(self._prefix) + len(self._suffix)
        self._pair = pair

    async def tokenize(self, inputs: Sequence[Input], options: ReadOptions) -> list[TokenizedInput]:
        """Tokenise texts and pairs; raises `InvalidRequest` and `InputTooLong`, naming the input."""
        room = options.text_tokens(self._extra)
        if any(isinstance(one, Pair) for one in inputs):
            options.text_tokens(self._pair.extra + 1)
        tokens = iter(await self._encode(list(_flat(inputs, options.params)), room, options))
        counter = _SequenceCounter(options)
        split: list[tuple[Tokens, Tokens | None, InputSpans]] = []
        for one, param in zip(inputs, options.params, strict=True):
            first, second = next(tokens), next(tokens) if isinstance(one, Pair) else None
            if second is None:
                spans = truncation.split_text(first, room, param, options)
            else:
                spans = truncation.split_pair(first, second, options.max_length - self._pair.extra, param, options)
            split.append((first, second, spans))
            await counter.add(len(spans.spans))
        tokenized: list[TokenizedInput] = []
        for first, second, spans in split:
            tokenized.append(self._build(spans, first.ids, None if second is None else second.ids))
            await counter.built(len(spans.spans))
        return tokenized

    async def tokenize_with_hypotheses(
        self, texts: Sequence[str], hypotheses: Sequence[str], options: ReadOptions, param: str
    ) -> list[list[TokenizedInput]]:
        """Pair each text with each hypothesis; rows are texts. Hypotheses are never cut.

        Windows are the same for every hypothesis; with `windows: first` the beginning of the text is as long as each
        hypothesis leaves room for, as in Transformers' zero-shot pipeline. Raises like `tokenize`, and
        `InvalidRequest` naming `param` for hypotheses that are too long.
        """
        options.check_count(len(texts) * len(hypotheses), f"{len(texts)} texts with {len(hypotheses)} labels")
        seconds = [tokens.ids for tokens in await self._tokenizer.read(hypotheses, options.max_length)]
        taken = [len(ids) if options.windows == "first" else max(map(len, seconds)) for ids in seconds]
        rooms = [options.text_tokens(self._pair.extra + count, param) for count in taken]
        firsts = await self._encode(list(zip(texts, options.params, strict=True)), max(rooms), options)
        counter, repeats = _SequenceCounter(options), Counter(rooms)
        split: list[dict[int, InputSpans]] = []
        for tokens, text_param in zip(firsts, options.params, strict=True):
            split.append({room: truncation.split_text(tokens, room, text_param, options) for room in repeats})
            await counter.add(sum(len(spans.spans) * repeats[room] for room, spans in split[-1].items()))
        rows: list[list[TokenizedInput]] = []
        for tokens, by_room in zip(firsts, split, strict=True):
            rows.append([])
            for second, room in zip(seconds, rooms, strict=True):
                rows[-1].append(self._build_with_hypothesis(by_room[room], tokens.ids, second))
                await counter.built(len(by_room[room].spans))
        return rows

    async def _encode(self, texts: Sequence[tuple[str, str]], room: int, options: ReadOptions) -> list[Tokens]:
        """Return the tokens of (text, param) pairs, as many as can matter."""
        kept = [options.pre_truncate(text, param) for text, param in texts]
        encoded = await self._tokenizer.read(kept, options.tokens_needed(room))
        return [
            tokens if len(start) == len(text) else msgspec.structs.replace(tokens, whole=False)
            for tokens, start, (text, _) in zip(encoded, kept, texts, strict=True)
        ]

    def _build(self, spans: InputSpans, first: Ids, second: Ids | None = None) -> TokenizedInput:
        if second is None:
            items = [Item(ids=np.concatenate([self._prefix, first[a:b], self._suffix])) for (a, b), _ in spans.spans]
        else:
            items = [self._pair.item(first[a:b], second[c:d]) for (a, b), (c, d) in spans.spans]
        return TokenizedInput(items=items, tokens=spans.tokens, truncated=spans.truncated, pair=second is not None)

    def _build_with_hypothesis(self, spans: InputSpans, first: Ids, hypothesis: Ids) -> TokenizedInput:
        """Pair each span of the first text with the whole hypothesis."""
        items = [self._pair.item(first[a:b], hypothesis) for (a, b), _ in spans.spans]
        return TokenizedInput(items=items, tokens=spans.tokens, truncated=spans.truncated, pair=True)


class _SequenceCounter:
    """Counts the sequences of a request, and lets the event loop run other work now and then."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._total = 0
        self._since_yield = 0

    async def add(self, items: int) -> None:
        """Count sequences that are to be built; raises `InvalidRequest` once they are too many."""
        self._total += items
        self._options.check_count(self._total, f"at least {self._total} windows")
        await self.built(items)

    async def built(self, items: int) -> None:
        """Yield to the event loop where enough was done since the last time."""
        self._since_yield += items
        if self._since_yield >= _YIELD_EVERY:
            self._since_yield = 0
            await asyncio.sleep(0)


def _flat(inputs: Sequence[Input], params: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield every text with its path, the texts of a pair one after the other."""
    for one, param in zip(inputs, params, strict=True):
        if isinstance(one, Pair):
            yield from ((text, f"{param}.{name}") for text, name in zip(one, Pair._fields, strict=True))
        else:
            yield one, param
