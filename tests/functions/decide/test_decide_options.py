"""Options of the manifest that are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from functions.decide.options import DecideOptions


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"predicate_prompt": "Yes or no?"}, "must have {instructions}"),
        ({"choice_prompt": "{answer}{instructions}{answer}"}, "more than once"),
        ({"yes_words": ["ok "], "no_words": ["ok"]}, "both have 'ok'"),
        ({"yes_words": []}, "length >= 1"),
        ({"yes": ["Ja"]}, "unknown field `yes`"),
        ({"choice_prompt": "{instructions} {choises}"}, "`choice_prompt` has {choises}, which is not known"),
        ({"temperature": 0}, "temperature"),
        ({"min_mass": 1.5}, "min_mass"),
    ],
)
def test_options_that_cannot_work(options: dict[str, Any], words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(options, DecideOptions)
