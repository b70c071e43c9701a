"""What is said of a word that nobody knows."""

import pytest

from host.suggestions import nearest


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("redactt", "did you mean `redact`?"),
        ("Top-K", "did you mean `top_k`?"),
        ("zzz", "known fields: redact, top_k"),
    ],
)
def test_the_nearest_or_all(word, said):
    assert nearest(word, ["top_k", "redact"], "fields") == said


def test_nothing_is_known():
    assert nearest("a", [], "keys") == "known keys: none"
