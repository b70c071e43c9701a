"""The list of faults fits the code: each can be planted, and the tests that should notice it are there."""

from pathlib import Path

import pytest
from faults import FAULTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted(fault):
    text = (ROOT / fault.file).read_text()
    assert text.count(fault.old) == 1, f"`old` stands {text.count(fault.old)} times in {fault.file}"
    assert fault.new != fault.old
    paths = [test for test in fault.tests if test.startswith("tests/")]
    assert paths and all((ROOT / path).exists() for path in paths)


def test_there_are_sixty_in_all_rooms():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 60
    assert len({fault.file.rpartition("/")[0] for fault in FAULTS}) >= 20
