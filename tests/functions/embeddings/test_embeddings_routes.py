"""The endpoint over HTTP with OpenAI's own client, against the real MiniLM and the real error rendering."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import numpy as np
import openai
import pytest
from litestar import Litestar
from litestar.di import Provide

from functions.embeddings.api import Vectors
from functions.embeddings.response import render
from functions.embeddings.routes import create_embeddings
from functions.embeddings.transformers import TransformersEmbeddings
from host.errors import ModelNotFound
from host.function import Operation, Usage
from host.http.errors import exception_handlers

pytestmark = pytest.mark.anyio


class OneModel:
    """A host that serves one instance; requests and answers cross msgpack as they do to a worker."""

    def __init__(self, instance: TransformersEmbeddings) -> None:
        self.instance = instance

    async def call(self, model: str, operation: Operation[Any, Any], request: Any) -> Any:
        operation.check(request)
        if model not in ("", "minilm", "text-embedding-3-small"):
            raise ModelNotFound(f"The model `{model}` does not exist; served: minilm")
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=operation.request)
        found = await self.instance.answer(sent)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=operation.answer)


@pytest.fixture(scope="module")
def app(instance: TransformersEmbeddings) -> Litestar:
    host = OneModel(instance)
    return Litestar(
        [create_embeddings],
        dependencies={"host": Provide(lambda: host, sync_to_thread=False)},
        exception_handlers=exception_handlers,
    )


@pytest.fixture
async def http(app: Litestar) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as client:
        yield client


@pytest.fixture
def client(app: Litestar) -> openai.AsyncOpenAI:
    try:
        return openai.AsyncOpenAI(
            api_key="x",
            base_url="http://host/v1",
            max_retries=0,
            http_client=httpx.AsyncClient(transport=httpx.ASGITransport(app)),
        )
    except TypeError:  # newer SDKs are on httpx2
        httpx2 = pytest.importorskip("httpx2")
        transport = httpx2.ASGITransport(app)
        made = httpx2.AsyncClient(transport=transport)
        return openai.AsyncOpenAI(api_key="x", base_url="http://host/v1", max_retries=0, http_client=made)


async def test_the_sdk_asks_for_base64_and_gets_floats(client: openai.AsyncOpenAI) -> None:
    default = await client.embeddings.create(model="minilm", input=["one", "two words", "three"])
    floats = await client.embeddings.create(
        model="minilm", input=["one", "two words", "three"], encoding_format="float"
    )
    assert [item.index for item in default.data] == [0, 1, 2]
    assert np.allclose([item.embedding for item in default.data], [item.embedding for item in floats.data], atol=1e-7)
    assert all(len(item.embedding) == 384 and isinstance(item.embedding[0], float) for item in floats.data)
    assert floats.usage.prompt_tokens == floats.usage.total_tokens == 3 + 4 + 3
    assert floats.object == "list"


async def test_an_alias_is_echoed(client: openai.AsyncOpenAI) -> None:
    assert (await client.embeddings.create(model="text-embedding-3-small", input="a")).model == "text-embedding-3-small"


@pytest.mark.parametrize("given", ["light", ["light"], [2422], [[2422]], [101, 2422, 102]])
async def test_every_form_of_input(client: openai.AsyncOpenAI, given: Any) -> None:
    expected = (await client.embeddings.create(model="minilm", input="light")).data[0].embedding
    found = (await client.embeddings.create(model="minilm", input=given)).data
    assert len(found) == 1
    assert np.allclose(found[0].embedding, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"input": []}, "invalid_request", "input"),
        ({"input": ["a", ""]}, "invalid_request", "input[1]"),
        ({"input": ["a", 3]}, "invalid_request", "input[1]"),
        ({"input": [40000]}, "invalid_request", "input[0]"),
        ({"input": "a", "dimensions": 64}, "invalid_request", "dimensions"),
        ({"input": "a", "dimensions": 0}, "invalid_request", "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "invalid_request", "encoding_format"),
        ({"input": ["a", "b " * 400]}, "input_too_long", "input[1]"),
        ({"input": 7}, "invalid_request", None),
        ({"input": "a", "dimensions": "many"}, "invalid_request", None),
    ],
)
async def test_what_is_wrong_is_400(
    client: openai.AsyncOpenAI, fields: dict[str, Any], code: str, param: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.embeddings.create(model="minilm", **fields)
    assert caught.value.code == code
    assert caught.value.type == "invalid_request_error"
    if param is not None:
        assert caught.value.param == param


async def test_an_unknown_model_is_404(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.embeddings.create(model="nope", input="a")
    assert caught.value.code == "model_not_found"


async def test_extensions_pass_the_sdk(client: openai.AsyncOpenAI) -> None:
    found = await client.embeddings.create(model="minilm", input="b " * 400, extra_body={"truncate": True})
    assert found.usage.prompt_tokens == 256


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embeddings"])
async def test_base64_is_little_endian_float32(http: httpx.AsyncClient, path: str) -> None:
    body = {"model": "minilm", "input": ["a", "b"], "user": None, "unknown": 1}
    floats = (await http.post(path, json=body)).json()["data"]
    coded = (await http.post(path, json={**body, "encoding_format": "base64"})).json()["data"]
    for plain, packed in zip(floats, coded, strict=True):
        assert plain["object"] == packed["object"] == "embedding"
        assert np.frombuffer(base64.b64decode(packed["embedding"]), "<f4").tolist() == plain["embedding"]


async def test_half_a_surrogate_is_400(http: httpx.AsyncClient) -> None:
    body = b'{"model": "minilm", "input": ["fine", "\\ud800"]}'
    answer = await http.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400


def test_the_openapi_schema_has_every_field(app: Litestar) -> None:
    schemas = app.openapi_schema.to_schema()["components"]["schemas"]
    fields = next(schema["properties"] for name, schema in schemas.items() if "EmbeddingsRequest" in name)
    assert {"input", "model", "encoding_format", "dimensions", "truncate", "prompt_name", "input_type"} <= set(fields)


async def test_a_missing_field_is_named(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/embeddings", json={"model": "minilm"})
    assert answer.status_code == 400
    assert "input" in answer.json()["error"]["message"]


@pytest.mark.parametrize("named", [{}, {"model": None}, {"model": ""}])
async def test_without_a_name_the_answer_says_the_models(
    http: httpx.AsyncClient, instance: TransformersEmbeddings, named: dict[str, Any]
) -> None:
    answer = await http.post("/v1/embeddings", json={"input": "a", **named})
    assert answer.status_code == 200
    assert answer.json()["model"] == instance._name != ""


async def test_other_dialects_names_reach_the_model(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/embeddings", json={"model": "minilm", "input": "b " * 400, "truncation": True})
    assert answer.json()["usage"]["prompt_tokens"] == 256
    answer = await http.post("/v1/embeddings", json={"model": "minilm", "input": "a", "output_dimension": 64})
    assert answer.status_code == 400
    assert "dimensions" in answer.json()["error"]["message"]
    answer = await http.post("/v1/embeddings", json={"model": "minilm", "input": "a", "output_dtype": "int8"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_parameter")


@pytest.mark.parametrize("coded", [False, True])
async def test_rendering_a_full_request_is_quick(coded: bool) -> None:
    data = np.random.default_rng(0).standard_normal((2048, 384), dtype=np.float32)
    vectors = Vectors(data=data.tobytes(), dimension=384, usage=Usage(prompt_tokens=5))
    start = time.process_time()
    body = await render(vectors, model='a "name"', base64=coded)
    assert time.process_time() - start < 1.0
    found = msgspec.json.decode(body)
    assert found["model"] == 'a "name"'
    assert found["usage"] == {"prompt_tokens": 5, "total_tokens": 5}
    last = found["data"][-1]
    assert last["index"] == 2047
    numbers = np.frombuffer(base64.b64decode(last["embedding"]), "<f4") if coded else np.float32(last["embedding"])
    assert np.array_equal(numbers, data[-1])
