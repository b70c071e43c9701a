"""A loaded pooled model: inputs of all requests are merged into batches, computed in a thread, and returned as rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from functions.engines.batching.batcher import Batcher
from functions.engines.batching.item import Item, size
from functions.engines.llama.memory import devices
from functions.engines.llama.model.model import Model
from functions.engines.llama.model.native_library import lib
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.pooled.context import PooledContext, inspect_model, uses_token_types
from functions.engines.llama.pooled.pooling import Pooling, Purpose, choose
from functions.engines.llama.pooled.token_types import TokenTypes
from functions.engines.llama.pooled.tokenizer import GgufTokenizer
from host.errors import LoadFailed
from host.function import Load, Plan, Progress

Row = npt.NDArray[np.float32]


class PooledModel:
    """Weights, tokenizer, a context and a compute thread."""

    def __init__(
        self, model: Model, context: PooledContext, pooling: Pooling, size_: int, longest: int, batch: int
    ) -> None:
        self.model = model
        self.pooling = pooling
        self.size = size_
        """Numbers of a vector."""
        self.longest = longest
        """Tokens of one input, special ones included."""
        template = lib.llama_model_chat_template(model.handle, b"rerank") if pooling.kind == "rank" else None
        self.template = template.decode("utf-8", "replace") if template else None
        """The file's own prompt for pairs, with `{query}` and `{document}` in it."""
        self.tokenizer = GgufTokenizer(model.vocabulary)
        self._context = context
        self._batcher: Batcher[Item, Row] = Batcher(self._compute, size, budget=batch, overhead=None, most=context.most)

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress, purpose: Purpose) -> Self:
        """Load the weights and start the thread; raises `LoadFailed` and `OutOfMemory`."""
        options = load.engine_options(LlamaOptions)
        target = devices.from_detail(plan.detail)
        total = Path(load.path).stat().st_size if Path(load.path).is_file() else 0

        def report(done: float) -> None:
            progress("weights", int(done * total), total)

        with ExitStack() as undo:
            model = Model.open(load.path, options, target, progress=report)
            undo.callback(model.close)
            progress("cache")
            known = inspect_model(model, options, target)
            pooling = choose(known, options.pooling, purpose)
            longest = plan.context or known.trained
            context = PooledContext.open(
                model, options, target, known=known, pooling=pooling, longest=longest, threads=max(1, load.threads)
            )
            undo.callback(context.close)
            if uses_token_types(known, pooling):
                _enable_token_types(context, Path(load.path), known.size)
            made = cls(model, context, pooling, size_=known.size, longest=longest, batch=options.batch)
            undo.pop_all()
        return made

    async def rows(self, items: Sequence[Item]) -> list[Row]:
        """Return a row for each item, in their order: its embedding, not normalized, or the classifier head's outputs.

        Raises `QueueFull`, `ShuttingDown`, `OutOfMemory`, and `ColdframeError` for what cannot be computed.
        """
        return await self._batcher.run(items)

    def close(self) -> None:
        """End the threads and free everything."""
        self._context.abort()
        self._batcher.close()
        self.tokenizer.close()
        self._context.close()
        self.model.close()

    def _compute(self, items: Sequence[Item]) -> list[Row]:
        return list(self._context.compute(items))


def _enable_token_types(context: PooledContext, path: Path, size_: int) -> None:
    """Enable token types; raises `LoadFailed` if that fails, as scores of pairs would be wrong."""
    segments = TokenTypes.read(path, size_)
    if segments is not None and not context.enable_token_types(segments):
        raise LoadFailed("the token type embeddings of this model cannot be read from its file")
