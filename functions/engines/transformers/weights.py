"""Loads a model's safetensors weights into the architecture that `config.json` names.

Python code in the folder runs only with `trust_remote_code`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from transformers import AutoConfig
from transformers.utils import logging

from functions.engines.checkpoint.folder import Folder
from functions.engines.transformers.memory import is_out_of_memory, out_of_memory
from host.errors import LoadFailed
from host.function import Progress

AUTO = "AutoModel"
"""The model without a head; for encoder-decoders the encoder alone. Heads have auto classes of their own."""


_ALTERNATIVE = "use task: embeddings, or task: rerank with options.method: cosine"
_HEADS = {
    "AutoModelForSequenceClassification": (
        "this checkpoint has no classification head ({} lacks {}): it is an embedder or a base model; " + _ALTERNATIVE
    ),
    "AutoModelForTokenClassification": (
        "this checkpoint has no head that labels tokens ({} lacks {}): it is an embedder or a base model; "
        + _ALTERNATIVE
    ),
    "AutoModelForCausalLM": "this checkpoint has no head that predicts words ({} lacks {}): it is an embedder; "
    + _ALTERNATIVE,
}
"""What files are that lack a head, by the auto class that was to load them: their architecture, the weights."""


def load(
    folder: Folder,
    *,
    auto: str = AUTO,
    device: torch.device,
    dtype: torch.dtype,
    attention: str = "auto",
    progress: Progress,
    optional: Callable[[str], bool] = lambda name: False,
    trusted: bool = False,
) -> Any:
    """Return the model in evaluation mode on its device. `auto` names Transformers' auto class.

    `optional` names weights that may be missing from the files because nothing uses them; `trusted` lets the folder's
    own Python code run. Raises `LoadFailed`, also when other weights are missing and would be random, and
    `OutOfMemory`.
    """
    logging.disable_progress_bar()
    total = folder.weights(dtype.itemsize)
    progress("weights", 0, total)
    config = _config(folder, trusted=trusted)
    if auto == AUTO and getattr(config, "is_encoder_decoder", False):
        auto = "AutoModelForTextEncoding"
    try:
        model, report = getattr(transformers, auto).from_pretrained(
            str(folder.path),
            config=config,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=trusted,
            output_loading_info=True,
            **({} if attention == "auto" else {"attn_implementation": attention}),
        )
        model = model.eval().requires_grad_(False).to(device)
    except Exception as error:
        raise _failed(error, folder) from error
    missing = sorted(name for name in report["missing_keys"] if not optional(name))
    wrong = sorted(str(key[0] if isinstance(key, tuple) else key) for key in report["mismatched_keys"])
    if missing or wrong:
        if missing and auto in _HEADS and _only_head(model, missing):
            raise LoadFailed(_HEADS[auto].format(_architecture(config), _first_names(missing)))
        names = missing or wrong
        kind = "lack" if missing else "have another shape for"
        raise LoadFailed(f"the files {kind} weights that {type(model).__name__} needs: {_first_names(names)}")
    progress("weights", total, total)
    return model


def _config(folder: Folder, *, trusted: bool) -> Any:
    raw = folder.config()
    try:
        return AutoConfig.from_pretrained(str(folder.path), local_files_only=True, trust_remote_code=trusted)
    except Exception as error:
        kind = raw.get("model_type")
        if raw.get("auto_map") and trusted:
            why = f"the Python code of model type {kind!r} fails: {_first_line(error, folder)}"
        elif raw.get("auto_map"):
            why = (
                f"model type {kind!r} brings its own Python code, which is not run; "
                "options: {trust_remote_code: true} in the manifest would run it"
            )
        elif kind is None:
            why = "config.json names no model_type"
        else:
            why = f"Transformers {transformers.__version__} cannot read model type {kind!r}"
        raise LoadFailed(why) from error


def _failed(error: Exception, folder: Folder) -> LoadFailed:
    if is_out_of_memory(error):
        return out_of_memory("memory ran out while the weights were loaded")
    return LoadFailed(f"the weights cannot be loaded: {_first_line(error, folder)}")


def _first_line(error: Exception, folder: Folder) -> str:
    return str(error).strip().split("\n")[0].replace(str(folder.path), "…")[:300]


def _only_head(model: Any, missing: list[str]) -> bool:
    """Return whether only weights of the head are missing; a pooler counts as part of it."""
    base = f"{model.base_model_prefix}."
    return all(not name.startswith(base) or name.startswith(f"{base}pooler.") for name in missing)


def _architecture(config: Any) -> str:
    return ", ".join(config.architectures or ()) or "config.json names no architecture, and the file"


def _first_names(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
