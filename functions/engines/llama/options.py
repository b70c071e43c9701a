"""The manifest's `options` for the engine `llama`. It knows what may be asked, and nothing of how it is done."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Tokens = Annotated[int, msgspec.Meta(ge=1, le=65536)]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]


class LlamaOptions(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Knobs of llama.cpp; every one has a default that suits most models."""

    batch: Tokens = 512
    """Tokens computed in one step at most, over all requests. More serves long prompts faster, less lets answers in
    progress come more evenly."""
    ubatch: Tokens = 512
    """Tokens that go through the model's graph at once; more takes more memory for compute buffers."""
    cache_type_k: CacheType = "f16"
    """How the keys of the cache are stored. `q8_0` halves their memory at hardly any loss."""
    cache_type_v: CacheType = "f16"
    """How the values of the cache are stored. Quantised values need flash attention."""
    flash_attention: Literal["auto", "on", "off"] = "auto"
    """Flash attention; `auto` uses it wherever the device and the model can."""
    gpu_layers: Annotated[int, msgspec.Meta(ge=0)] | Literal["auto"] = "auto"
    """Layers computed on the accelerator; `auto` is all of them, or none when `device: cpu`."""
    mmap: bool = True
    """Map the file instead of reading it: faster to start, and shared between processes."""
    mlock: bool = False
    """Keep the weights from being swapped out; needs a sufficient `ulimit -l`."""
    prefix_reuse: bool = True
    """Keep what was computed for earlier prompts and start from the longest prefix they share with a new one."""
    sliding_window_full: bool = False
    """Keep the whole context also for layers that only look at a window of it: more memory, but prefixes of models
    with sliding windows can then be shared as well."""
    chat_template: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """A Jinja chat template to use instead of the one in the file."""
    system: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """System message for conversations that bring none, instead of the chat template's own."""
