"""The self-test of a loaded reranker: documents that answer a question must score above those that do not.

Conversions can lose the head: the file loads, and every score is noise. Plain English pairs that are far apart in
meaning show this; smaller damage they do not show.
"""

from __future__ import annotations

import math

from functions.rerank.api import RerankRequest
from functions.rerank.options import RerankOptions
from functions.rerank.ranking import rank
from functions.rerank.scorer import Scorer
from host.errors import ColdframeError, LoadFailed, OutOfMemory

PAIRS = (
    (
        "What is the capital of France?",
        "Paris is the capital and the largest city of France.",
        "Beat the butter with the sugar, then fold in the flour and bake the cake for forty minutes.",
    ),
    (
        "How do I bake a chocolate cake?",
        "Mix flour, sugar, cocoa and eggs, pour the batter into a tin and bake the chocolate cake in a hot oven.",
        "The stock exchange closed lower on Tuesday after the central bank raised its interest rate.",
    ),
    (
        "Why is the sky blue?",
        "The sky is blue because air scatters the blue light of the sun more than the red light.",
        "The goalkeeper saved a penalty in the last minute of the football match.",
    ),
    (
        "How many legs does a spider have?",
        "A spider has eight legs, while insects have six.",
        "Passengers must fasten their seat belts before the aircraft takes off.",
    ),
    (
        "Who wrote Romeo and Juliet?",
        "Romeo and Juliet is a tragedy written by William Shakespeare.",
        "Change the oil of the engine every ten thousand kilometres.",
    ),
)
"""Query, a document that answers it, one that does not."""

HINT = "; options.self_test: false serves it all the same, as for a model that does not read English"


async def run(scorer: Scorer, options: RerankOptions) -> None:
    """Raise `LoadFailed` for useless scores: not finite, all equal, or higher for documents that do not answer."""
    found: list[list[float]] = []
    for at, (query, right, wrong) in enumerate(PAIRS):
        # A document that answers another question detects models that ignore the query.
        found.append(await _scores(scorer, options, query, [right, wrong, PAIRS[at - 1][1]]))
    every = [score for scores in found for score in scores]
    if not all(map(math.isfinite, every)):
        raise LoadFailed(f"the self-test of the reranker gave scores that are not finite: the file is broken{HINT}")
    if max(every) - min(every) < 1e-6 * max(1.0, abs(max(every))):
        raise LoadFailed(
            "the self-test of the reranker gave the same score to everything: its head was lost in conversion, "
            f"or is not trained{HINT}"
        )
    confused = [PAIRS[at][0] for at, (better, *worse) in enumerate(found) if better <= max(worse)]
    if confused:
        raise LoadFailed(
            f"the self-test of the reranker found {len(confused)} of {len(PAIRS)} questions answered better by what "
            f"has nothing to do with them ({confused[0]!r}): its head was lost in conversion, or it is no "
            f"reranker{HINT}"
        )


async def _scores(scorer: Scorer, options: RerankOptions, query: str, documents: list[str]) -> list[float]:
    request = RerankRequest(model="", query=query, documents=documents, raw_scores=True, truncate=True)
    try:
        return (await rank(scorer, request, options)).scores
    except OutOfMemory:
        raise
    except ColdframeError as error:
        raise LoadFailed(f"the self-test of the reranker failed: {error.message}{HINT}") from error
