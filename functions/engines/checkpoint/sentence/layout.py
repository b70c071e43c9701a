"""Reads how a sentence-transformers model makes vectors from its files: modules, pooling, prompts, lengths.

The manifest's options override the files; `notes` records each choice and its source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence import colbert, modules, sparse
from functions.engines.checkpoint.sentence.colbert import ColbertConfig
from functions.engines.checkpoint.sentence.modules import AFTER, ENCODERS, ROUTERS, TABLES, Module
from functions.engines.checkpoint.sentence.sparse import Lexical, Splade, StaticSparse
from host.errors import LoadFailed

Mode = Literal["cls", "max", "mean", "mean_sqrt_len", "weighted_mean", "last"]
VectorKind = Literal["dense", "sparse", "colbert"]
"""One vector per input, sparse weights of the vocabulary, or one vector per token."""
Step = tuple[str, str]
"""What follows pooling: (`Dense` or `LayerNorm`, its folder) or (`Normalize`, "")."""

_FLAGS: dict[str, Mode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weighted_mean",
    "pooling_mode_lasttoken": "last",
}
"""The flags of `1_Pooling/config.json`, in the order in which several modes are concatenated."""

_MODES: dict[str, Mode] = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
"""The values of `pooling_mode` in newer files."""

DUAL_ENCODERS = frozenset({"clip", "siglip"})
"""Model types with a text tower and an image tower that share a vector space."""


class LayoutOverrides(msgspec.Struct, kw_only=True, frozen=True):
    """The manifest's options, which override the files; `auto` uses what the files state."""

    pooling: Mode | Literal["auto"] = "auto"
    normalize: bool | Literal["auto"] = "auto"
    matryoshka: bool | list[int] | Literal["auto"] = "auto"
    prompts: dict[str, str] = {}


class Layers(msgspec.Struct, kw_only=True, frozen=True):
    """A token's state is the weighted mean of its states behind several layers."""

    path: str
    """The folder of the weights."""
    start: int
    """The first of them; 0 is what goes into the first layer."""


class Layout(msgspec.Struct, kw_only=True, frozen=True):
    """How vectors are made."""

    encoder: str = ""
    """The subfolder of the Transformers model, or of the table."""
    table: Literal["dense", "sparse"] | None = None
    """There is no encoder: each token has a row of a table (`dense`, and a text their mean) or a weight (`sparse`)."""
    layers: Layers | None = None
    """What token vectors are made of; None for the last layer's output."""
    pooling: tuple[Mode, ...]
    with_prompt: bool = True
    """Whether a prompt's tokens count in pooling."""
    steps: tuple[Step, ...] = ()
    longest: int | None = None
    """Tokens of one input, as the files say."""
    lower: bool = False
    """Texts are lower-cased before they are tokenised."""
    prompts: dict[str, str] = {}
    blank: tuple[str, ...] = ()
    """Names of prompts that the files have without a text: with them nothing is put before an input."""
    default_prompt: str | None = None
    sizes: tuple[int, ...] | bool = False
    """To what sizes vectors may be cut: these, any, or none."""
    size: int | None = None
    """The size vectors are cut to when a request does not say."""
    kinds: tuple[VectorKind, ...] = ("dense",)
    """What the model can make of an input."""
    sparse: Splade | Lexical | StaticSparse | None = None
    colbert: ColbertConfig | None = None
    dual_encoder: bool = False
    """The model also has an image tower (CLIP, SigLIP)."""
    missing: dict[str, str] = {}
    """Kind -> why the model does not make it although its folder has a file for it."""
    notes: tuple[str, ...] = ()

    @property
    def normalizes(self) -> bool:
        """Whether dense vectors are L2-normalised."""
        return bool(self.steps) and self.steps[-1][0] == "Normalize"

    def detail(self, size: int) -> dict[str, Any]:
        """Return the details an instance reports, on any engine; `size` is the full dimension."""
        return {
            "dimension": min(self.size or size, size),
            "dimensions": list(self.sizes) if isinstance(self.sizes, tuple) else self.sizes,
            "embedding_types": list(self.kinds),
            "pooling": list(self.pooling),
            "normalized": self.normalizes,
            "prompts": sorted(self.prompts),
        }


_NOTHING = LayoutOverrides()


def read(folder: Folder, overrides: LayoutOverrides = _NOTHING) -> Layout:
    """Return the layout of the model in the folder; raises `LoadFailed` for modules that are not known.

    Models with several ways through them are for `functions.engines.transformers.sentence.routes`.
    """
    listed = modules.read(folder)
    routers = [module.kind for module in listed if module.kind in ROUTERS]
    if routers:
        raise LoadFailed(f"modules.json: {routers[0]} is served as embeddings on the transformers engine, and not here")
    return of(folder, listed, overrides)


def of(folder: Folder, listed: Sequence[Module], overrides: LayoutOverrides = _NOTHING) -> Layout:
    """Return the layout of a model that the folder's `listed` modules make; raises what `read` raises."""
    encoder = listed[0].path if listed else ""
    table = TABLES.get(listed[0].kind) if listed else None
    if listed and table is None and listed[0].kind not in ENCODERS:
        raise LoadFailed("modules.json: expected a Transformer and then a Pooling module")
    model = folder.inside(encoder)
    config = {} if table else model.config()
    settings = folder.mapping("config_sentence_transformers.json")
    bert = {} if table else modules.settings(folder, model)
    stated = settings.get("prompts") or {}
    prompts = {name: text for name, text in stated.items() if text} | overrides.prompts
    default = settings.get("default_prompt_name")
    if default is not None and default not in prompts and default not in (settings.get("prompts") or {}):
        raise LoadFailed(f"config_sentence_transformers.json: default_prompt_name {default!r} is not among its prompts")
    common = Layout(
        encoder=encoder,
        pooling=(),
        longest=bert.get("max_seq_length"),
        lower=bool(bert.get("do_lower_case")),
        prompts=prompts,
        blank=tuple(name for name in stated if name not in prompts),
        default_prompt=default if default in prompts else None,
        table=table,
    )
    if table:
        return _static_embedding(common, listed, settings, overrides)
    if listed and len(listed) > 1 and listed[1].kind == "SpladePooling":
        return _sparse(common, listed, settings, overrides)
    if colbert.is_one(listed, config, settings):
        return _colbert(common, folder, model, listed, settings, bert, overrides)
    return _dense(common, folder, model, listed, settings, overrides)


def _static_embedding(
    common: Layout, listed: Sequence[Module], settings: dict[str, Any], overrides: LayoutOverrides
) -> Layout:
    kind = listed[0].kind
    _check_pooling_option(overrides, f"{kind} has a way of its own")
    if common.table == "sparse":
        if len(listed) > 1:
            raise LoadFailed(f"modules.json: {listed[1].kind} after {kind} is not served")
        made = StaticSparse(top_k=settings.get("max_active_dims"))
        note = "sparse vectors: each token of the text has a weight of its own (modules.json)"
        return msgspec.structs.replace(common, kinds=("sparse",), sparse=made, notes=(note,))
    steps, scaled = _steps(_supported(listed[1:]), overrides, bare=False)
    return msgspec.structs.replace(
        common,
        steps=steps,
        sizes=_sizes(settings, {}, overrides),
        size=settings.get("truncate_dim"),
        notes=("the mean of the tokens' rows in a table (modules.json)", _scaling_note(scaled)),
    )


def _check_pooling_option(overrides: LayoutOverrides, why: str) -> None:
    """Raise where the manifest says how to pool what is not pooled."""
    if overrides.pooling != "auto":
        raise LoadFailed(f"options.pooling: {overrides.pooling} has no meaning for this model: {why}")


def _sparse(common: Layout, listed: Sequence[Module], settings: dict[str, Any], overrides: LayoutOverrides) -> Layout:
    _check_pooling_option(overrides, "it makes sparse vectors, and SpladePooling says how")
    made = sparse.splade(listed, settings)
    note = f"sparse vectors: SPLADE, {made.pooling} over the text's tokens (modules.json)"
    return msgspec.structs.replace(common, kinds=("sparse",), sparse=made, notes=(note,))


def _colbert(
    common: Layout,
    folder: Folder,
    model: Folder,
    listed: Sequence[Module],
    settings: dict[str, Any],
    bert: dict[str, Any],
    overrides: LayoutOverrides,
) -> Layout:
    _check_pooling_option(overrides, "each token has a vector of its own")
    made = colbert.read(folder, model, listed, settings, bert)
    longest = common.longest
    if "document" in made.lengths:  # it goes before the length of texts that are neither query nor document
        longest = max(longest or 0, *made.lengths.values())
    notes = ("a vector for each token (ColBERT)",)
    return msgspec.structs.replace(common, kinds=("colbert",), colbert=made, longest=longest, notes=notes)


def _dense(
    common: Layout,
    folder: Folder,
    model: Folder,
    listed: Sequence[Module],
    settings: dict[str, Any],
    overrides: LayoutOverrides,
) -> Layout:
    config = model.config()
    dual_encoder = config.get("model_type") in DUAL_ENCODERS
    if dual_encoder:
        _check_pooling_option(overrides, "its towers pool by themselves")
    listed, layers, depth = _layers(listed, config)
    after = _modules_after_pooling(listed, dual_encoder=dual_encoder)
    pooling, with_prompt, how = ((), True, "") if dual_encoder else _pooling(folder, model, listed, overrides)
    steps, scaled = _steps(after, overrides, bare=not listed)
    lexical, tokens = (None, None) if dual_encoder else (sparse.lexical(folder), colbert.beside(folder))
    kinds: tuple[VectorKind, ...] = ("dense", *(("sparse",) if lexical else ()), *(("colbert",) if tokens else ()))
    missing = {} if dual_encoder else _pickle_notes(folder, kinds)
    return msgspec.structs.replace(
        common,
        pooling=pooling,
        with_prompt=with_prompt,
        steps=steps,
        layers=layers,
        sizes=_sizes(settings, config, overrides),
        size=settings.get("truncate_dim"),
        kinds=kinds,
        sparse=lexical,
        colbert=tokens,
        dual_encoder=dual_encoder,
        missing=missing,
        notes=(
            "texts and images in one space" if dual_encoder else f"pooling: {' + '.join(pooling)} ({how})",
            *depth,
            _scaling_note(scaled),
            *((f"vectors of each kind: {', '.join(kinds)}",) if len(kinds) > 1 else ()),
            *missing.values(),
        ),
    )


def _scaling_note(scaled: tuple[bool, str]) -> str:
    return f"{'scaled to length 1' if scaled[0] else 'not scaled'} ({scaled[1]})"


def _layers(
    listed: Sequence[Module], config: dict[str, Any]
) -> tuple[Sequence[Module], Layers | None, tuple[str, ...]]:
    """Return the modules without WeightedLayerPooling, what it reads, and a note of it."""
    if len(listed) < 2 or listed[1].kind != "WeightedLayerPooling":
        return listed, None, ()
    rest, path, start = [listed[0], *listed[2:]], listed[1].path, listed[1].config.get("layer_start", 4)
    if not isinstance(start, int) or start < 0:
        raise LoadFailed(f"{path}/config.json: layer_start {start!r} is no layer's number")
    if not config.get("output_hidden_states"):  # sentence-transformers passes it over without a word
        return rest, None, ("WeightedLayerPooling does nothing, as config.json has no output_hidden_states",)
    return rest, Layers(path=path, start=start), (f"token vectors: weighted mean of layers from {start} on ({path})",)


def _pickle_notes(folder: Folder, kinds: Sequence[VectorKind]) -> dict[str, str]:
    """Return why the layers that lie beside the model as pickles are not used."""
    files = {"sparse": sparse.LEXICAL, "colbert": colbert.BESIDE}
    return {
        kind: f"{name}.pt is a pickle, which can run code and is not loaded: save it as {name}.safetensors"
        for kind, name in files.items()
        if kind not in kinds and folder.has(f"{name}.pt")
    }


def _modules_after_pooling(listed: Sequence[Module], *, dual_encoder: bool) -> list[Module]:
    """Return the modules behind pooling, or behind a model that pools by itself; raises `LoadFailed` for strangers."""
    if dual_encoder:
        after = list(listed[1:])
    elif not listed:
        return []
    elif [module.kind for module in listed[1:2]] != ["Pooling"]:
        raise LoadFailed("modules.json: expected a Transformer and then a Pooling module")
    else:
        after = list(listed[2:])
    return _supported(after)


def _supported(after: Sequence[Module]) -> list[Module]:
    for module in after:
        if module.kind not in AFTER | {"Dropout"}:
            raise LoadFailed(f"modules.json: {module.kind} is not served in this place")
        if module.tokens:
            raise LoadFailed(f"{module.path}/config.json: token_embeddings after pooling are not served")
    return [module for module in after if module.kind in AFTER]


def _pooling(
    folder: Folder, model: Folder, listed: Sequence[Module], overrides: LayoutOverrides
) -> tuple[tuple[Mode, ...], bool, str]:
    path = next((module.path for module in listed if module.kind == "Pooling"), "1_Pooling")
    config = folder.mapping(f"{path}/config.json")
    if listed and not config:
        raise LoadFailed(f"{path}/config.json is missing: it says how the vectors of tokens become one")
    with_prompt = bool(config.get("include_prompt", True))
    if overrides.pooling != "auto":
        return (overrides.pooling,), with_prompt, "the manifest's options"
    if config:
        return _stated(config, path), with_prompt, f"{path}/config.json"
    if any(str(name).endswith("ForCausalLM") for name in model.config().get("architectures") or ()):
        return ("last",), with_prompt, "no 1_Pooling; a causal language model's last token has seen all others"
    return ("mean",), with_prompt, "no 1_Pooling; mean over the text's tokens"


def _stated(config: dict[str, Any], path: str) -> tuple[Mode, ...]:
    words = config.get("pooling_mode")
    if words is None:
        modes = tuple(mode for flag, mode in _FLAGS.items() if config.get(flag))
    else:
        listed = [words] if isinstance(words, str) else list(words)
        unknown = [word for word in listed if word not in _MODES]
        if unknown:
            raise LoadFailed(f"{path}/config.json: pooling_mode {unknown[0]!r} is not known")
        modes = tuple(_MODES[word] for word in listed)
    if not modes:
        raise LoadFailed(f"{path}/config.json names no pooling mode")
    return modes


def _steps(
    after: Sequence[Module], overrides: LayoutOverrides, *, bare: bool
) -> tuple[tuple[Step, ...], tuple[bool, str]]:
    """Return what follows pooling, and whether vectors are scaled and by whose word."""
    steps = tuple((module.kind, module.path) for module in after)
    scaled = bool(steps) and steps[-1][0] == "Normalize"
    wanted, whose = overrides.normalize, "the manifest's options"
    if wanted == "auto":
        wanted, whose = (True, "no modules.json") if bare else (scaled, "modules.json")
    if wanted and not scaled:
        steps = (*steps, ("Normalize", ""))
    elif scaled and not wanted:
        steps = steps[:-1]
    return steps, (bool(wanted), whose)


def _sizes(settings: dict[str, Any], config: dict[str, Any], overrides: LayoutOverrides) -> tuple[int, ...] | bool:
    if overrides.matryoshka != "auto":
        return overrides.matryoshka if isinstance(overrides.matryoshka, bool) else tuple(overrides.matryoshka)
    stated = settings.get("matryoshka_dimensions") or config.get("matryoshka_dimensions")
    if isinstance(stated, list):
        return tuple(stated)
    return bool(stated or config.get("is_matryoshka") or settings.get("truncate_dim"))
