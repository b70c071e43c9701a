"""How a model's own files say that vectors are made: sentence-transformers' modules, pooling, prompts, lengths.

Options of the manifest go before the files; what was chosen, and by whom, is written down in `notes`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from functions.engines.transformers.folder import Folder
from host.errors import LoadFailed

Mode = Literal["cls", "max", "mean", "mean_sqrt_len", "weighted_mean", "last"]
Step = tuple[str, str]
"""What follows pooling: (`Dense`, its folder) or (`Normalize`, "")."""

_FLAGS: dict[str, Mode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weighted_mean",
    "pooling_mode_lasttoken": "last",
}
"""The flags of `1_Pooling/config.json`, in the order in which several are put behind one another."""

_WORDS: dict[str, Mode] = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
"""The words of newer files' `pooling_mode`."""


class Said(msgspec.Struct, kw_only=True, frozen=True):
    """What the manifest says of it, which goes before the files; `auto` leaves it to them."""

    pooling: Mode | Literal["auto"] = "auto"
    normalize: bool | Literal["auto"] = "auto"
    matryoshka: bool | list[int] | Literal["auto"] = "auto"
    prompts: dict[str, str] = {}


class Layout(msgspec.Struct, kw_only=True, frozen=True):
    """How vectors are made."""

    encoder: str = ""
    """The subfolder of the Transformers model."""
    pooling: tuple[Mode, ...]
    with_prompt: bool = True
    """Whether a prompt's tokens count in pooling."""
    steps: tuple[Step, ...] = ()
    longest: int | None = None
    """Tokens of one input, as the files say."""
    lower: bool = False
    """Texts are lower-cased before they are tokenised."""
    prompts: dict[str, str] = {}
    default_prompt: str | None = None
    sizes: tuple[int, ...] | bool = False
    """To what sizes vectors may be cut: these, any, or none."""
    size: int | None = None
    """The size vectors are cut to when a request does not say."""
    notes: tuple[str, ...] = ()

    @property
    def normalizes(self) -> bool:
        """Say whether vectors come out with length 1."""
        return bool(self.steps) and self.steps[-1][0] == "Normalize"


_NOTHING = Said()


def read(folder: Folder, said: Said = _NOTHING) -> Layout:
    """Return the layout of the model in the folder; raises `LoadFailed` for modules that are not known."""
    modules = _modules(folder)
    encoder = next((path for kind, path in modules if kind == "Transformer"), "")
    model = folder.inside(encoder)
    pooling, with_prompt, how = _pooling(folder, model, modules, said)
    steps, scaled = _steps(modules, said)
    bert = model.mapping("sentence_bert_config.json") or folder.mapping("sentence_bert_config.json")
    settings = folder.mapping("config_sentence_transformers.json")
    prompts = {name: text for name, text in (settings.get("prompts") or {}).items() if text} | said.prompts
    default = settings.get("default_prompt_name")
    if default is not None and default not in prompts and default not in (settings.get("prompts") or {}):
        raise LoadFailed(f"config_sentence_transformers.json: default_prompt_name {default!r} is not among its prompts")
    return Layout(
        encoder=encoder,
        pooling=pooling,
        with_prompt=with_prompt,
        steps=steps,
        longest=bert.get("max_seq_length"),
        lower=bool(bert.get("do_lower_case")),
        prompts=prompts,
        default_prompt=default if default in prompts else None,
        sizes=_sizes(settings, model.config(), said),
        size=settings.get("truncate_dim"),
        notes=(
            f"pooling: {' + '.join(pooling)} ({how})",
            f"{'scaled to length 1' if scaled[0] else 'not scaled'} ({scaled[1]})",
        ),
    )


def _modules(folder: Folder) -> list[Step]:
    """Return (class, folder) of each entry in `modules.json`, in order; empty where there is no such file."""
    found: list[Step] = []
    for entry in folder.json("modules.json") or []:
        library, _, kind = str(entry.get("type", "")).rpartition(".")
        if not library.startswith("sentence_transformers.") or kind not in _KNOWN:
            known = ", ".join(sorted(_KNOWN))
            raise LoadFailed(f"modules.json: {entry.get('type')} is not served; known are {known}")
        found.append((kind, str(entry.get("path", ""))))
    if found and [kind for kind, _ in found[:2]] != ["Transformer", "Pooling"]:
        raise LoadFailed("modules.json: expected a Transformer and then a Pooling module")
    return found


_KNOWN = frozenset({"Transformer", "Pooling", "Dense", "Normalize", "Dropout"})


def _pooling(folder: Folder, model: Folder, modules: list[Step], said: Said) -> tuple[tuple[Mode, ...], bool, str]:
    path = next((path for kind, path in modules if kind == "Pooling"), "1_Pooling")
    config = folder.mapping(f"{path}/config.json")
    with_prompt = bool(config.get("include_prompt", True))
    if said.pooling != "auto":
        return (said.pooling,), with_prompt, "the manifest's options"
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
        unknown = [word for word in listed if word not in _WORDS]
        if unknown:
            raise LoadFailed(f"{path}/config.json: pooling_mode {unknown[0]!r} is not known")
        modes = tuple(_WORDS[word] for word in listed)
    if not modes:
        raise LoadFailed(f"{path}/config.json names no pooling mode")
    return modes


def _steps(modules: list[Step], said: Said) -> tuple[tuple[Step, ...], tuple[bool, str]]:
    """Return what follows pooling, and whether vectors are scaled and by whose word."""
    steps = tuple((kind, path) for kind, path in modules[2:] if kind in ("Dense", "Normalize"))
    scaled = bool(steps) and steps[-1][0] == "Normalize"
    wanted, whose = said.normalize, "the manifest's options"
    if wanted == "auto":
        wanted, whose = (scaled, "modules.json") if modules else (True, "no modules.json")
    if wanted and not scaled:
        steps = (*steps, ("Normalize", ""))
    elif scaled and not wanted:
        steps = steps[:-1]
    return steps, (bool(wanted), whose)


def _sizes(settings: dict[str, Any], config: dict[str, Any], said: Said) -> tuple[int, ...] | bool:
    if said.matryoshka != "auto":
        return said.matryoshka if isinstance(said.matryoshka, bool) else tuple(said.matryoshka)
    stated = settings.get("matryoshka_dimensions") or config.get("matryoshka_dimensions")
    if isinstance(stated, list):
        return tuple(stated)
    return bool(stated or config.get("is_matryoshka") or settings.get("truncate_dim"))
