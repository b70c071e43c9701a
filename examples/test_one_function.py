"""Test code that needs a model by calling one function directly: no server, no port, the same request types.

`coldframe_open` is a fixture of the pytest plug-in that coldframe installs; docs/testing.md has the rest.
"""

from pathlib import Path
from typing import Any

import pytest

from functions.ner.api import NerRequest

MANIFEST = Path(__file__).parents[1] / "manifests" / "rampart-pii.yaml"


@pytest.fixture
def anyio_backend() -> str:
    """Run the tests on asyncio only."""
    return "asyncio"


@pytest.mark.anyio
async def test_names_are_redacted(coldframe_open: Any) -> None:
    """The model is loaded by its first call, and everything is given back when the test ends."""
    ner = await coldframe_open(MANIFEST)
    answer = await ner.call(NerRequest(model="rampart-pii", input="I am John Smith.", redact=True))
    assert answer.data[0].redacted_text == "I am [GIVEN_NAME] [SURNAME]."
    assert ner.status().state == "ready"
