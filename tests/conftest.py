"""What all tests share."""

import gc
import os
import time

import pytest

# Read when numpy and torch are imported, here and in processes started from here. `make test` runs one pytest a core,
# and their threads would wait for one another. Tests of several threads ask for them themselves.
os.environ.setdefault("OMP_NUM_THREADS", "1")
SOAK_UNTIL = float(os.environ.get("SOAK_UNTIL", "inf"))


def pytest_collection_finish() -> None:
    """Spare the garbage collector what was imported and collected, which it would look through again and again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup() -> None:
    """Begin no test after the end of `make soak`."""
    if time.time() > SOAK_UNTIL:
        pytest.skip("the time of the soak is over")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
