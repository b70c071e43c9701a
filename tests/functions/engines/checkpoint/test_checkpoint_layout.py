"""What the files beside a model say about how vectors are made, and what the manifest may change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tinymodels import modules, write

from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence import layout
from functions.engines.checkpoint.sentence.layout import Layout
from host.errors import LoadFailed

MEAN = {"pooling_mode_mean_tokens": True}


def read(path: Path, files: dict[str, Any], **options: Any) -> Layout:
    write(path, {"config.json": {"model_type": "bert"}, **files})
    return layout.read(Folder(path), layout.LayoutOverrides(**options))


@pytest.mark.parametrize(
    ("config", "modes"),
    [
        (MEAN, ("mean",)),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("cls",)),
        ({"pooling_mode_max_tokens": True, "pooling_mode_cls_token": True}, ("cls", "max")),
        ({"pooling_mode_weightedmean_tokens": True}, ("weighted_mean",)),
        ({"pooling_mode_lasttoken": True}, ("last",)),
        ({"pooling_mode": "lasttoken"}, ("last",)),
        ({"pooling_mode": ["mean", "max"]}, ("mean", "max")),
    ],
)
def test_pooling(tmp_path: Path, config: dict[str, Any], modes: tuple[str, ...]) -> None:
    files = {"modules.json": modules("Transformer", "Pooling"), "1_Pooling/config.json": config}
    found = read(tmp_path, files)
    assert found.pooling == modes
    assert "(1_Pooling/config.json)" in found.notes[0]


def test_pooling_without_modules_is_found(tmp_path: Path) -> None:
    assert read(tmp_path, {"1_Pooling/config.json": {"pooling_mode_cls_token": True}}).pooling == ("cls",)


@pytest.mark.parametrize(("architecture", "mode"), [("BertModel", "mean"), ("Qwen3ForCausalLM", "last")])
def test_pooling_without_files(tmp_path: Path, architecture: str, mode: str) -> None:
    found = read(tmp_path, {"config.json": {"architectures": [architecture]}})
    assert found.pooling == (mode,)
    assert "no 1_Pooling" in found.notes[0]


def test_the_manifest_goes_before_the_files(tmp_path: Path) -> None:
    found = read(tmp_path, {"1_Pooling/config.json": MEAN}, pooling="cls", normalize=False)
    assert found.pooling == ("cls",)
    assert not found.normalizes
    assert all("the manifest's options" in note for note in found.notes)


@pytest.mark.parametrize(
    ("kinds", "option", "normalizes"),
    [
        (("Transformer", "Pooling", "Normalize"), "auto", True),
        (("Transformer", "Pooling"), "auto", False),
        ((), "auto", True),
        (("Transformer", "Pooling", "Normalize"), False, False),
        (("Transformer", "Pooling"), True, True),
    ],
)
def test_scaling(tmp_path: Path, kinds: tuple[str, ...], option: Any, normalizes: bool) -> None:
    files = {"modules.json": modules(*kinds)} if kinds else {}
    found = read(tmp_path, {**files, "1_Pooling/config.json": MEAN}, normalize=option)
    assert found.normalizes is normalizes


def test_steps_keep_their_order(tmp_path: Path) -> None:
    kinds = ("Transformer", "Pooling", "Dense", "Dropout", "Dense", "Normalize")
    found = read(tmp_path, {"modules.json": modules(*kinds), "1_Pooling/config.json": MEAN})
    assert found.steps == (("Dense", "2_Dense"), ("Dense", "4_Dense"), ("Normalize", "5_Normalize"))


def custom(**changes: Any) -> list[dict[str, Any]]:
    return [{**modules("Transformer")[0], **changes}, *modules("Transformer", "Pooling")[1:]]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"modules.json": modules("Transformer", "Pooling", "LSTM")}, "models.LSTM is not served"),
        ({"modules.json": custom(type="custom_st.Transformer")}, "custom_st.Transformer is not served"),
        ({"modules.json": modules("Pooling", "Transformer")}, "a Transformer and then a Pooling"),
        ({"modules.json": custom(path="../elsewhere")}, "outside of the model's folder"),
        ({"modules.json": custom(path="0_Transformer")}, "'0_Transformer', which is not there"),
        ({"modules.json": modules("Transformer", "Pooling"), "1_Pooling/config.json": {"x": 1}}, "names no pooling"),
        ({"modules.json": modules("Transformer", "Pooling")}, "1_Pooling/config.json is missing"),
        ({"modules.json": modules("Router", "Normalize")}, "Router is served as embeddings .* and not here"),
        ({"1_Pooling/config.json": {"pooling_mode": "median"}}, "'median' is not known"),
        ({"config_sentence_transformers.json": {"default_prompt_name": "q"}}, "'q' is not among its prompts"),
        ({"sentence_bert_config.json": [1]}, "should hold a JSON object"),
        ({"modules.json": {"a": 1}}, "should hold a list of objects"),
        ({"modules.json": ["Transformer"]}, "should hold a list of objects"),
        (
            {"modules.json": modules("Transformer", "Pooling", "MultiVectorMask", "Pooling")},
            "Pooling in a ColBERT model",
        ),
        ({"modules.json": modules("Transformer", "SpladePooling", "Dense")}, "Dense after SpladePooling"),
        ({"modules.json": modules("Transformer", "Pooling", "Transformer")}, "Transformer is not served in this place"),
        (
            {"sentence_bert_config.json": {"modality_config": {"message": {}, "text": {}}}},
            r"chat messages \(modality `message`\) are not served",
        ),
        ({"sentence_bert_config.json": {"modality_config": {"audio": {}}}}, "takes audio and no text"),
    ],
)
def test_what_is_wrong_is_reported(tmp_path: Path, files: dict[str, Any], said: str) -> None:
    with pytest.raises(LoadFailed, match=said):
        read(tmp_path, files)


@pytest.mark.parametrize(
    "files",
    [
        {"modules.json": modules("StaticEmbedding", "Normalize")},
        {"modules.json": modules("SparseStaticEmbedding")},
        {"modules.json": modules("Transformer", "SpladePooling")},
        {"config.json": {"architectures": ["HF_ColBERT"]}},
        {"config.json": {"model_type": "clip"}},
    ],
)
def test_pooling_has_no_meaning_for_what_is_not_pooled(tmp_path: Path, files: dict[str, Any]) -> None:
    assert read(tmp_path, files).pooling == ()
    with pytest.raises(LoadFailed, match=r"options\.pooling: cls has no meaning for this model"):
        read(tmp_path, files, pooling="cls")


def test_prompts_of_manifest_and_files_together(tmp_path: Path) -> None:
    settings = {"prompts": {"query": "q: ", "document": ""}, "default_prompt_name": "document"}
    files = {"config_sentence_transformers.json": settings}
    found = read(tmp_path, files, prompts={"query": "Q: ", "title": "t: "})
    assert found.prompts == {"query": "Q: ", "title": "t: "}
    assert found.default_prompt is None


@pytest.mark.parametrize(
    ("files", "option", "sizes"),
    [
        ({}, "auto", False),
        ({}, True, True),
        ({}, [64], (64,)),
        ({"config_sentence_transformers.json": {"matryoshka_dimensions": [64, 128]}}, "auto", (64, 128)),
        ({"config_sentence_transformers.json": {"matryoshka_dimensions": [64, 128]}}, False, False),
        ({"config.json": {"matryoshka_dimensions": [32]}}, "auto", (32,)),
        ({"config.json": {"is_matryoshka": True}}, "auto", True),
        ({"config_sentence_transformers.json": {"truncate_dim": 256}}, "auto", True),
    ],
)
def test_sizes(tmp_path: Path, files: dict[str, Any], option: Any, sizes: Any) -> None:
    assert read(tmp_path, files, matryoshka=option).sizes == sizes
