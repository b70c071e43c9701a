"""The engine's knobs as a manifest's `options` states them; it knows no library, so the host can check them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]


class TransformersOptions(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The manifest's `options` when the engine is `transformers`."""

    batch_tokens: Count | Literal["auto"] = "auto"
    """Tokens in one batch, padding included; `auto` is 2,048 on CPU and 32,768 on a GPU. An input longer than that runs
    alone. Larger batches take more memory and make others wait longer."""
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"
    """Attention implementation; `auto` is what Transformers chooses for the model, mostly `sdpa`."""
    pooling: Literal["auto", "cls", "max", "mean", "mean_sqrt_len", "weighted_mean", "last"] = "auto"
    """Embeddings: how token vectors become one. `auto` reads the model's `1_Pooling`; without that file it is the mean
    over the text's tokens, or the last token of a causal language model."""
