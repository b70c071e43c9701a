"""What labels of every scheme say, and that no prefix is left in a type."""

from __future__ import annotations

import pytest

from functions.ner.tags import TagScheme
from host.errors import LoadFailed, ManifestError


@pytest.mark.parametrize(
    ("labels", "scheme", "types"),
    [
        (["O", "B-PER", "I-PER", "B-LOC", "I-LOC"], "BIO", ["PER", "LOC"]),
        (["B-PER", "I-PER", "O"], "BIO", ["PER"]),
        (["O", "I-PER", "I-LOC"], "IO", ["PER", "LOC"]),
        (["O", "B-MISC", "I-MISC", "I-PER", "I-ORG"], "BIO", ["MISC", "PER", "ORG"]),
        (["O", "B-A", "I-A", "E-A", "S-A"], "BIOES", ["A"]),
        (["O", "B-A", "I-A", "L-A", "U-A"], "BILOU", ["A"]),
        (["O", "PER", "LOC"], "plain", ["PER", "LOC"]),
        (["O", "B-CREDIT-CARD", "I-CREDIT-CARD"], "BIO", ["CREDIT-CARD"]),
        (["O", "GIVEN-NAME", "E-MAIL", "S-NUMBER"], "plain", ["GIVEN-NAME", "E-MAIL", "S-NUMBER"]),
        (["O", "B-CELL", "T-CELL"], "plain", ["B-CELL", "T-CELL"]),
        (["O", "B-PER", "I-PER", "E-MAIL"], "BIO", ["PER", "E-MAIL"]),
        (["O", "B-PER", "I-PER", "DATE"], "BIO", ["PER", "DATE"]),
        (["O", "B_PER", "I_PER"], "BIO", ["PER"]),
        (["0", "B-PER", "I-PER"], "BIO", ["PER"]),
        (["OUTSIDE", "name", "place"], "plain", ["name", "place"]),
        (["o", "B-PER", "I-PER", "[CLS]", "[SEP]", "<pad>"], "BIO", ["PER"]),
        (["LABEL_0", "LABEL_1", "LABEL_2"], "plain", ["LABEL_1", "LABEL_2"]),
        (["PUNCT", "NOUN", "VERB"], "plain", ["PUNCT", "NOUN", "VERB"]),
        (["O", "B-I-95", "I-I-95"], "BIO", ["I-95"]),
    ],
)
def test_schemes(labels: list[str], scheme: str, types: list[str]) -> None:
    tags = TagScheme(labels)
    assert tags.scheme == scheme
    assert list(tags.names) == types
    kinds = [tags.names[at] if at >= 0 else "" for at in tags.types]
    for label, kind in zip(labels, kinds, strict=True):
        assert label.endswith(kind)
        assert len(label) - len(kind) in (0, 2) or not kind


def test_begins_and_ends() -> None:
    tags = TagScheme(["O", "B-A", "I-A", "E-A", "S-A", "L-A", "U-A"])
    assert tags.begins == (False, True, False, False, True, False, True)
    assert tags.ends == (False, False, False, True, True, True, True)


def test_plain_labels_neither_begin_nor_end() -> None:
    tags = TagScheme(["O", "E-MAIL", "B2B"])
    assert not any(tags.begins + tags.ends)


def test_labels_are_renamed() -> None:
    tags = TagScheme(
        ["LABEL_0", "LABEL_1", "LABEL_2", "X"], {"LABEL_0": "O", "LABEL_1": "B-P", "LABEL_2": "I-P", "X": "O"}
    )
    assert tags.names == ("P",)
    assert tags.types.tolist() == [-1, 0, 0, -1]


@pytest.mark.parametrize("labels", [["O"], ["O", "[PAD]"], ["LABEL_0"]])
def test_a_model_without_entities_is_refused(labels: list[str]) -> None:
    with pytest.raises(LoadFailed, match="id2label"):
        TagScheme(labels)


def test_a_label_to_rename_that_is_not_there_is_told() -> None:
    with pytest.raises(ManifestError, match="no label 'LABEL_9'; it has: O, B-A") as caught:
        TagScheme(["O", "B-A"], {"LABEL_9": "O"})
    assert caught.value.key == "options"
