"""Times: what people write and how many seconds it is."""

import math

import pytest

from host.manifest import seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0s", 0),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86400),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("1h30m", 5400),
        ("1h 30m 5s", 5405),
        (" 5 m ", 300),
        ("never", math.inf),
        (0, 0),
        (90, 90),
        (0.5, 0.5),
    ],
)
def test_times(text, value):
    assert seconds(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "value",
    [
        *("", "5", "m", "5 min", "5M", "-5m", "1e3s", "5m!", "never ever", "Never", "9" * 400 + "d"),
        *(-1, -0.1, math.nan, math.inf, -math.inf, True, False, None, [], {}),
    ],
)
def test_what_is_no_time_is_refused_with_what_would_be(value):
    with pytest.raises(ValueError, match="a time such as 500ms, 30s, 5m, 2h, 1d, a number of seconds, or never"):
        seconds(value)
