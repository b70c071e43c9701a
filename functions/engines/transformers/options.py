"""The Transformers engine's `options` in a manifest. Imports no model library, so that the host can check them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]


class TransformersOptions(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The manifest's `options` when the engine is `transformers`."""

    batch_tokens: Count | Literal["auto"] = "auto"
    """Tokens in one batch, padding included; `auto` is 1,024 on CPU, where two batches are computed side by side, and
    32,768 on a GPU. An input longer than that runs alone. Larger batches take more memory and make others wait
    longer."""
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"
    """Attention implementation; `auto` is what Transformers chooses for the model, mostly `sdpa`."""
    pooling: Literal["auto", "cls", "max", "mean", "mean_sqrt_len", "weighted_mean", "last"] = "auto"
    """Embeddings: how token vectors become one. `auto` reads the model's `1_Pooling`; without that file it is the mean
    over the text's tokens, or the last token of a causal language model."""
    trust_remote_code: bool = False
    """Run the Python code in the model's folder, for architectures that Transformers does not know: whoever wrote it
    can do all that coldframe can. Weights stay safetensors. `coldframe ls` and `/health` show which models do."""
