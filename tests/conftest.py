"""What all tests share."""

import ctypes
import gc
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

# Read when numpy and torch are imported, here and in processes started from here. `make test` runs one pytest a core,
# and their threads would wait for one another. Tests of several threads ask for them themselves.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# As in workers: threads that wait by spinning for long take the time of the other process.
os.environ.setdefault("GOMP_SPINCOUNT", "200")
# For the processes that pytest-xdist starts after this: threads that come and go leave freed memory in few places.
os.environ.setdefault("MALLOC_ARENA_MAX", "2")
# Else its import asks the network for a list of prices, and waits for an answer three times.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
REAL_MODELS = (
    "test_classify_http.py",
    "test_decide_sdk.py",
    "test_embeddings_clients.py",
    "test_models_and_functions.py",
    "test_moderations_sdk.py",
    "test_ner_http.py",
    "test_real_models.py",
    "test_rerank_clients.py",
)
"""Files of tests/e2e whose hosts load models of a size that people use."""
SOAK_UNTIL = float(os.environ.get("SOAK_UNTIL", "inf"))


def pytest_collection_finish() -> None:
    """Spare the garbage collector what was imported and collected, which it would look through again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file in one process, and hosts with real models in one too: two would need much memory."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return (
                "real models" if "tests/examples/" in file or (file.endswith(REAL_MODELS) and "/e2e/" in file) else file
            )

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_runtest_setup() -> None:
    """Begin no test after the end of `make soak`."""
    if time.time() > SOAK_UNTIL:
        pytest.skip("the time of the soak is over")


@pytest.fixture(scope="module", autouse=True)
def _give_back_memory() -> Iterator[None]:
    """Return to the system what a file's tests freed: a process goes through hundreds of models."""
    yield
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
