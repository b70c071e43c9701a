"""Compares a model's output before and after an optimisation on a few texts.

Vectors are compared by cosine, logits by their largest difference relative to their spread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch

from functions.engines.batching.item import Item
from functions.engines.checkpoint.tokenizer import FastTokenizer

TEXTS = (
    "A cold frame.",
    "Is the invoice of 12 March 2026 (no. 4711, 89.90 EUR) paid?",
    "Die Lieferung kam gestern an, aber zwei der bestellten Lampen fehlen noch.",
    """The lighthouse keeper wrote down the weather every morning: wind from the north-west, a falling glass, and rain
before noon. In the evening he read what his predecessors had written on the same day of other years, and found that it
had rained then, too.""",
)
"""From a few tokens to about sixty: sums of different lengths, names, numbers, another language."""

PoolFn = Callable[[Any, torch.Tensor], torch.Tensor]
"""Maps a model's output and mask to (items, size), the vectors to compare."""


class Bounds(msgspec.Struct, kw_only=True, frozen=True):
    """How far outputs may differ."""

    cosine: float
    """Of vectors, at least."""
    share: float
    """Of logits: the largest difference as a share of their spread, at most."""


BF16 = Bounds(cosine=0.999, share=0.05)
INT8 = Bounds(cosine=0.98, share=0.15)
SAME = Bounds(cosine=0.999999, share=1e-3)
"""For optimisations that change only the order of sums."""


class Difference(msgspec.Struct, kw_only=True, frozen=True):
    """How far two outputs differ."""

    of_logits: bool
    value: float
    """The least cosine, or the largest difference as a share of the spread."""

    def within(self, bounds: Bounds) -> bool:
        """Return whether the difference is allowed; NaN never is."""
        return self.value <= bounds.share if self.of_logits else self.value >= bounds.cosine

    def describe(self, bounds: Bounds) -> str:
        """Return the difference and its bound as a sentence."""
        if self.of_logits:
            return f"logits differ by {self.value:.1%} of their spread, at most {bounds.share:.1%} may"
        return f"cosine {self.value:.4f} to fp32, at least {bounds.cosine} is needed"


class CheckOutput(msgspec.Struct, kw_only=True, frozen=True):
    """A model's output for the check texts: (rows, size), vectors or logits."""

    rows: torch.Tensor
    of_logits: bool


def items(tokens: FastTokenizer, longest: int) -> list[Item]:
    """Return the texts as items, longest first, cut to what the model takes."""
    made = [Item(ids=tokens.cut(tokens.frame(tokens.bare(text)), longest)) for text in TEXTS]
    return sorted((item for item in made if len(item.ids)), key=lambda item: -len(item.ids))


def check_output(output: Any, mask: torch.Tensor, pool_fn: PoolFn | None = None) -> CheckOutput:
    """Return what is compared of a model's output: `pool_fn`, else logits, else the mean over each text's tokens."""
    if pool_fn is not None:
        return CheckOutput(rows=pool_fn(output, mask).float(), of_logits=False)
    logits = getattr(output, "logits", None)
    if logits is None:
        weights = mask.unsqueeze(-1).float()
        hidden = output.last_hidden_state.float()
        return CheckOutput(rows=(hidden * weights).sum(1) / weights.sum(1), of_logits=False)
    if logits.dim() == 3:  # of each token, but where they are as many as there are words the last token's are enough
        last = mask.sum(1) - 1
        words = logits.shape[-1] > 4096
        logits = logits[torch.arange(len(last)), last] if words else logits[mask.bool()]
    return CheckOutput(rows=logits.float().clone(), of_logits=True)


def compare(before: CheckOutput, after: CheckOutput) -> Difference:
    """Return the difference between two outputs."""
    if before.of_logits:
        spread = (before.rows.max() - before.rows.min()).clamp(min=1.0)
        return Difference(of_logits=True, value=float((before.rows - after.rows).abs().max() / spread))
    cosines = torch.nn.functional.cosine_similarity(before.rows.double(), after.rows.double(), dim=-1)
    return Difference(of_logits=False, value=float(cosines.min()))
