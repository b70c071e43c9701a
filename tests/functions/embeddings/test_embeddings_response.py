"""The body of a response as clients read it, whatever vectors there are."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest

from functions.embeddings.api import SparseVectors, TokenVectors, Vectors
from functions.embeddings.response import render
from host.function import Usage

pytestmark = pytest.mark.anyio

DENSE = np.array([[0.5, -1.25], [3.0, 1e-8]], dtype="<f4")
USAGE = Usage(prompt_tokens=7)
SPARSE = SparseVectors(
    counts=[2, 0], indices=np.array([3, 9], dtype="<i4").tobytes(), values=np.array([0.5, 2.0], dtype="<f4").tobytes()
)
TOKENS = TokenVectors(counts=[2, 1], data=np.arange(9, dtype="<f4").tobytes(), dimension=3)


def test_rows_are_the_dense_vectors_as_numbers() -> None:
    vectors = Vectors(data=DENSE.tobytes(), dimension=2, usage=USAGE)
    assert vectors.rows() == DENSE.tolist()
    assert Vectors(usage=USAGE, sparse=SPARSE).rows() == []


async def data(vectors: Vectors, **how: Any) -> list[Any]:
    body = json.loads(await render(vectors, model='a "name"', **{"base64": False, **how}))
    assert (body["object"], body["model"]) == ("list", 'a "name"')
    assert body["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert [item["index"] for item in body["data"]] == list(range(len(body["data"])))
    assert {item["object"] for item in body["data"]} == {"embedding"}
    return [item["embedding"] for item in body["data"]]


async def test_dense_vectors_as_numbers_and_as_base64() -> None:
    vectors = Vectors(data=DENSE.tobytes(), dimension=2, usage=USAGE)
    assert np.array_equal(np.array(await data(vectors), dtype="<f4"), DENSE)
    texts = await data(vectors, base64=True)
    assert b"".join(map(base64.b64decode, texts)) == DENSE.tobytes()


@pytest.mark.parametrize("as_base64", [False, True])
async def test_sparse_vectors_are_numbers_always(as_base64: bool) -> None:
    found = await data(Vectors(usage=USAGE, sparse=SPARSE), base64=as_base64)
    assert found == [{"indices": [3, 9], "values": [0.5, 2.0]}, {"indices": [], "values": []}]


async def test_vectors_of_tokens_are_lists_of_lists() -> None:
    assert await data(Vectors(usage=USAGE, colbert=TOKENS)) == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8]]]


async def test_several_kinds_have_a_key_each() -> None:
    every = Vectors(data=DENSE.tobytes(), dimension=2, usage=USAGE, sparse=SPARSE, colbert=TOKENS)
    first, second = await data(every, as_object=True, base64=True)
    assert set(first) == set(second) == {"dense", "sparse", "colbert"}
    assert base64.b64decode(second["dense"]) == DENSE[1].tobytes()
    assert (second["sparse"], second["colbert"]) == ({"indices": [], "values": []}, [[6, 7, 8]])
    assert await data(Vectors(usage=USAGE, sparse=SPARSE), as_object=True) == [
        {"sparse": {"indices": [3, 9], "values": [0.5, 2.0]}},
        {"sparse": {"indices": [], "values": []}},
    ]


async def test_others_have_their_turn_while_much_is_written() -> None:
    vectors = Vectors(
        usage=USAGE, colbert=TokenVectors(counts=[400] * 40, data=bytes(400 * 40 * 128 * 4), dimension=128)
    )
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    await data(vectors)
    other.cancel()
    assert turns > 30
