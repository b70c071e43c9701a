"""One text in the making, as the decode thread sees it: its tokens, its slot, its sampler and its text.

It knows tokens and text, and nothing of batches, threads or who is asking.
"""

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
    """The state of one `GenerationRequest`. Prompt and generated tokens are one list: what is not computed yet is what is to do."""

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
        """Its place among those who wait: a request's second answer waits as if it had come one request later."""
        self.request = generation.requests[index]
        prompt_checks.check(self.request.prompt, vocabulary_size=vocabulary.size, length=context)
        self.tokens = list(self.request.prompt)
        self.slot: Slot | None = None
        self.cached: int | None = None
        """Prompt tokens that were in memory already when it first got a slot."""
        self.draft_length = DraftLength(draft_tokens)
        self._vocabulary = vocabulary
        self._sampler = Sampler(vocabulary.size, self.request.sampling, self.tokens, context=context)
        self._text = Detokenizer(self.request.stops)

    @property
    def generated(self) -> int:
        """Tokens chosen so far."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def pending(self) -> int:
        """Tokens that are known but not computed: 1 while it generates."""
        return len(self.tokens) - (self.slot.computed if self.slot else 0)

    @property
    def draft_limit(self) -> int:
        """Tokens worth guessing ahead: one is chosen anyhow, and none beyond the limit."""
        return max(0, min(self.draft_length.count, self.request.limit - self.generated - 1))

    def assign(self, slot: Slot) -> None:
        """Take a slot, which shares the list of tokens from now on."""
        self.slot = slot
        if self.cached is None:
            self.cached = slot.computed

    def advance(
        self, logits: Callable[[int], NDArray[np.float32]], draft: Many[int] = ()
    ) -> tuple[list[TextDelta | Finished], bool, int]:
        """Choose the next token, and one more after each drafted token that turns out to be the one chosen.

        `logits(n)` are those after `n` drafted tokens. Returns the news, whether this was the end, and how many of the
        drafted tokens were right.
        """
        text, right, over, stopped = "", 0, False, False
        while True:
            try:
                token = self._sampler.sample(logits(right))
            except (ColdframeError, NonFiniteLogits):
                if not right:
                    raise
                right -= 1  # what was chosen before stands, and the same error comes again when this is computed alone
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
        told = self.draft_length
        counts = (len(self.request.prompt), self.cached or 0, self.generated, told.accepted, told.rejected)
        return Finished(self.index, reason, *counts)
