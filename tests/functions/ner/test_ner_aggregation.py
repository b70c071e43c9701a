"""How tokens' probabilities become labels of words, and labels of words entities: by hand, for every kind of tag."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from functions.ner.aggregation import Strategy, label_words, probabilities
from functions.ner.spans import char_span, group_entities
from functions.ner.tags import TagScheme
from functions.ner.words import Words

LABELS = ("O", "B-A", "I-A", "E-A", "S-A", "B-Z", "I-Z")


def rows(*tokens: tuple[str, float]) -> np.ndarray:
    """Return probabilities in which each token's label has that much, and the others share the rest."""
    found = np.empty((len(tokens), len(LABELS)), np.float32)
    for at, (label, score) in enumerate(tokens):
        found[at] = (1 - score) / (len(LABELS) - 1)
        found[at, LABELS.index(label)] = score
    return found


def entities(labels: Sequence[str], *, join: bool = False, gaps: Sequence[int] = ()) -> list[tuple[str, int, int]]:
    """Return type, first and last word of the entities when each word is a token; `gaps` are words behind a space."""
    tags = TagScheme(LABELS)
    at, places = 0, []
    for word in range(len(labels)):
        at += word in gaps
        places.append((at, at + 1))
        at += 1
    made = Words(np.arange(len(labels)), places)
    labelled = label_words(rows(*[(label, 0.9) for label in labels]), made.starts, "first", tags)
    return [(tags.names[span.type], span.first, span.last) for span in group_entities(labelled, made, tags, join=join)]


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (["O", "B-A", "I-A", "O"], [("A", 1, 2)]),
        (["B-A", "B-A"], [("A", 0, 0), ("A", 1, 1)]),
        (["I-A", "I-A"], [("A", 0, 1)]),
        (["I-A", "B-A", "I-A"], [("A", 0, 0), ("A", 1, 2)]),
        (["B-A", "I-Z"], [("A", 0, 0), ("Z", 1, 1)]),
        (["B-A", "O", "I-A"], [("A", 0, 0), ("A", 2, 2)]),
        (["B-A", "I-A", "E-A"], [("A", 0, 2)]),
        (["E-A", "I-A"], [("A", 0, 0), ("A", 1, 1)]),
        (["E-A", "E-A"], [("A", 0, 0), ("A", 1, 1)]),
        (["S-A", "S-A", "I-A"], [("A", 0, 0), ("A", 1, 1), ("A", 2, 2)]),
        (["B-A", "S-A", "E-A"], [("A", 0, 0), ("A", 1, 1), ("A", 2, 2)]),
        (["O", "O"], []),
    ],
)
def test_every_sequence_of_tags_has_a_meaning(labels: list[str], found: list[tuple[str, int, int]]) -> None:
    assert entities(labels) == found


def test_words_that_touch_are_joined_on_request() -> None:
    assert entities(["B-A", "B-A", "S-A", "B-A", "B-Z"], join=True, gaps=[3]) == [("A", 0, 2), ("A", 3, 3), ("Z", 4, 4)]


def test_plain_labels_merge_with_their_neighbours() -> None:
    tags = TagScheme(("O", "GIVEN-NAME"))
    made = Words(np.arange(3), [(0, 1), (2, 3), (4, 5)])
    labelled = label_words(np.array([[0.1, 0.9], [0.2, 0.8], [0.9, 0.1]], np.float32), made.starts, "first", tags)
    (span,) = group_entities(labelled, made, tags)
    assert (tags.names[span.type], span.first, span.last, pytest.approx(span.score)) == ("GIVEN-NAME", 0, 1, 0.85)


WORD = rows(("O", 0.5), ("B-A", 0.6), ("I-Z", 0.9), ("I-A", 0.7))


@pytest.mark.parametrize(
    ("strategy", "opens", "closes", "score"),
    [("simple", "B-A", "I-A", 0.65), ("first", "O", "O", 0.5), ("max", "I-Z", "I-Z", 0.9)],
)
def test_a_word_whose_tokens_disagree(strategy: Strategy, opens: str, closes: str, score: float) -> None:
    labelled = label_words(WORD, np.array([0]), strategy, TagScheme(LABELS))
    assert (LABELS[labelled.begin_labels[0]], LABELS[labelled.end_labels[0]]) == (opens, closes)
    assert labelled.totals[0] / labelled.counts[0] == pytest.approx(score)


def test_average_is_of_probabilities() -> None:
    labelled = label_words(WORD, np.array([0]), "average", TagScheme(LABELS))
    mean = WORD.mean(axis=0)
    assert labelled.begin_labels[0] == mean.argmax()
    assert labelled.totals[0] == pytest.approx(mean.max())


def test_simple_takes_a_word_of_which_one_token_is_an_entity() -> None:
    tags = TagScheme(LABELS)
    probs = rows(("O", 0.9), ("O", 0.8), ("B-A", 0.6), ("O", 0.9))
    labelled = label_words(probs, np.array([0, 3]), "simple", tags)
    made = Words(np.array([0, 3]), [(0, 9), (10, 11)])
    (span,) = group_entities(labelled, made, tags)
    assert char_span(span, made) == (0, 9)
    assert span.score == pytest.approx(0.6)


def test_simple_weighs_tokens_and_not_words() -> None:
    tags = TagScheme(LABELS)
    probs = rows(("B-A", 0.9), ("I-A", 0.6), ("I-A", 0.6), ("I-A", 0.5))
    made = Words(np.array([0, 3]), [(0, 5), (6, 8)])
    (span,) = group_entities(label_words(probs, made.starts, "simple", tags), made, tags)
    assert span.score == pytest.approx((0.9 + 0.6 + 0.6 + 0.5) / 4)


def test_simple_keeps_a_word_whole_whose_tokens_begin_twice() -> None:
    tags = TagScheme(LABELS)
    made = Words(np.array([0]), [(0, 5)])
    (span,) = group_entities(label_words(rows(("B-A", 0.9), ("B-A", 0.9)), made.starts, "simple", tags), made, tags)
    assert char_span(span, made) == (0, 5)


def test_max_takes_the_first_of_equals() -> None:
    labelled = label_words(rows(("B-A", 0.9), ("I-Z", 0.9)), np.array([0]), "max", TagScheme(LABELS))
    assert LABELS[labelled.begin_labels[0]] == "B-A"


def test_an_entity_of_white_space_has_no_place() -> None:
    tags = TagScheme(LABELS)
    made = Words(np.arange(3), [(1, 1), (4, 6), (7, 7)])
    found = group_entities(
        label_words(rows(("B-A", 0.9), ("B-A", 0.9), ("I-A", 0.9)), made.starts, "first", tags), made, tags
    )
    assert [char_span(span, made) for span in found] == [None, (4, 6)]


def test_probabilities_of_large_logits() -> None:
    found = probabilities(np.array([[1000.0, 999.0], [-1000.0, -1000.0]], np.float32))
    assert found[0] == pytest.approx([0.7310586, 0.2689414])
    assert found[1] == pytest.approx([0.5, 0.5])
