"""Classifiers that know something, trained while the tests run, behind a real host: asked over HTTP and by a shell."""

import json
import subprocess
import sys

import classifiers
import pytest
from tinymodels import headed

pytestmark = pytest.mark.slow

GLAD = ["I really enjoyed the concert, it was fantastic.", "My new laptop is amazing and fast."]
SAD = ["The hotel was filthy and the manager shouted at us.", "The film was dull and I want my money back."]
NLI = ["contradiction", "neutral", "entailment"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifiers")
    classifiers.trained(folder / "sentiment", classifiers.SENTIMENT)
    headed(folder / "nli", "bert", "sequence", NLI)
    return folder


@pytest.fixture(scope="module")
def host(launch, models):
    manifests = {
        "sentiment": {"task": "sentiment-analysis", "model": str(models / "sentiment")},
        "exact": {"task": "classify", "model": str(models / "sentiment"), "quantization": "fp32"},
        "nli": {"task": "zero-shot-classification", "model": str(models / "nli"), "options": {"windows": "off"}},
        "broken": {"task": "classify", "model": str(models / "nli"), "options": {"moderation": {"x": "violins"}}},
        "unfit": {"task": "text-classification", "model": str(models / "sentiment"), "options": {"labels": ["a"]}},
    }
    return launch(manifests)


def ask(host, path="/v1/classify", **body):
    return host.client.post(path, json={"model": "sentiment", **body})


@pytest.mark.parametrize("path", ["/v1/classify", "/classify"])
def test_the_mood_of_texts_nobody_trained_on(host, path):
    answer = ask(host, path, texts=GLAD + SAD).json()
    assert [item["label"] for item in answer["data"]] == ["positive"] * 2 + ["negative"] * 2
    assert (answer["object"], answer["total_count"], answer["model"]) == ("list", 4, "sentiment")
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 40
    for at, item in enumerate(answer["data"]):
        assert (item["index"], item["windows"], item["truncated"]) == (at, 1, False)
        assert item["labels"][0] == {"label": item["label"], "score": item["score"]}
        assert sum(item["all_scores"].values()) == pytest.approx(1)
        assert item["score"] > 0.6


def test_scores_are_those_of_transformers(host, models):
    transformers = pytest.importorskip("transformers")
    pipe = transformers.pipeline("text-classification", model=str(models / "sentiment"), top_k=None, device="cpu")
    texts = [*GLAD, *SAD, "It is what it is.", "🌱 Grüße"]
    for item, wanted in zip(ask(host, model="exact", input=texts).json()["data"], pipe(texts), strict=True):
        assert [entry["label"] for entry in item["labels"]] == [entry["label"] for entry in wanted]
        for got, right in zip(item["labels"], wanted, strict=True):
            assert got["score"] == pytest.approx(right["score"], abs=1e-4)


def test_all_of_a_long_review_is_read(host):
    """The beginning is glad, the other nine tenths are not: who reads the beginning only is wrong."""
    long = " ".join([*GLAD * 12, *["The room was dirty, the food was awful and the staff were rude."] * 160])
    whole, beginning = ask(host, input=long).json(), ask(host, input=long, truncate=True).json()
    assert (whole["data"][0]["label"], whole["data"][0]["truncated"]) == ("negative", False)
    assert whole["data"][0]["windows"] > 4
    assert (beginning["data"][0]["label"], beginning["data"][0]["truncated"]) == ("positive", True)
    assert beginning["usage"]["prompt_tokens"] < 600 < 2000 < whole["usage"]["prompt_tokens"]


def test_a_pair_is_an_object_or_a_list_of_two(host):
    """An NLI model says of a pair what it was trained to say; over the wire to the worker and back."""
    pair = {"text": "river stone", "text_pair": "bread"}
    found = [
        ask(host, model="nli", input=given).json()["data"][0]
        for given in (pair, [pair], [["river stone", "bread"]], [["bread", "river stone"]])
    ]
    assert found[0] == found[1] == found[2] != found[3]
    assert list(found[0]["all_scores"]) == NLI
    assert sum(found[0]["all_scores"].values()) == pytest.approx(1)
    mixed = ask(host, model="sentiment", inputs=[GLAD[0], {"text": SAD[0], "text_pair": SAD[1]}]).json()["data"]
    assert [item["label"] for item in mixed] == ["positive", "negative"]


@pytest.mark.parametrize("name", ["texts", "input", "inputs"])
def test_one_text_and_its_best_label(host, name):
    item = ask(host, **{name: GLAD[0]}, top_k=1, threshold=0.9).json()["data"][0]
    assert [entry["label"] for entry in item["labels"]] == ["positive"]
    assert ask(host, **{name: GLAD[0]}, threshold=1).json()["data"][0]["labels"] == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"texts": []}, "texts"),
        ({"texts": ["a", ""]}, "texts[1]"),
        ({"texts": ["a"] * 2049}, "texts"),
        ({"texts": "a", "threshold": 1.5}, "threshold"),
        ({"texts": "a", "threshold": {"happy": 0.5}}, "threshold.happy"),
        ({"texts": "a", "top_k": 0}, "top_k"),
        ({"texts": "a", "function_to_apply": "tanh"}, "function_to_apply"),
        ({"texts": [{"text": "a", "pair": "b"}]}, "texts[0].pair"),
        ({"texts": [["a", "b", "c"]]}, "texts[0]"),
        ({"model": "nli", "texts": ["a", ["b", "c"]], "labels": "x"}, "texts[1]"),
        ({"texts": "a", "labels": ["x"]}, "labels"),
        ({"texts": "a", "max_length": 9999}, "max_length"),
        ({"model": "nli", "texts": "river"}, "labels"),
        ({"model": "nli", "texts": ["river", "stone " * 99], "labels": "bread"}, "texts[1]"),
    ],
)
def test_what_is_wrong_is_400_and_names_the_field(host, fields, param):
    answer = ask(host, **fields)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("fields", [{"texts": 7}, {"texts": "a", "threshold": "high"}, {"texts": "a", "top_k": "all"}])
def test_a_field_of_another_kind_is_400(host, fields):
    answer = ask(host, **fields)
    assert answer.status_code == 400, answer.text
    assert next(reversed(fields)) in answer.json()["error"]["message"]


def test_zero_shot_over_http(host):
    body = {"model": "nli", "input": ["river stone", "bread"], "labels": ["garden", "winter"], "multi_label": False}
    answer = ask(host, **body).json()
    for item in answer["data"]:
        assert sum(item["all_scores"].values()) == pytest.approx(1)
        assert {entry["label"] for entry in item["labels"]} == {"garden", "winter"}
    assert answer["usage"]["prompt_tokens"] > 20


def test_a_broken_table_is_refused_before_anything_is_loaded(host):
    problems = {one["file"]: one for one in host.client.get("/v1/functions").json()["problems"]}
    assert "`violins` is no category; did you mean" in problems["broken.yaml"]["message"]


def test_options_that_do_not_suit_the_model_are_told_when_it_is_loaded(host):
    answer = ask(host, model="unfit", input="a")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "load_failed"
    assert "options.labels is for models of natural language inference" in answer.json()["error"]["message"]


def test_a_command_line_reads_labels(models, tmp_path):
    manifest = tmp_path / "sentiment.yaml"
    manifest.write_text(json.dumps({"task": "classify", "model": str(models / "sentiment")}))
    command = [sys.executable, "-c", "from host.cli import main; main()", "run", str(manifest), GLAD[0]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["positive", "negative"]
