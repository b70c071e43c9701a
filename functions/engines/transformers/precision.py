"""Resolves the manifest's `quantization` to a dtype or int8, by what the device and processor support."""

from __future__ import annotations

import platform

import msgspec
import torch

from host.errors import ManifestError

_KNOWN = {"fp32": torch.float32, "float32": torch.float32, "bf16": torch.bfloat16, "bfloat16": torch.bfloat16}
_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


class Precision(msgspec.Struct, kw_only=True, frozen=True):
    """The precision a model is computed in."""

    dtype: torch.dtype
    int8: bool = False
    """Matrices are multiplied in 8 bits; all else in `dtype`."""
    stated: bool = False
    """The manifest asks for it by name."""
    checked: bool = False
    """It is less than fp32 on a CPU: the model is loaded in fp32 and compared with itself."""

    @property
    def name(self) -> str:
        """Return `fp32`, `bf16`, `fp16` or `int8`."""
        return "int8" if self.int8 else name(self.dtype)

    @property
    def first(self) -> torch.dtype:
        """The dtype weights are read in."""
        return torch.float32 if self.checked else self.dtype


FP32 = Precision(dtype=torch.float32)


def choose(quantization: str | None, device: torch.device, stored: str | None) -> Precision:
    """Return the precision to load in; raises `ManifestError` for what is not served.

    Without `quantization` it is bf16 on a CPU that computes in it, fp32 on any other, and on an accelerator what the
    files were saved in (`stored`, the name in `config.json`).
    """
    on_cpu = device.type == "cpu"
    if quantization is None:
        if on_cpu:
            return Precision(dtype=torch.bfloat16, checked=True) if has_native_bf16() else FP32
        kept = getattr(torch, stored or "", None)
        known = isinstance(kept, torch.dtype) and kept.is_floating_point
        return Precision(dtype=kept if known else torch.float32)
    wanted = quantization.lower()
    if wanted == "int8" and on_cpu:
        return Precision(dtype=torch.float32, int8=True, stated=True, checked=True)
    if wanted in ("int8", "int4"):
        hint = "on the CPU: set device: cpu, or take bf16" if wanted == "int8" else "nowhere here: take int8 or bf16"
        raise ManifestError(f"the transformers engine serves {wanted} {hint}", key="quantization")
    if wanted not in _KNOWN:
        raise ManifestError(
            f"expected bf16, fp32 or int8 for a Transformers model, got {quantization!r}", key="quantization"
        )
    dtype = _KNOWN[wanted]
    return Precision(dtype=dtype, stated=True, checked=on_cpu and dtype is not torch.float32)


def has_native_bf16() -> bool:
    """Return whether the CPU multiplies bf16 natively; others emulate it, slower than fp32."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        known = torch.cpu.get_capabilities()
        return bool(known.get("avx512_bf16") or known.get("amx_bf16"))
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False


def name(dtype: torch.dtype) -> str:
    """Return `fp32`, `bf16` or `fp16`."""
    return _NAMES.get(dtype, str(dtype))
