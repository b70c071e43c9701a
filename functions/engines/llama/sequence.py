"""One text in the making, as the decode thread sees it: its tokens, its slot, its sampler and its text.

It knows tokens and text, and nothing of batches, threads or who is asking.
"""

from __future__ import annotations

from functions.engines.llama.generation import End, Generation, Piece
from functions.engines.llama.sampling import Sampler
from functions.engines.llama.slots import Slot
from functions.engines.llama.text import TextFlow
from functions.engines.llama.vocabulary import Vocabulary


class Sequence:
    """The state of one `Want`. Prompt and generated tokens are one list: what is not computed yet is what is to do."""

    __slots__ = ("_sampler", "_text", "_vocabulary", "cached", "generation", "index", "slot", "tokens", "want")

    def __init__(self, generation: Generation, index: int, vocabulary: Vocabulary, context: int) -> None:
        self.generation = generation
        self.index = index
        self.want = generation.wants[index]
        self.tokens = list(self.want.prompt)
        self.slot: Slot | None = None
        self.cached: int | None = None
        """Prompt tokens that were in memory already when it first got a slot."""
        self._vocabulary = vocabulary
        self._sampler = Sampler(vocabulary.size, self.want.sampling, self.tokens, context=context)
        self._text = TextFlow(self.want.stops)

    @property
    def generated(self) -> int:
        """Tokens chosen so far."""
        return len(self.tokens) - len(self.want.prompt)

    @property
    def pending(self) -> int:
        """Tokens that are known but not computed: 1 while it generates."""
        return len(self.tokens) - (self.slot.computed if self.slot else 0)

    def enter(self, slot: Slot) -> None:
        """Take a slot, which shares the list of tokens from now on."""
        self.slot = slot
        if self.cached is None:
            self.cached = slot.computed

    def advance(self, context: int, index: int) -> tuple[list[Piece | End], bool]:
        """Choose the next token from the logits at `index`; returns the news of it, and whether this was the last."""
        token = self._sampler.sample(context, index)
        self.tokens.append(token)
        ended = not self.want.endless and self._vocabulary.ends(token)
        text = "" if ended else self._text.feed(self._vocabulary.piece(token))
        stopped = ended or self._text.stopped
        over = stopped or self.generated >= self.want.limit
        if over:
            text += self._text.flush()
        news: list[Piece | End] = [Piece(self.index, text)] if text else []
        if over:
            # The flush can complete a stop string too: half a character at the end shows as U+FFFD.
            news.append(self._end("stop" if stopped or self._text.stopped else "length"))
        return news, over

    def close(self) -> None:
        """Free the sampler."""
        self._sampler.close()

    def _end(self, reason: str) -> End:
        return End(self.index, reason, len(self.want.prompt), self.cached or 0, self.generated)
