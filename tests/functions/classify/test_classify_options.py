"""What a manifest may say to classify: refused with its line and the nearest right word where it is wrong."""

from __future__ import annotations

from pathlib import Path

import loads
import msgspec
import pytest

from functions.classify.openai_categories import CATEGORIES, nearest
from functions.classify.options import ClassifyOptions
from host.errors import ManifestError
from host.manifest import load as load_manifest
from host.manifest import options as options_
from host.runtime import Runtime
from host.settings import read as read_settings


def read(tmp_path: Path, text: str, engine: str = "transformers") -> ClassifyOptions:
    """Return the options of a manifest as the host checks them, without any model."""
    file = tmp_path / "m.yaml"
    indented = "".join(f"  {line}\n" for line in text.splitlines())
    file.write_text(f"task: classify\nmodel: ./x\noptions:\n{indented}")
    _, document = load_manifest(file)
    function = loads.registry().function("classify")
    _, own = options_.read(document, loads.registry().engines[engine].options, function.options)
    assert isinstance(own, ClassifyOptions)
    return own


@pytest.mark.parametrize("engine", ["transformers", "onnx", "llama"])
def test_every_option_can_be_set(tmp_path: Path, engine: str) -> None:
    text = """activation: sigmoid
threshold: {toxic: 0.7, threat: 1}
top_k: 3
windows: max
overlap: 0.5
labels: [toxic, threat, gore]
hypothesis_template: "This text is {}."
multi_label: true
moderation:
  toxic: harassment
  threat: [harassment/threatening, violence]
  gore: {category: violence/graphic, threshold: 0.3}
"""
    found = read(tmp_path, text, engine)
    assert found.threshold == {"toxic": 0.7, "threat": 1.0}
    assert found.moderation["gore"].category == "violence/graphic"
    assert (found.labels, found.windows, found.overlap) == (["toxic", "threat", "gore"], "max", 0.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("moderation: {toxic: harasment}", "`harasment` is no category; did you mean `harassment`?"),
        ("moderation: {toxic: [hate, self_harm]}", "`self_harm` is no category; did you mean `self-harm`?"),
        ("moderation: {toxic: {category: Violence}}", "`Violence` is no category; did you mean `violence`?"),
        ("moderation: {toxic: zzz}", "`zzz` is no category; known are: harassment, harassment/threatening, hate"),
        ("moderation: {toxic: []}", "`toxic` names no category"),
        ("moderation: {toxic: {category: hate, threshold: 2}}", "expected `float` <= 1.0"),
        ("moderation: {toxic: {category: hate, treshold: 0.2}}", "did you mean `threshold`?"),
        ("labels: [toxic, rude]\nmoderation: {toxik: hate}", "no label `toxik`; did you mean `toxic`?"),
        ("labels: [toxic, rude]\nthreshold: {Rude: 0.4}", "no label `Rude`; did you mean `rude`?"),
        ("labels: [toxic, toxic]", "a label is listed twice"),
        ("labels: []", "`labels` is empty"),
        ("hypothesis_template: This text is good.", "must have {} in it"),
        ("threshold: 1.5", "from 0 to 1"),
        ("top_k: 0", "at least 1"),
        ("overlap: 0.95", "from 0 to 0.9"),
        ("windows: maximum", "expected"),
        ("activation: sigmod", "did you mean `sigmoid`?"),
        ("treshold: 0.4", "did you mean `threshold`?"),
    ],
)
def test_what_is_wrong_names_the_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read(tmp_path, text)
    assert said in caught.value.message
    assert caught.value.line is not None
    assert (caught.value.key or "").startswith("options")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("{windows: max}", None),
        ("{optimization: basic}", None),  # of one engine alone, which may be the one that the files ask for
        ("{batch: 64, windows: max}", None),
        ("{windos: max}", "did you mean `windows`?"),
        ("{moderation: {toxic: violins}}", "did you mean `violence`?"),
        ("{optimization: basic, batch: 64}", "unknown key"),
    ],
)
async def test_options_have_to_suit_one_of_the_engines(tmp_path: Path, said: str, refused: str | None) -> None:
    (tmp_path / "m.yaml").write_text(f"task: classify\nmodel: ./somewhere\noptions: {said}\n")
    runtime = Runtime(msgspec.structs.replace(read_settings(None), manifests=tmp_path), loads.registry())
    runtime.catalog.refresh()
    problems = [problem.message for problem in runtime.catalog.problems.values()]
    assert len(problems) == (refused is not None)
    assert refused is None or refused in problems[0]


def test_the_categories_are_those_of_the_sdk() -> None:
    moderation = pytest.importorskip("openai.types.moderation")
    fields = moderation.Categories.model_fields
    assert [field.alias or name for name, field in fields.items()] == list(CATEGORIES)


@pytest.mark.parametrize(
    ("word", "known", "said"),
    [
        ("Toxic", ["toxic", "rude"], "did you mean `toxic`?"),
        ("zzz", ["toxic", "rude"], "known are: toxic, rude"),
        ("zzz", [], "known are: none"),
        ("zzz", [f"label {at}" for at in range(30)], "label 19, …"),
    ],
)
def test_the_nearest_word(word: str, known: list[str], said: str) -> None:
    assert said in nearest(word, known)
