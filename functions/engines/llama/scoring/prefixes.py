"""LRU cache of the prefixes that calls score behind, each in a sequence of its own.

Limits are the number of sequences and the KV cells. The caller computes the tokens that are missing.
"""

from __future__ import annotations

from functions.engines.llama.prefix_cache.sequence_memory import SequenceMemory
from functions.engines.prefix_cache.prefix_index import PrefixIndex


class ScoredPrefix:
    """The tokens that one sequence has in the KV cache."""

    __slots__ = ("sequence", "tokens")

    def __init__(self, sequence: int, tokens: list[int]) -> None:
        self.sequence = sequence
        self.tokens = tokens

    @property
    def cached(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    @property
    def size(self) -> int:
        """Number of KV cells; those that prefixes share count for each."""
        return len(self.tokens)


class ScoringPrefixes:
    """The prefixes in the sequences 0 to `count` - 1, of at most `cells` KV cells in all."""

    def __init__(self, memory: SequenceMemory, *, count: int, cells: int) -> None:
        self._memory = memory
        self._cells = cells
        self._free = list(range(count))
        self._index: PrefixIndex[ScoredPrefix] = PrefixIndex()
        self._by_sequence: dict[int, ScoredPrefix] = {}

    def acquire(self, tokens: list[int], extra: int) -> tuple[int, int]:
        """Return a sequence for a prefix, and how many of its tokens are cached.

        Evicts other prefixes until there are cells for the whole prefix and `extra` more tokens. The caller computes
        the missing tokens and calls `store`, or gives the sequence up with `drop`.
        """
        source, known = self._index.longest(tokens)
        if source is not None and known in (len(tokens), source.cached):
            entry = source
        else:
            sequence = self._empty_sequence(source)
            if source is not None and source in self._index:
                self._memory.copy(source.sequence, sequence, known)
            else:
                known = 0  # the source itself had to be evicted
            entry = self._by_sequence[sequence] = ScoredPrefix(sequence, tokens[:known])
        self._index.use(entry)
        growth = max(entry.cached, len(tokens)) - entry.cached
        for evicted in self._index.evict(self._cells - growth - extra, keep=entry):
            self._free_sequence(evicted)
        if entry.cached > len(tokens) and self._index.size + extra > self._cells:
            self._cut(entry, len(tokens))  # a longer prefix, and nothing else is left to evict
        return entry.sequence, known

    def store(self, sequence: int, tokens: list[int]) -> None:
        """Record that all tokens of a prefix are now cached."""
        entry = self._by_sequence[sequence]
        if len(tokens) > entry.cached:
            entry.tokens = tokens

    def extend(self, sequence: int, source: int, tokens: list[int], length: int) -> None:
        """Cut a sequence to the first `length` of `tokens`, and let it share the rest of them with `source`.

        Needs no further cells: `source` has the tokens in cells that `acquire` left for `extra` tokens.
        """
        entry = self._by_sequence[sequence]
        self._cut(entry, length)
        if len(tokens) > length:
            self._memory.copy(source, sequence, len(tokens), length)
            entry.tokens = tokens

    def drop(self, sequence: int) -> None:
        """Drop what a sequence holds."""
        entry = self._by_sequence.get(sequence)
        if entry is None:
            self._memory.forget(sequence)
            return
        self._index.remove(entry)
        self._free_sequence(entry)

    def clear(self) -> None:
        """Record that the KV cache was cleared."""
        self._free += self._by_sequence
        self._by_sequence.clear()
        self._index.clear()

    def _empty_sequence(self, source: ScoredPrefix | None) -> int:
        """Return an empty sequence; evicts the least recently used prefix if need be, and `source` only as the last."""
        if not self._free:
            entries = list(self._index)
            self.drop(next((entry for entry in entries if entry is not source), entries[0]).sequence)
        return self._free.pop()

    def _free_sequence(self, entry: ScoredPrefix) -> None:
        self._memory.forget(entry.sequence)
        del self._by_sequence[entry.sequence]
        self._free.append(entry.sequence)

    def _cut(self, entry: ScoredPrefix, length: int) -> None:
        self._memory.cut(entry.sequence, length)
        entry.tokens = entry.tokens[:length]
