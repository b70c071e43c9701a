"""Logits as scores: softmax or sigmoid by what the model was trained for, and the windows of a text put together.

It knows arrays of numbers; labels and texts are others' business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from functions.classify.options import Activation

Numbers = npt.NDArray[np.float64]
Applied = Literal["softmax", "sigmoid", "none"]
Together = Literal["mean", "max"]


def activation(said: Activation, problem_type: object, labels: int) -> Applied:
    """Return what to apply to logits: the manifest's word, else what Transformers' pipeline chooses for the model."""
    if said != "auto":
        return said
    if problem_type == "regression":
        return "none"
    return "sigmoid" if problem_type == "multi_label_classification" or labels == 1 else "softmax"


def applied(logits: npt.ArrayLike, how: Applied) -> Numbers:
    """Return the scores of logits whose last axis is the labels."""
    numbers = np.asarray(logits, dtype=np.float64)
    if how == "softmax":
        return np.exp(log_softmax(numbers))
    return numbers if how == "none" else sigmoid(numbers)


def log_softmax(logits: npt.ArrayLike) -> Numbers:
    """Return the logarithms of the softmax over the last axis."""
    numbers = np.asarray(logits, dtype=np.float64)
    numbers = numbers - numbers.max(axis=-1, keepdims=True)
    found: Numbers = numbers - np.log(np.exp(numbers).sum(axis=-1, keepdims=True))
    return found


def sigmoid(numbers: Numbers) -> Numbers:
    """Return 1 / (1 + e^-x), which does not overflow for any x."""
    found: Numbers = np.exp(-np.logaddexp(0.0, -numbers))
    return found


def together(windows: Sequence[npt.ArrayLike], tokens: Sequence[int], how: Together, act: Applied) -> Numbers:
    """Return one row of logits for the windows of a text.

    `mean` weighs each window by its tokens. `max` takes each label from the window that is surest of it; softmax sees
    differences only, so its logits are scaled to the same sum of probabilities before they are compared.
    """
    rows = np.asarray(windows, dtype=np.float64)
    if len(rows) == 1:
        first: Numbers = rows[0]
        return first
    if how == "mean":
        found: Numbers = np.average(rows, axis=0, weights=np.asarray(tokens, dtype=np.float64))
        return found
    most: Numbers = (log_softmax(rows) if act == "softmax" else rows).max(axis=0)
    return most
