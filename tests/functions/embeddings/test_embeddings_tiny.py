"""Tiny random models in other architectures and poolings, against Transformers run directly, text by text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from tinymodels import given, modules, tiny, words_tokenizer, write

from functions.embeddings.api import EmbeddingsRequest
from functions.embeddings.transformers import TransformersEmbeddings
from host.errors import InputTooLong, InvalidRequest, LoadFailed, ManifestError, UnsupportedParameter

TEXTS = ["river stone", "light", "number window garden paper winter music train bread letter", "stone river light"]

POOLINGS = {
    "cls": ("pooling_mode_cls_token", lambda h: h[0]),
    "max": ("pooling_mode_max_tokens", lambda h: h.max(0).values),
    "mean": ("pooling_mode_mean_tokens", lambda h: h.mean(0)),
    "sqrt": ("pooling_mode_mean_sqrt_len_tokens", lambda h: h.sum(0) / len(h) ** 0.5),
    "weighted": (
        "pooling_mode_weightedmean_tokens",
        lambda h: sum((n + 1) * row for n, row in enumerate(h)) / sum(range(1, len(h) + 1)),
    ),
    "last": ("pooling_mode_lasttoken", lambda h: h[-1]),
}


def hidden(folder: Path, text: str) -> torch.Tensor:
    auto = transformers.AutoModelForTextEncoding if "t5" in folder.name else transformers.AutoModel
    model = auto.from_pretrained(folder, dtype=torch.float32).eval()
    ids = words_tokenizer().encode(text).ids
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).last_hidden_state[0]


async def vectors(instance: TransformersEmbeddings, given: Any, **fields: Any) -> np.ndarray:
    found = await instance.answer(EmbeddingsRequest(model="m", input=given, **fields))
    return np.frombuffer(found.data, "<f4").reshape(-1, found.dimension)


def close(found: np.ndarray, expected: list[torch.Tensor]) -> bool:
    return bool(np.allclose(found, torch.stack(expected).numpy(), atol=2e-5))


@pytest.mark.anyio
@pytest.mark.parametrize("mode", POOLINGS)
async def test_pooling_of_the_files(opener: Any, tmp_path: Path, mode: str) -> None:
    flag, pool = POOLINGS[mode]
    tiny(tmp_path, files={"modules.json": modules("Transformer", "Pooling"), "1_Pooling/config.json": {flag: True}})
    made = opener(tmp_path)
    found = await vectors(made, TEXTS)
    assert close(found, [pool(hidden(tmp_path, text)) for text in TEXTS])
    assert not np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-3)
    assert made.info().detail["normalized"] is False
    for name in ("normalized", "normalize"):
        with pytest.raises(UnsupportedParameter, match="not scaled to length 1") as caught:
            await made.answer(EmbeddingsRequest(input="a", **{name: True}))
        assert caught.value.param == name


@pytest.mark.anyio
async def test_two_poolings_are_put_behind_one_another(opener: Any, tmp_path: Path) -> None:
    flags = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}
    tiny(tmp_path, files={"modules.json": modules("Transformer", "Pooling"), "1_Pooling/config.json": flags})
    states = [hidden(tmp_path, text) for text in TEXTS]
    assert close(await vectors(opener(tmp_path), TEXTS), [torch.cat([h[0], h.mean(0)]) for h in states])


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "distilbert", "modernbert", "t5"])
async def test_without_files_it_is_the_mean_scaled(opener: Any, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / kind
    folder.mkdir()
    made = opener(tiny(folder, kind), context=60)
    expected = [torch.nn.functional.normalize(hidden(folder, text).mean(0), dim=0) for text in TEXTS]
    assert close(await vectors(made, TEXTS), expected)
    notes = made._routes[""].model.layout.notes
    assert any("no 1_Pooling; mean" in note for note in notes)
    assert any("no modules.json" in note for note in notes)


@pytest.mark.anyio
async def test_a_causal_model_takes_its_last_token(opener: Any, tmp_path: Path) -> None:
    made = opener(tiny(tmp_path, "qwen3"))
    expected = [torch.nn.functional.normalize(hidden(tmp_path, text)[-1], dim=0) for text in TEXTS]
    assert close(await vectors(made, TEXTS), expected)
    assert made.info().detail["pooling"] == ["last"]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["roberta", "mpnet"])
async def test_514_positions_serve_512_tokens(opener: Any, tmp_path: Path, kind: str) -> None:
    made = opener(tiny(tmp_path, kind, {"tokenizer_config.json": {}}))
    assert made.info().context == 512
    assert np.isfinite(await vectors(made, "river " * 510)).all()
    with pytest.raises(InputTooLong, match="513 tokens, the model takes 512"):
        await vectors(made, "river " * 511)


@pytest.mark.anyio
@pytest.mark.parametrize(("activation", "act"), [("Tanh", torch.tanh), ("Identity", lambda x: x)])
async def test_dense_layers(opener: Any, tmp_path: Path, activation: str, act: Any) -> None:
    weight, bias = torch.randn(8, 32), torch.randn(8)
    kinds = ("Transformer", "Pooling", "Dense", "Normalize")
    dense = {"in_features": 32, "out_features": 8, "activation_function": f"torch.nn.modules.x.{activation}"}
    files = {"modules.json": modules(*kinds), "1_Pooling/config.json": {"pooling_mode": "mean"}}
    tiny(tmp_path, files=files | {"2_Dense/config.json": dense})
    (tmp_path / "3_Normalize").mkdir()
    safetensors.torch.save_file({"linear.weight": weight, "linear.bias": bias}, tmp_path / "2_Dense/model.safetensors")
    made = opener(tmp_path)
    assert made.info().detail["dimension"] == 8
    raw = [act(hidden(tmp_path, text).mean(0) @ weight.T + bias) for text in TEXTS]
    assert close(await vectors(made, TEXTS), [torch.nn.functional.normalize(row, dim=0) for row in raw])


@pytest.mark.anyio
async def test_prompts_of_the_files(opener: Any, tmp_path: Path) -> None:
    settings = {"prompts": {"query": "river ", "passage": "stone "}, "default_prompt_name": "passage"}
    made = opener(tiny(tmp_path, files={"config_sentence_transformers.json": settings}))
    for fields, before in (({}, "stone "), ({"input_type": "query"}, "river "), ({"prompt_name": "query"}, "river ")):
        expected = torch.nn.functional.normalize(hidden(tmp_path, f"{before}light").mean(0), dim=0)
        assert close(await vectors(made, "light", **fields), [expected])


@pytest.mark.anyio
async def test_a_prompt_may_not_count(opener: Any, tmp_path: Path) -> None:
    files = {
        "modules.json": modules("Transformer", "Pooling"),
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True, "include_prompt": False},
        "config_sentence_transformers.json": {"prompts": {"query": "river stone "}},
    }
    made = opener(tiny(tmp_path, files=files))
    texts = ["light", "number window garden"]
    states = [hidden(tmp_path, f"river stone {text}") for text in texts]
    assert close(await vectors(made, texts, input_type="query"), [state[3:].mean(0) for state in states])


@pytest.mark.anyio
async def test_matryoshka_sizes_of_the_files(opener: Any, tmp_path: Path) -> None:
    made = opener(tiny(tmp_path, files={"config_sentence_transformers.json": {"matryoshka_dimensions": [8, 16]}}))
    whole = await vectors(made, TEXTS)
    cut = await vectors(made, TEXTS, dimensions=16)
    assert np.allclose(cut, whole[:, :16] / np.linalg.norm(whole[:, :16], axis=1, keepdims=True), atol=1e-5)
    assert made.info().detail["dimensions"] == [8, 16]


@pytest.mark.anyio
async def test_truncate_dim_of_the_files_is_the_default(opener: Any, tmp_path: Path) -> None:
    made = opener(tiny(tmp_path, files={"config_sentence_transformers.json": {"truncate_dim": 12}}))
    assert (await vectors(made, TEXTS)).shape == (4, 12)
    assert (await vectors(made, TEXTS, dimensions=32)).shape == (4, 32)


@pytest.mark.anyio
async def test_the_model_may_lie_in_a_folder_of_its_own(opener: Any, tmp_path: Path) -> None:
    listed = modules("Transformer", "Pooling")
    listed[0]["path"] = "0_Transformer"
    write(tmp_path, {"modules.json": listed, "1_Pooling/config.json": {"pooling_mode": "mean"}})
    (tmp_path / "0_Transformer").mkdir()
    tiny(tmp_path / "0_Transformer")
    expected = [hidden(tmp_path / "0_Transformer", text).mean(0) for text in TEXTS]
    assert close(await vectors(opener(tmp_path), TEXTS), expected)


@pytest.mark.anyio
async def test_shards(opener: Any, tmp_path: Path) -> None:
    tiny(tmp_path)
    before = await vectors(opener(tmp_path), TEXTS)
    model = transformers.AutoModel.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert not (tmp_path / "model.safetensors").exists()
    assert np.allclose(await vectors(opener(tmp_path), TEXTS), before, atol=1e-6)


def rewrite(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def shortened(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


def poorer(folder: Path) -> None:
    file = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    del tensors["encoder.layer.1.output.dense.weight"]
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer cannot be read"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json cannot be read"),
        (pickled, "pytorch_model.bin is a pickle"),
        (shortened, "shorter than its header says"),
        (poorer, r"lack weights that BertModel needs: encoder\.layer\.1\.output\.dense\.weight"),
        (lambda folder: rewrite(folder, hidden_size=48), "have another shape|cannot be loaded"),
        (lambda folder: rewrite(folder, model_type="nonesuch"), "cannot read model type 'nonesuch'"),
        (
            lambda folder: rewrite(folder, model_type="nonesuch", auto_map={"AutoConfig": "x.Y"}),
            "own Python code, which is not run",
        ),
    ],
)
def test_what_is_wrong_with_a_folder_is_told(opener: Any, tmp_path: Path, harm: Any, said: str) -> None:
    harm(tiny(tmp_path))
    with pytest.raises(LoadFailed, match=said) as caught:
        opener(tmp_path)
    assert str(tmp_path) not in caught.value.message


def test_a_missing_pooler_is_no_matter(opener: Any, tmp_path: Path) -> None:
    file = tiny(tmp_path) / "model.safetensors"
    tensors = {key: value for key, value in safetensors.torch.load_file(file).items() if "pooler" not in key}
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    assert opener(tmp_path).info().detail["architecture"] == "BertModel"


@pytest.mark.parametrize(("quantization", "said"), [("int4", "serves int4 nowhere"), ("q4_k_m", "expected bf16")])
def test_quantization_that_is_not_served(tmp_path: Path, quantization: str, said: str) -> None:
    with pytest.raises(ManifestError, match=said) as caught:
        TransformersEmbeddings.plan(given(tiny(tmp_path), quantization=quantization))
    assert caught.value.key == "quantization"


@pytest.mark.anyio
async def test_ids_that_only_the_tokenizer_knows_are_refused(opener: Any, tmp_path: Path) -> None:
    """The model has embeddings for 40 tokens; one more would be looked for behind their end."""
    words = words_tokenizer()
    words.add_tokens([f"word{at}" for at in range(30)])
    tiny(tmp_path)
    words.save(str(tmp_path / "tokenizer.json"))
    made = opener(tmp_path)
    assert np.isfinite(await vectors(made, [[39]])).all()
    with pytest.raises(InvalidRequest, match="has the token id 40, but the model's vocabulary ends at 39"):
        await vectors(made, [[40]])
    assert np.isfinite(await vectors(made, ["river word23 stone"])).all()
    for texts, at in ([["river", "word24", "a word29"], 1], [["word24"], 0]):
        with pytest.raises(InvalidRequest, match=rf"input\[{at}\]: the text 'word24' has the token 'word24'") as caught:
            await vectors(made, texts)
        assert caught.value.param == f"input[{at}]"


@pytest.mark.anyio
async def test_numbers_that_are_not_finite_are_an_error_and_no_answer(opener: Any, tmp_path: Path) -> None:
    made = opener(tiny(tmp_path))
    with torch.no_grad():
        made._routes[""].model._encoder.model.embeddings.word_embeddings.weight[4] = float("nan")
    with pytest.raises(Exception, match="not finite"):
        await vectors(made, "river")
    assert np.isfinite(await vectors(made, "stone")).all()
