"""Classifiers made of decoders whose files name no token to pad with: a batch says what each input alone would."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import loads
import numpy as np
import pytest
import tinymodels
import torch
import transformers

from functions.engines.batching.item import Item
from functions.engines.transformers.classifier import TransformersClassifierModel

INPUTS = [[4, 5, 6, 7, 8, 9, 10], [4], [5, 0], [6, 1, 0], [7, 7, 2], [9, 9, 9, 3]]
"""They end with the smallest ids there are, which would be the first ones to be taken for padding."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tinymodels.headed(tmp_path_factory.mktemp("unpadded"), "qwen3", "sequence", ("a", "b", "c"))
    config = json.loads((path / "config.json").read_text())
    config["pad_token_id"] = None
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_a_batch_is_classified_as_its_inputs_alone(folder: Path) -> None:
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert model.config.pad_token_id is None
    with torch.no_grad():
        expected = np.concatenate([model(input_ids=torch.tensor([ids])).logits.numpy() for ids in INPUTS])
    load = loads.given("classify", folder)
    ours = TransformersClassifierModel.load(load, TransformersClassifierModel.plan(load), loads.ignore, "sequence")
    try:
        found = asyncio.run(ours.logits([Item(ids=np.array(ids, dtype=np.int32)) for ids in INPUTS]))
    finally:
        ours.close()
    assert np.abs(np.stack(found) - expected).max() < 1e-4
