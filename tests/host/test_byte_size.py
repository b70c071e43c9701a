"""Sizes as text and as bytes."""

import pytest

from host.byte_size import size, spoken


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1B", 1),
        ("3KB", 3_000),
        ("500MB", 500_000_000),
        ("4GB", 4 * 10**9),
        ("6 MiB", 6 << 20),
        ("8GiB", 8 << 30),
        (" 1.5 KiB ", 1536),
        ("2TB", 2 * 10**12),
        ("1TiB", 1 << 40),
        (7, 7),
    ],
)
def test_what_people_write_is_bytes(text, count):
    assert size(text) == count


@pytest.mark.parametrize(
    "text",
    ["", "8", "8 gigs", "GiB", "-1GB", "1e3MB", "0GB", "0.1B", 0, -1, True, None, 1.5, [], "9" * 50 + "GB", 2**63],
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="expected a size such as 8GiB"):
        size(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (9_949, "9.9 kB"),
        (9_950, "10 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (50_000_032, "50 MB"),
        (22_748_859_187, "23 GB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_bytes_are_said_in_few_digits(count, text):
    assert spoken(count) == text
