"""The detokenizer: characters stay whole and stop strings never show, however tokens split them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.engines.llama.decode.detokenizer import Detokenizer, StopScanner


def told(stops: list[str], text: str) -> tuple[str, bool]:
    """What must be shown, computed one character after the other: the first match that is complete ends it."""
    for end in range(1, len(text) + 1):
        found = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(found)], True
    return text, False


@pytest.mark.parametrize(
    ("stops", "pieces", "shown"),
    [
        (["END"], ["hello E", "N", "D tail"], ["hello ", "", ""]),
        (["END"], ["hello E", "N", "T"], ["hello ", "", "ENT"]),
        (["\n\n"], ["a\n", "b\n", "\nc"], ["a", "\nb", ""]),
        (["aab"], ["aa", "a", "b"], ["", "a", ""]),
        (["abcdef", "cd"], ["ab", "cd"], ["", "ab"]),
        (["b", "ab"], ["a", "b"], ["", ""]),
        ([], ["a", "b"], ["a", "b"]),
        (["é"], ["caf", "é!"], ["caf", ""]),
    ],
)
def test_stop_strings_across_tokens(stops: list[str], pieces: list[str], shown: list[str]) -> None:
    scanner = StopScanner(stops)
    assert [scanner.feed(piece) for piece in pieces] == shown


def test_nothing_follows_a_stop() -> None:
    scanner = StopScanner(["."])
    assert scanner.feed("one. two") == "one"
    assert scanner.found == "."
    assert scanner.feed("more") == "" and scanner.flush() == ""


def test_what_was_held_back_is_flushed() -> None:
    scanner = StopScanner(["<end>"])
    assert scanner.feed("text <en") == "text "
    assert scanner.flush() == "<en"


LETTERS = st.text(alphabet="ab<é🙂", max_size=24)


@given(LETTERS, st.lists(st.text(alphabet="ab<é🙂", min_size=1, max_size=4), max_size=4), st.data())
def test_any_split_gives_the_same_text(text: str, stops: list[str], data: st.DataObject) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    flow, shown = Detokenizer(stops), []
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        shown.append(flow.feed(raw[start:end]))
        assert "�" not in shown[-1]
    shown.append(flow.flush())
    assert ("".join(shown), flow.stopped) == told(stops, text)


@given(st.binary(max_size=40), st.data())
def test_invalid_utf8_is_decoded_as_python_does(raw: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(raw)))
    flow = Detokenizer()
    assert flow.feed(raw[:cut]) + flow.feed(raw[cut:]) + flow.flush() == raw.decode("utf-8", "replace")


def test_an_incomplete_character_at_the_end_is_replaced() -> None:
    flow = Detokenizer()
    assert flow.feed("é".encode()[:1]) == ""
    assert flow.flush() == "�"
