"""Builds a batch: decode tokens, draft tokens to verify, and prefill chunks."""

from __future__ import annotations

from dataclasses import dataclass

from functions.engines.llama.decode.prefill_budget import PrefillBudget, share
from functions.engines.llama.decode.sequence import Sequence
from functions.engines.llama.model.context import Context
from functions.engines.llama.speculation.speculator import Speculator


@dataclass(slots=True)
class Part:
    """The tokens of one sequence in a batch."""

    sequence: Sequence
    count: int
    """Number of prompt or generated tokens."""
    draft: list[int]
    """Draft tokens after them, to be verified."""
    index: int
    """Index in the batch of the last token."""


class BatchBuilder:
    """Builds the batches of one context."""

    def __init__(
        self, context: Context, budget: PrefillBudget, *, one_at_a_time: bool, speculator: Speculator | None
    ) -> None:
        """`one_at_a_time` puts a single sequence into each batch, in turn."""
        self._context = context
        self._prefill_budget = budget
        self._one_at_a_time = one_at_a_time
        self._speculator = speculator
        self._turn = 0

    def fill(self, active: list[Sequence]) -> list[Part]:
        """Fill the batch from the active sequences, the oldest first; returns an empty list if there are none."""
        among = self._select(active)
        self._context.begin()
        if among:
            self._context.set_adapter(among[0].request.adapter)
        generating, prompts = _split(among)
        if self._speculator is None or not generating:
            room = self._context.size - len(generating)
            parts = self._add_each(generating)
        else:
            parts, room = self._add_drafted(generating, self._speculator.draft(generating))
        if not prompts:
            return parts
        left = [sequence.pending for sequence in prompts]
        if self._one_at_a_time:
            shares = [min(room, count) for count in left]
        else:
            shares = share(left, room, self._prefill_budget, beside=bool(generating))
        return parts + [self._add(one, count, []) for one, count in zip(prompts, shares, strict=True) if count]

    def _select(self, active: list[Sequence]) -> list[Sequence]:
        """Return the sequences of the next batch: all of one adapter, or a single one; adapters take turns."""
        self._turn += 1
        if len(active) < 2:
            return active
        if self._one_at_a_time:
            return [active[self._turn % len(active)]]
        adapters = list(dict.fromkeys(sequence.request.adapter for sequence in active))
        if len(adapters) < 2:
            return active
        adapter = adapters[self._turn % len(adapters)]
        return [sequence for sequence in active if sequence.request.adapter == adapter]

    def _add_each(self, generating: list[Sequence]) -> list[Part]:
        """Add the last token of each sequence."""
        slots = [sequence.slot for sequence in generating if sequence.slot is not None]
        tokens = [sequence.tokens[-1] for sequence in generating]
        self._context.add_each([slot.id for slot in slots], tokens, [slot.computed for slot in slots])
        return [Part(sequence, 1, [], index) for index, sequence in enumerate(generating)]

    def _add_drafted(self, generating: list[Sequence], drafts: list[list[int]]) -> tuple[list[Part], int]:
        """Add the last token of each sequence with draft tokens behind it; returns the tokens left in the batch too."""
        room = self._context.size - len(generating)
        parts = []
        for sequence, drafted in zip(generating, drafts, strict=True):
            draft = drafted[: max(0, min(room, sequence.draft_limit))]
            parts.append(self._add(sequence, 1, draft))
            room -= len(draft)
        return parts, room

    def _add(self, sequence: Sequence, count: int, draft: list[int]) -> Part:
        slot = sequence.slot
        assert slot is not None
        start, end = slot.computed, slot.computed + count
        output = 1 + len(draft) if end == len(sequence.tokens) else 0
        index = self._context.add(slot.id, sequence.tokens[start:end] + draft, start, output=output)
        return Part(sequence, count, draft, index)


def _split(sequences: list[Sequence]) -> tuple[list[Sequence], list[Sequence]]:
    """Return those with one token to compute, and those with more."""
    generating: list[Sequence] = []
    prompts: list[Sequence] = []
    for sequence in sequences:
        pending = sequence.pending
        if pending:
            (generating if pending == 1 else prompts).append(sequence)
    return generating, prompts
