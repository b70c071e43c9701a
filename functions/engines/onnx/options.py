"""The ONNX engine's `options` in a manifest. Imports no model library, so that the host can check them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]


class OnnxOptions(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The manifest's `options` when the engine is `onnx`."""

    batch_tokens: Count | Literal["auto"] = "auto"
    """Tokens in one batch, padding included; `auto` is 1,024. An input longer than that runs alone. Larger batches take
    more memory and make others wait longer."""
    optimization: Literal["all", "basic", "off"] = "all"
    """How far ONNX Runtime rewrites the graph while loading: `all` fuses operators for the machine's own processor,
    `basic` keeps to what changes no number, `off` runs the graph as it is in the file."""
    pooling: Literal["auto", "cls", "max", "mean", "mean_sqrt_len", "weighted_mean", "last"] = "auto"
    """Embeddings: how token vectors become one. `auto` reads the model's `1_Pooling`; without that file it is the mean
    over the text's tokens, or the last token of a causal language model."""
