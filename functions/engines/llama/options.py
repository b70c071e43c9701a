"""The manifest's `options` of the engine `llama`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from host.byte_size import size

Tokens = Annotated[int, msgspec.Meta(ge=1, le=65536)]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
AdapterName = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Adapter(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A LoRA adapter in a GGUF file."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    """The file; a relative path starts at the manifest's folder."""
    scale: Annotated[float, msgspec.Meta(ge=-100, le=100)] = 1.0
    """How strongly it is applied."""


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
    """Layers computed on accelerators, the output counting as one; `auto` is as many as fit, none on `device: cpu`."""
    split_mode: Literal["auto", "none", "layer", "row"] = "auto"
    """How a model is laid over several accelerators: whole layers each, or rows of each matrix; `auto` takes one where
    the model fits into it, else layers over as few as hold it. A `device` with a number is that one only."""
    tensor_split: Annotated[list[Annotated[float, msgspec.Meta(ge=0)]], msgspec.Meta(min_length=1)] | None = None
    """What each accelerator takes, as proportions in llama.cpp's order of them: `[3, 1]`. Default: by free memory."""
    main_gpu: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """The accelerator, counted from 0, that takes a model which is not split. Default: where most memory is free."""
    cpu_moe: bool = False
    """Leave the experts of all layers to the CPU, and the rest on the accelerator."""
    n_cpu_moe: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Leave the experts of so many layers, the first ones, to the CPU."""
    mmap: bool = True
    """Map the file instead of reading it: faster to start, and shared between processes."""
    mlock: bool = False
    """Keep the weights from being swapped out; needs a sufficient `ulimit -l`."""
    adapters: dict[AdapterName, Adapter] = {}
    """LoRA adapters by name, each with its `path`, relative to the manifest's folder, and `scale`, which is 1 where it
    is left out: `{poet: {path: ./poet.gguf, scale: 0.8}}`. They are loaded with the model. Chats choose one by
    `model: NAME@ADAPTER` or `adapter: ADAPTER`; without, the model answers as it is."""
    chunk: Tokens | Literal["auto"] = "auto"
    """Tokens of long prompts computed in one step while answers are in progress; `auto` is what takes a tenth of a
    second. Short prompts are computed at once, as many as take half a second and fit into `batch`."""
    prefix_reuse: bool = True
    """Keep what was computed for earlier prompts and start from the longest prefix they share with a new one."""
    prefix_tokens: Annotated[int, msgspec.Meta(ge=0)] | Literal["auto"] = "auto"
    """Tokens of earlier prompts and answers kept for that, the least recently used forgotten first; `auto` is the
    context of one slot. They take room in the cache, and time: attention passes over them."""
    deterministic: bool = False
    """The same request with the same seed gets the same text whatever else is answered beside it. Otherwise it may not:
    sums depend on their order in the last bit, and the order on how many tokens are computed together and where in the
    cache they lie. Models in 32 bits show no more of it; where weights are quantised, what they multiply is rounded to
    8 bits, logits move by tenths, and near-ties fall the other way. This computes one sequence at a time, each in a
    cache of its own, and reuses no prefix, which is slower under load."""
    speculation: Literal["off", "prompt_lookup", "draft"] = "off"
    """Guess the next tokens and let the model check them all in one step: `prompt_lookup` guesses what followed the
    same words earlier in the conversation, `draft` asks the small model `draft`. Answers are drawn from the same
    distribution as without, and greedy ones are the same, but for what `deterministic` says of rounding: tokens are
    checked several in a batch. Pays where a step of several tokens costs about as much as
    one of a single token: large models, accelerators, answers that repeat their prompts."""
    draft: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """The GGUF file of the model that drafts: a path, relative to the manifest's folder, or `package:NAME/FILE`. It has
    the same vocabulary as the model."""
    draft_tokens: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    """Tokens guessed at once, at most; fewer after wrong guesses."""
    sliding_window_full: bool = False
    """Keep the whole context also for layers that only look at a window of it: more memory, but prefixes of models
    with sliding windows can then be shared as well."""
    chat_template: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """A Jinja chat template to use instead of the one in the file."""
    system: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """System message for conversations that bring none, instead of the chat template's own."""
    keep_prefixes: bool | int | str = False
    """Write what was computed for the prompts used last to disk when the model is evicted, and start from it at the
    next cold load. A size such as `512MiB` bounds the files of this model, also those of other manifests that use the
    same file; `true` is 256MiB. Nothing is kept with `deterministic: true` or `prefix_reuse: false`."""
    pooling: Literal["auto", "mean", "cls", "last", "rank"] = "auto"
    """Embeddings and scores: how the vectors of tokens become one. `auto` is what the file says, else the last token of
    a causal language model and the mean of any other."""

    def __post_init__(self) -> None:
        """Refuse what excludes each other; raises `ValueError`, which is reported with the manifest's line."""
        if not isinstance(self.keep_prefixes, bool):
            try:
                size(self.keep_prefixes)
            except ValueError as error:
                raise ValueError(f"`keep_prefixes`: {error}; or true") from None
        if self.speculation == "draft" and self.draft is None:
            raise ValueError("`speculation: draft` needs `draft`, the file of the model that drafts")
        if self.draft is not None and self.speculation != "draft":
            raise ValueError("`draft` is of no use without `speculation: draft`")
        if self.deterministic and self.speculation != "off":
            raise ValueError("`deterministic` and `speculation` exclude each other: guesses change the order of sums")
        if self.flash_attention == "off" and self.cache_type_v.startswith("q"):
            raise ValueError(
                f"`cache_type_v: {self.cache_type_v}` needs flash attention, and `flash_attention` is off: "
                "take f16, bf16 or f32, or leave flash attention on"
            )
        if self.cpu_moe and self.n_cpu_moe:
            raise ValueError("`cpu_moe` is all layers and `n_cpu_moe` some of them: set one of the two")
        if self.tensor_split is not None:
            if self.split_mode == "none":
                raise ValueError("`tensor_split` needs `split_mode` to be layer, row or auto, and it is none")
            if not any(self.tensor_split):
                raise ValueError("`tensor_split` is all zeros: expected at least one proportion above 0")
        if self.main_gpu is not None and (self.tensor_split is not None or self.split_mode in ("layer", "row")):
            raise ValueError("`main_gpu` is for a model that is not split: leave it out, or set `split_mode: none`")


def drafts(options: LlamaOptions) -> int:
    """Return how many tokens are guessed at once, at most; 0 without speculation."""
    return 0 if options.speculation == "off" else options.draft_tokens
