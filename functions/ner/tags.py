"""Parses a model's labels: the entity type, whether an entity begins, whether one ends.

Schemes are BIO (also with I alone), BIOES, BILOU and plain labels; which one is detected from the labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from host.errors import LoadFailed, ManifestError

_OUTSIDE = frozenset({"o", "0", "outside", "none", "null", ""})
_SPECIAL = re.compile(r"\[\w+\]|<\w+>")
_UNNAMED = re.compile(r"LABEL_\d+")
_TAGGED = re.compile(r"([BIESLUM])[-_](.+)", re.DOTALL)
_BEGIN, _END = "BSU", "ELSU"


class TagScheme:
    """The parsed labels of a model; `types`, `begins` and `ends` are in the order of the labels.

    `types` has the index of the label's type in `names`, -1 for labels of no entity. A label in `begins` starts an
    entity even after one of the same type; after a label in `ends` a new one starts.
    """

    def __init__(self, labels: Sequence[str], rename: Mapping[str, str] | None = None) -> None:
        """Raises `LoadFailed` where no label is of an entity, `ManifestError` for an unknown label in `rename`."""
        renamed = rename or {}
        for label in renamed:
            if label not in labels:
                known = ", ".join(labels[:8]) + (", …" if len(labels) > 8 else "")
                raise ManifestError(f"the model has no label {label!r}; it has: {known}", key="options")
        named = [renamed.get(label, label) for label in labels]
        outside = _outside(named)
        parted = _parted([name for name, out in zip(named, outside, strict=True) if not out])
        split = [("", "") if out else parted[name] for name, out in zip(named, outside, strict=True)]
        self.names: tuple[str, ...] = tuple(dict.fromkeys(kind for _, kind in split if kind))
        if not self.names:
            raise LoadFailed("no label of the model is of an entity: its config.json has no id2label that names some")
        places = {name: at for at, name in enumerate(self.names)}
        self.types: npt.NDArray[np.int64] = np.array([places.get(kind, -1) for _, kind in split])
        self.begins = tuple(bool(prefix) and prefix in _BEGIN for prefix, _ in split)
        self.ends = tuple(bool(prefix) and prefix in _END for prefix, _ in split)
        self.scheme = _scheme({prefix for prefix, kind in split if kind})


def _outside(labels: Sequence[str]) -> list[bool]:
    """Return which labels are of no entity: O and its other spellings, and those of special tokens.

    Where labels have no names (LABEL_0, LABEL_1, …) it is the first one, by convention.
    """
    if all(_UNNAMED.fullmatch(label) for label in labels):
        return [label == "LABEL_0" for label in labels]
    return [label.strip().lower() in _OUTSIDE or bool(_SPECIAL.fullmatch(label)) for label in labels]


def _parted(labels: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return each label's prefix, empty for none, and type.

    B and I are prefixes where every label has such a form, or some type has both. Other letters are prefixes where
    the type has B or I as well, so that E-MAIL and T-CELL stay whole.
    """
    tagged = {label: (found[1], found[2]) for label in labels if (found := _TAGGED.fullmatch(label))}
    of_b, of_i = ({kind for prefix, kind in tagged.values() if prefix == letter} for letter in "BI")
    prefixed = len(tagged) == len(set(labels)) or bool(of_b & of_i)
    known = of_b | of_i if prefixed else set()
    return {label: tagged[label] if label in tagged and tagged[label][1] in known else ("", label) for label in labels}


def _scheme(prefixes: set[str]) -> str:
    if not prefixes - {""}:
        return "plain"
    if prefixes & set("LU"):
        return "BILOU"
    if prefixes & set("ES"):
        return "BIOES"
    return "BIO" if "B" in prefixes else "IO"
