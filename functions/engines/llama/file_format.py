"""The file format GGUF: chooses a model's files in a listing by the quantization in their names; finds shards.

Only names are looked at; projectors, draft models, adapters and importance matrices are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from host.errors import ManifestError, ModelFileNotFound
from host.file_format import Choice, FileFormat, FileRequest

PREFERRED = (
    *("Q4_K_M", "Q4_K", "Q5_K_M", "Q5_K", "Q8_0", "Q6_K", "Q4_K_S", "Q5_K_S", "Q3_K_M", "Q2_K"),
    *("UD-Q4_K_XL", "UD-Q4_K_M", "MXFP4", "MXFP4_MOE", "Q4", "Q4_0", "IQ4_NL", "IQ4_XS", "Q4_1", "Q8", "F16", "BF16"),
)
"""Best first, for a manifest that asks for none; what is not here comes last, by name."""

_CONVERSIONS = ("bf16", "fp16", "f16", "int8", "int4")
"""Words of a manifest's `quantization` that also mean a conversion while loading: they choose no GGUF file where
there are weights of another format."""
_SIZE = r"\d{1,2}|K[SLT]?S?|BN|NL|X{0,3}[SL]|M|R\d|MOE"
_BITS = rf"(?:I?Q\d|TQ\d|MXFP\d|NVFP\d)(?:_(?:{_SIZE})(?![A-Za-z0-9]))*+|B?F16|FP16|FP?32|FP?8"
_LABEL = re.compile(rf"(?<![A-Za-z0-9])(?:UD-)?(?:{_BITS})(?![A-Za-z0-9])", re.IGNORECASE)
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)", re.IGNORECASE)
_PROJECTOR = re.compile(r"mmproj|projector", re.IGNORECASE)
_COMPANION = re.compile(r"(?<![a-z0-9])(?:draft|eagle\d?|mtp|lora|vocoder|vocab)(?![a-z0-9])", re.IGNORECASE)
_SPELLINGS = {"FP16": "F16", "FP32": "F32", "FP8": "F8"}


class Model(msgspec.Struct, kw_only=True, frozen=True):
    """One model in a listing: its files, first shard first, and the quantization in its name."""

    files: tuple[str, ...]
    label: str | None
    missing: tuple[str, ...] = ()
    """Shards that the names promise and the listing lacks."""


class GgufFormat(FileFormat):
    """GGUF files, one or several shards a model; `org/repo:QUANT` chooses by the quantization in the name."""

    rank = 10
    labelled = True

    def is_file(self, name: str) -> bool:
        """Return whether a name ends in `.gguf`."""
        return is_gguf(name)

    def claims(self, names: Sequence[str], quantization: str) -> bool:
        """Return whether only GGUF files have such a quantization."""
        return quantization.lower() not in _CONVERSIONS and bool(models(names))

    def choose(self, names: Sequence[str], request: FileRequest) -> Choice:
        """Return the files of the one model meant, first shard first."""
        files = choose(names, request.asked, request.where)
        return Choice(files=files, target=files[0])

    def named(self, file: str, names: Sequence[str], request: FileRequest) -> Choice:
        """Return the file with its other shards, of which the first is opened."""
        model = whole(shards(file, names), request.where)
        asked = request.asked
        if asked and model.label and label(f"{asked}.gguf") not in (None, model.label):
            raise ManifestError(
                f"{request.where} is {model.label}, not {asked}: leave one of the two out", key="quantization"
            )
        return Choice(files=model.files, target=model.files[0])


def label(name: str) -> str | None:
    """Return the quantization in a file's name, or else the folder it lies in: `Q4_K_M`, `UD-Q4_K_XL`.

    The last one of a name counts. `FP16` is spelled `F16`; `BF16` stays as it is.
    """
    for part in reversed(_SHARD.sub("", name).split("/")):
        found = _LABEL.findall(part)
        if found:
            return _spelled(found[-1])
    return None


def is_gguf(name: str) -> bool:
    """Return whether a name ends in `.gguf`."""
    return name.lower().endswith(".gguf")


def is_projector(name: str) -> bool:
    """Return whether a GGUF holds the projector of a vision or audio model, and no language model."""
    return bool(_PROJECTOR.search(name.rsplit("/", 1)[-1]))


def shards(name: str, names: Iterable[str]) -> Model:
    """Return the model that the file `name` belongs to, with all shards when it is one of several."""
    match = _SHARD.search(name)
    if match is None:
        return Model(files=(name,), label=label(name))
    start, end, count = name[: match.start()], name[match.end() :], int(match[2])
    wanted = tuple(f"{start}-{number:05}-of-{match[2]}{end}" for number in range(1, count + 1))
    there = set(names)
    return Model(files=wanted, label=label(name), missing=tuple(shard for shard in wanted if shard not in there))


def models(names: Iterable[str]) -> list[Model]:
    """Return the models of a listing: no projectors, and no draft models, adapters and the like beside real ones."""
    files = sorted(name for name in names if is_gguf(name) and not is_projector(name) and not _is_matrix(name))
    files = [name for name in files if not _COMPANION.search(name)] or files
    unique = {model.files: model for model in (shards(name, files) for name in files)}
    return list(unique.values())


def choose(names: Sequence[str], quantization: str | None, where: str) -> tuple[str, ...]:
    """Return the files of the one model meant, first shard first.

    `quantization` must be there exactly, whatever its case; `None` takes the first of `PREFERRED` there is. `where`
    is how messages call the listing. Raises `ModelFileNotFound` that lists what there is.
    """
    found = models(names)
    if not found:
        raise ModelFileNotFound(f"{where} has no GGUF file with a model's weights", param="model")
    if quantization is None:
        best = min(found, key=_preference)
        alike = [model for model in found if model.label == best.label]
    else:
        alike = [model for model in found if _is(model, quantization)]
        if not alike:
            raise ModelFileNotFound(
                f"{where} has no {quantization}; it has {_listed(found)}",
                param="quantization",
                extra={"available": _labels(found)},
            )
    return whole(_only(alike, where), where).files


def whole(model: Model, where: str) -> Model:
    """Return the model; raises `ModelFileNotFound` when shards of it are missing."""
    if model.missing:
        raise ModelFileNotFound(
            f"{where} has not all shards of {model.files[0]}: {', '.join(model.missing[:5])} missing", param="model"
        )
    return model


def _only(alike: list[Model], where: str) -> Model:
    """Return the single model among those of one quantization: whole before split, nearer the root before deeper."""
    alike = [model for model in alike if len(model.files) == 1] or [m for m in alike if not m.missing] or alike
    depth = min(model.files[0].count("/") for model in alike)
    alike = [model for model in alike if model.files[0].count("/") == depth]
    if len(alike) > 1:
        names = ", ".join(model.files[0] for model in alike[:10])
        raise ModelFileNotFound(
            f"{where} has several models in {alike[0].label or 'unknown quantization'}: name one of {names}",
            param="model",
        )
    return alike[0]


def _is(model: Model, quantization: str) -> bool:
    asked = re.sub(r"^i1-", "", quantization, flags=re.IGNORECASE)
    if _LABEL.fullmatch(asked):
        return model.label == _spelled(asked)
    token = rf"(?<![^-./]){re.escape(quantization)}(?![^-./])"
    return re.search(token, _SHARD.sub("", model.files[0]), re.IGNORECASE) is not None


def _is_matrix(name: str) -> bool:
    """Return whether it is an importance matrix: `imatrix` in the name, and no quantization."""
    return "imatrix" in name.rsplit("/", 1)[-1].lower() and label(name.rsplit("/", 1)[-1]) is None


def _preference(model: Model) -> tuple[bool, int, str]:
    rank = PREFERRED.index(model.label) if model.label in PREFERRED else len(PREFERRED)
    return bool(model.missing), rank, model.files[0]


def _spelled(found: str) -> str:
    return _SPELLINGS.get(found.upper(), found.upper())


def _labels(found: list[Model]) -> list[str]:
    return sorted({model.label or model.files[0] for model in found})


def _listed(found: list[Model]) -> str:
    labels = _labels(found)
    return ", ".join(labels[:40]) + (f" and {len(labels) - 40} more" if len(labels) > 40 else "")


GGUF = GgufFormat()
