"""The state of one generating sequence: tokens, slot, sampler, detokenizer, and draft length."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many

import numpy as np
from numpy.typing import NDArray

from functions.engines.llama.decode import prompt_checks
from functions.engines.llama.decode.detokenizer import Detokenizer
from functions.engines.llama.decode.generation import Finished, Generation, TextDelta
from functions.engines.llama.decode.sampling import NonFiniteLogits, Sampler
from functions.engines.llama.model.vocabulary import Vocabulary
from functions.engines.llama.prefix_cache.slots import Slot
from functions.engines.llama.speculation.draft_length import DraftLength
from host.errors import ColdframeError


class Sequence:
    """The state of one `GenerationRequest`. Prompt and generated tokens are one list."""

    __slots__ = (
        "_sampler",
        "_text",
        "_vocabulary",
        "cached",
        "draft_length",
        "generation",
        "index",
        "order",
        "request",
        "slot",
        "tokens",
    )  # fmt: skip

    def __init__(
        self,
        generation: Generation,
        index: int,
        vocabulary: Vocabulary,
        context: int,
        *,
        order: int = 0,
        draft_tokens: int = 0,
    ) -> None:
        self.generation = generation
        self.index = index
        self.order = order
        """Queue position: the second answer of a request queues as if it had arrived one request later."""
        self.request = generation.requests[index]
        prompt_checks.check(self.request.prompt, vocabulary_size=vocabulary.size, length=context)
        self.tokens = list(self.request.prompt)
        self.slot: Slot | None = None
        self.cached: int | None = None
        """Prompt tokens that were cached when it first got a slot."""
        self.draft_length = DraftLength(draft_tokens)
        self._vocabulary = vocabulary
        self._sampler = Sampler(vocabulary.size, self.request.sampling, self.tokens, context=context)
        self._text = Detokenizer(self.request.stops)

    @property
    def generated(self) -> int:
        """Number of generated tokens."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def pending(self) -> int:
        """Number of tokens not computed yet: 1 while generating, more during prefill."""
        return len(self.tokens) - (self.slot.computed if self.slot else 0)

    @property
    def draft_limit(self) -> int:
        """Draft tokens to verify in the next step, so that the limit on generated tokens is not exceeded."""
        return max(0, min(self.draft_length.count, self.request.limit - self.generated - 1))

    def assign(self, slot: Slot) -> None:
        """Assign a slot, which shares the list of tokens from now on."""
        self.slot = slot
        if self.cached is None:
            self.cached = slot.computed

    def advance(
        self, logits: Callable[[int], NDArray[np.float32]], draft: Many[int] = ()
    ) -> tuple[list[TextDelta | Finished], bool, int]:
        """Sample the next token, and one more after each draft token that is accepted.

        `logits(n)` are the logits after `n` draft tokens. Returns the events, whether the sequence has ended, and the
        number of accepted draft tokens.
        """
        text, right, over, stopped = "", 0, False, False
        while True:
            try:
                token = self._sampler.sample(logits(right))
            except (ColdframeError, NonFiniteLogits):
                if not right:
                    raise
                right -= 1  # keep the tokens sampled before; the error occurs again in the next step
                break
            self.tokens.append(token)
            ended = not self.request.endless and self._vocabulary.ends(token)
            text += "" if ended else self._text.feed(self._vocabulary.piece(token))
            stopped = ended or self._text.stopped
            over = stopped or self.generated >= self.request.limit
            if over or right == len(draft) or token != draft[right]:
                break
            right += 1
        if draft:
            self.draft_length.learn(len(draft), right)
        if over:
            text += self._text.flush()
        events: list[TextDelta | Finished] = [TextDelta(self.index, text)] if text else []
        if over:
            # The flush can complete a stop string too: half a character at the end shows as U+FFFD.
            events.append(self._end("stop" if stopped or self._text.stopped else "length"))
        return events, over, right

    def close(self) -> None:
        """Free the sampler."""
        self._sampler.close()

    def _end(self, reason: str) -> Finished:
        counts_ = self.draft_length
        counts = (len(self.request.prompt), self.cached or 0, self.generated, counts_.accepted, counts_.rejected)
        return Finished(self.index, reason, *counts)
