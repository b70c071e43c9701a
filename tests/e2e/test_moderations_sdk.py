"""A moderator that knows insults from threats, trained while the tests run, asked by the unmodified OpenAI SDK."""

import classifiers
import openai
import pytest

from functions.classify.openai_categories import CATEGORIES

pytestmark = pytest.mark.slow

TABLE = {"insult": "harassment", "threat": {"category": ["harassment/threatening", "violence"], "threshold": 0.6}}
INSULT, THREAT, FINE = "You are such a dumb idiot.", "I will murder you.", "Could you water the plants?"


@pytest.fixture(scope="module")
def host(launch, tmp_path_factory):
    model = classifiers.trained(
        tmp_path_factory.mktemp("toxicity"), classifiers.TOXICITY, problem_type="multi_label_classification"
    )
    manifests = {
        "guard": {
            "task": "classify",
            "model": str(model),
            "aliases": ["omni-moderation-latest", "text-moderation-latest"],
            "options": {"moderation": TABLE},
        },
    }
    made = launch(manifests)
    made.model = str(model)
    return made


@pytest.fixture
def also(host):
    """Serves another manifest of the same model for one test."""
    added = []

    def also(name, **keys):
        host.write(name, task="classify", model=host.model, **keys)
        added.append(name)
        host.until(lambda: host.status(name) is not None)

    yield also
    for name in added:
        (host.folder / f"{name}.yaml").unlink()
    host.until(lambda: all(host.status(name) is None for name in added))


@pytest.fixture
def client(host):
    return openai.OpenAI(
        base_url=f"{host.url}/v1", api_key="none", max_retries=0, timeout=60, _strict_response_validation=True
    )


def flagged(result):
    return sorted(name for name, flag in result.categories.model_dump(by_alias=True).items() if flag)


def test_insults_and_threats_are_told_apart(client):
    found = client.moderations.create(model="guard", input=[INSULT, THREAT, FINE])
    assert found.id.startswith("modr-")
    assert found.model == "guard"
    assert [flagged(result) for result in found.results] == [
        ["harassment"],
        ["harassment/threatening", "violence"],
        [],
    ]
    assert [result.flagged for result in found.results] == [True, True, False]
    assert found.results[0].category_scores.harassment > 0.9 > 0.1 > found.results[2].category_scores.harassment


@pytest.mark.parametrize("model", [None, "omni-moderation-latest", "text-moderation-latest"])
def test_the_sdk_s_own_model_names_and_none(client, model):
    given = {} if model is None else {"model": model}
    found = client.moderations.create(input=THREAT, **given)
    assert found.model == (model or "guard")
    assert flagged(found.results[0]) == ["harassment/threatening", "violence"]


def test_no_model_may_be_null(host):
    answer = host.client.post("/v1/moderations", json={"model": None, "input": THREAT})
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == "guard"
    answer = host.client.post("/v1/classify", json={"model": None, "input": THREAT})
    assert answer.json()["data"][0]["label"] == "threat"


def test_every_category_is_there(client):
    result = client.moderations.create(model="guard", input=INSULT).results[0].model_dump(by_alias=True)
    for part in ("categories", "category_scores", "category_applied_input_types"):
        assert list(result[part]) == list(CATEGORIES)
    assert result["category_applied_input_types"]["violence"] == ["text"]
    assert result["category_applied_input_types"]["sexual"] == []
    assert result["category_scores"]["sexual"] == 0


def test_the_parts_of_one_input_get_one_verdict(client):
    parts = [{"type": "text", "text": FINE}, {"type": "text", "text": THREAT}]
    assert [result.flagged for result in client.moderations.create(model="guard", input=parts).results] == [True]


def test_one_page_of_threats_in_a_long_text_is_enough(client, also):
    """The worst window decides, where a mean over all of them would let it pass."""
    calm, threats = "We walked along the river and had tea in the garden. " * 120, f"{THREAT} " * 150
    also("lenient", options={"moderation": TABLE, "windows": "mean"})
    for model, flags in (("guard", [False, True]), ("lenient", [False, False])):
        found = client.moderations.create(model=model, input=[calm, calm + threats + calm])
        assert [result.flagged for result in found.results] == flags


@pytest.mark.parametrize(
    ("given", "param", "said"),
    [
        ([], "input", "empty list"),
        ("", "input", "empty text"),
        ([FINE, ""], "input[1]", "empty text"),
        ([{"type": "image_url", "image_url": {"url": "https://x/y.png"}}], "input[0]", "reads text only"),
    ],
)
def test_what_is_wrong_is_400(client, given, param, said):
    with pytest.raises(openai.BadRequestError, match=said) as caught:
        client.moderations.create(model="guard", input=given)
    assert caught.value.param == param


def test_a_model_without_a_table_says_what_to_add(client, also):
    also("plain")
    with pytest.raises(openai.BadRequestError, match=r"has no options\.moderation") as caught:
        client.moderations.create(model="plain", input=FINE)
    assert caught.value.param == "model"
    also("second", options={"moderation": TABLE})
    with pytest.raises(openai.BadRequestError, match="name the model to use; served for moderate: guard, second"):
        client.moderations.create(input=FINE)
    with pytest.raises(openai.NotFoundError):
        client.moderations.create(model="nobody", input=FINE)


def test_without_a_model_only_those_with_a_table_are_asked(client, also):
    also("plain")
    also("plain-too")
    assert flagged(client.moderations.create(input=INSULT).results[0]) == ["harassment"]
