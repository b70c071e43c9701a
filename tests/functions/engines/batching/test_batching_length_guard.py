"""What is too long for so many tokens, told by characters without white space, and how quickly."""

from __future__ import annotations

import time

import pytest

from functions.engines.batching.length_guard import PER_TOKEN, check, head, too_long
from host.errors import InputTooLong

MOST = 4 * PER_TOKEN


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", 0),
        ("a" * MOST, MOST),
        ("a" * (MOST + 1), MOST),
        ("中" * (MOST + 1), MOST),
        (" " * 10_000, 10_000),
        (" " * 200_000 + "a" * MOST + "\n" * 200_000, 400_000 + MOST),
        (" " * 200_000 + "a" * (MOST + 1), 200_000 + MOST),
        ("a " * MOST, 2 * MOST),
        ("a " * MOST + "b", 2 * MOST - 1),
        ("a" + " " * 70_000 + "b" * MOST, 70_000 + MOST),
    ],
)
def test_so_much_is_enough(text: str, kept: int) -> None:
    assert head(text, 4) == text[:kept]
    assert too_long(text, 4) == (kept < len(text))
    assert not too_long(head(text, 4), 4)


def test_too_long_is_told_with_its_place() -> None:
    check("a" * MOST, 4, "input")
    with pytest.raises(InputTooLong, match="has more than 256 characters, the model takes 4 tokens; shorten") as caught:
        check("a" * (MOST + 1), 4, "input[3]")
    assert caught.value.param == "input[3]"


@pytest.mark.parametrize("text", ["a" * 14_000_000, "中" * 4_000_000, "a " * 7_000_000])
def test_megabytes_are_seen_at_once(text: str) -> None:
    start = time.process_time()
    assert too_long(text, 512) and len(head(text, 512)) <= 2 * 512 * PER_TOKEN
    assert time.process_time() - start < 0.5
