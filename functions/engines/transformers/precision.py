"""The manifest's `quantization` as the number format weights are computed in."""

from __future__ import annotations

import torch

from host.errors import ManifestError

_KNOWN = {"fp32": torch.float32, "float32": torch.float32, "bf16": torch.bfloat16, "bfloat16": torch.bfloat16}
_NOT_YET = ("int8", "int4")


def choose(quantization: str | None, device: torch.device, stored: str | None) -> torch.dtype:
    """Return the dtype to load in; raises `ManifestError` for what is not served.

    Without `quantization` it is fp32 on CPU, and on an accelerator what the files were saved in (`stored`, the name in
    `config.json`).
    """
    if quantization is None:
        kept = getattr(torch, stored or "", None)
        accelerated = device.type != "cpu" and isinstance(kept, torch.dtype) and kept.is_floating_point
        return kept if accelerated else torch.float32
    name = quantization.lower()
    if name in _NOT_YET:
        raise ManifestError(
            f"{quantization} is not served by the transformers engine yet; use bf16, or leave it out for fp32",
            key="quantization",
        )
    if name not in _KNOWN:
        raise ManifestError(f"expected bf16 or fp32 for a Transformers model, got {quantization!r}", key="quantization")
    return _KNOWN[name]


def name(dtype: torch.dtype) -> str:
    """Return `fp32`, `bf16` or `fp16`."""
    return {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}.get(dtype, str(dtype))
