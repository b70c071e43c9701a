"""What all tests share."""

import gc

import pytest


def pytest_collection_finish() -> None:
    """Spare the garbage collector what was imported and collected, which it would look through again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
