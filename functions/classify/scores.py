"""Converts logits to scores by softmax or sigmoid, and aggregates windows; the last axis is the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from functions.classify.options import Activation

FloatArray = npt.NDArray[np.float64]
ActivationFunction = Literal["softmax", "sigmoid", "none"]
Aggregation = Literal["mean", "max"]


def resolve_activation(option: Activation, problem_type: object, label_count: int) -> ActivationFunction:
    """Return the manifest's activation; for `auto` the one that Transformers' text-classification pipeline applies."""
    if option != "auto":
        return option
    if problem_type == "regression":
        return "none"
    return "sigmoid" if problem_type == "multi_label_classification" or label_count == 1 else "softmax"


def apply_activation(logits: npt.ArrayLike, activation: ActivationFunction) -> FloatArray:
    """Return the scores of logits (…, labels)."""
    values = np.asarray(logits, dtype=np.float64)
    if activation == "softmax":
        return np.exp(log_softmax(values))
    return values if activation == "none" else sigmoid(values)


def log_softmax(logits: npt.ArrayLike) -> FloatArray:
    """Return the logarithm of the softmax over the last axis."""
    values = np.asarray(logits, dtype=np.float64)
    values = values - values.max(axis=-1, keepdims=True)
    result: FloatArray = values - np.log(np.exp(values).sum(axis=-1, keepdims=True))
    return result


def sigmoid(values: FloatArray) -> FloatArray:
    """Return 1 / (1 + e^-x), computed so that it does not overflow for any x."""
    result: FloatArray = np.exp(-np.logaddexp(0.0, -values))
    return result


def aggregate_windows(
    windows: Sequence[npt.ArrayLike], tokens: Sequence[int], aggregation: Aggregation, activation: ActivationFunction
) -> FloatArray:
    """Return one row of logits for the windows (windows, labels) of a text.

    `mean` weights each window by its tokens. `max` takes the highest value of each label; softmax depends on
    differences only, so its logits are normalised in each window before they are compared.
    """
    rows = np.asarray(windows, dtype=np.float64)
    if len(rows) == 1:
        first: FloatArray = rows[0]
        return first
    if aggregation == "mean":
        mean: FloatArray = np.average(rows, axis=0, weights=np.asarray(tokens, dtype=np.float64))
        return mean
    highest: FloatArray = (log_softmax(rows) if activation == "softmax" else rows).max(axis=0)
    return highest
