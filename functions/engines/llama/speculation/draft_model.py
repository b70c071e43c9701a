"""Speculative decoding with a draft model: its most likely next tokens, one by one.

Its context has the same slots as the model's and is updated as needed. Runs on the decode thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Many
from pathlib import Path

import msgspec

from functions.engines.llama.decode.sequence import Sequence
from functions.engines.llama.file_format import GGUF
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.memory.estimate import MemoryEstimate
from functions.engines.llama.model.context import COMPUTED, Context
from functions.engines.llama.model.model import Model
from functions.engines.llama.model.vocabulary import Vocabulary
from functions.engines.llama.options import LlamaOptions
from functions.engines.prefix_cache.common_prefix import common_prefix
from host.errors import ColdframeError, LoadFailed
from host.function import ModelRequest
from host.sources import reference
from host.sources.package import PackageSource

PREFILL = 64
"""Tokens that the draft model prefills in one step at most."""
_COMPARE_EVERY = 97
"""One token in so many is compared: vocabularies of different models differ everywhere, or at the end."""


class DraftModel:
    """A draft model, its context, and the tokens that are computed in each slot."""

    def __init__(self, model: Model, context: Context, slots: int) -> None:
        self._model = model
        self._context = context
        self._held: list[list[int]] = [[] for _ in range(slots)]
        """Tokens in the KV cache, by slot."""

    @classmethod
    def open(
        cls,
        path: Path,
        options: LlamaOptions,
        target: Target,
        *,
        vocabulary: Vocabulary,
        length: int,
        slots: int,
        threads: int,
    ) -> DraftModel:
        """Load the draft model for slots of `length` tokens; raises `LoadFailed` or `OutOfMemory`."""
        plain = simple(options)
        model = Model.open(str(path), plain, target)
        try:
            if model.recurrent or model.window:
                raise LoadFailed(f"options.draft: {path.name} has memory that cannot be cut: it cannot draft")
            _compare(vocabulary, model.vocabulary, path.name)
            return cls(model, Context.open(model, plain, target, context=length, slots=slots, threads=threads), slots)
        except BaseException:
            model.close()
            raise

    def draft(self, sequences: Many[Sequence]) -> list[list[int]]:
        """See `Speculator`; long new prompts get no drafts until they are prefilled, a batch at a time."""
        drafts: list[list[int]] = [[] for _ in sequences]
        texts = [list(sequence.tokens) for sequence in sequences]
        going = [
            index for index, sequence in enumerate(sequences) if sequence.draft_limit and sequence.slot is not None
        ]
        while going:
            rows = self._compute([(_slot(sequences[index]), texts[index]) for index in going])
            going, before = [], going
            for index, row in zip(before, rows, strict=True):
                if row is None:
                    continue
                drafts[index].append(row)
                texts[index].append(row)
                if len(drafts[index]) < sequences[index].draft_limit and not self._model.vocabulary.ends(row):
                    going.append(index)
        return drafts

    def close(self) -> None:
        """Free the memory."""
        self._context.close()
        self._model.close()

    def _compute(self, wanted: list[tuple[int, list[int]]]) -> list[int | None]:
        """Compute the new tokens of each slot, at most `PREFILL` of them; returns the most likely next tokens.

        Slots with the fewest new tokens come first. A long text that is new here, such as a restored prefix, is
        prefilled in chunks beside the drafts of others, and has no drafts meanwhile.
        """
        context, room = self._context, min(self._context.size, max(PREFILL, len(wanted)))
        context.begin()
        indices: list[int | None] = [None] * len(wanted)
        added: list[tuple[int, list[int]]] = []
        starts = [self._cut(slot, tokens) for slot, tokens in wanted]
        for at in sorted(range(len(wanted)), key=lambda at: len(wanted[at][1]) - starts[at]):
            (slot, tokens), start = wanted[at], starts[at]
            end = min(len(tokens), start + room)
            whole = end == len(tokens)
            index = context.add(slot, tokens[start:end], start, output=whole) if end > start else None
            indices[at] = index if whole else None
            room -= end - start
            added.append((slot, tokens[:end]))
        context.abort(False)
        if context.compute() != COMPUTED:
            for slot, _ in wanted:
                context.forget(slot)
                self._held[slot] = []
            return [None] * len(wanted)
        for slot, tokens in added:
            self._held[slot] = tokens
        return [None if index is None else int(context.logits(index).argmax()) for index in indices]

    def _cut(self, slot: int, tokens: list[int]) -> int:
        """Cut the cached tokens to the common prefix, leaving the last token to compute; returns its length."""
        length = common_prefix(self._held[slot], tokens, len(tokens) - 1)
        if not self._context.cut(slot, length):
            self._context.forget(slot)
            length = 0
        self._held[slot] = self._held[slot][:length]
        return length


def find(draft: str, base: Path) -> Path:
    """Return the file that the option `draft` names; raises `LoadFailed`."""
    try:
        if reference.kind(draft) == "package":
            wanted = ModelRequest(model=draft, base=base, formats=(GGUF,), required=True)
            path = PackageSource().resolve(wanted, lambda stage, done=0, total=0: None)
        else:
            path = base / Path(draft).expanduser()
    except ColdframeError as error:
        raise LoadFailed(f"options.draft: {error}") from None
    if not path.is_file():
        raise LoadFailed(
            f"options.draft: {draft!r} is not there: expected the path of a GGUF file, or package:NAME/FILE"
        )
    return path


class DraftEstimate:
    """Memory estimate of the draft model; zero if the options name none. Close it."""

    def __init__(self, options: LlamaOptions, base: Path) -> None:
        self._estimate: MemoryEstimate | None = None
        if options.draft is not None:
            self._estimate = MemoryEstimate(str(find(options.draft, base)), simple(options))

    def weights(self, target: Target) -> Counter[str]:
        """Return the bytes of its weights, by pool."""
        return Counter(self._estimate.weights(target)) if self._estimate is not None else Counter()

    def context(self, target: Target, context: int, slots: int) -> Counter[str]:
        """Return the bytes of its cache and buffers, by pool."""
        return (
            Counter(self._estimate.context(target, context, slots).total) if self._estimate is not None else Counter()
        )

    def close(self) -> None:
        """Free what was opened."""
        if self._estimate is not None:
            self._estimate.close()


def simple(options: LlamaOptions) -> LlamaOptions:
    """Return the options without those that only apply to the main model."""
    return msgspec.structs.replace(
        options, speculation="off", draft=None, adapters={}, tensor_split=None, cpu_moe=False, n_cpu_moe=0
    )


def _slot(sequence: Sequence) -> int:
    assert sequence.slot is not None
    return sequence.slot.id


def _compare(one: Vocabulary, other: Vocabulary, name: str) -> None:
    """Raise `LoadFailed` if the draft model has another vocabulary."""
    alike = one.size == other.size and one.eos == other.eos
    if not alike or any(one.piece(token) != other.piece(token) for token in range(0, one.size, _COMPARE_EVERY)):
        raise LoadFailed(
            f"options.draft: {name} has another vocabulary ({other.size} tokens) than the model ({one.size} tokens)"
        )
