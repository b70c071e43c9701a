"""The pytest plug-in for authors of functions: a fixture that opens manifests directly, and closes what it opened.

Installed with coldframe; docs/testing.md shows its use. It adds nothing to a test that does not ask for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from host.direct import OpenFunction
    from host.manifest import Manifest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--coldframe-placement`, which runs the same tests in another placement."""
    group = parser.getgroup("coldframe")
    group.addoption(
        "--coldframe-placement",
        metavar="NAME",
        default=None,
        help="where `coldframe_open` places instances: inline (to debug), process, … (default: as the manifest says)",
    )


@pytest.fixture
async def coldframe_open(
    request: pytest.FixtureRequest,
) -> AsyncIterator[Callable[..., Awaitable[OpenFunction]]]:
    """Return `await coldframe_open(manifest, placement=None)`: a function that can be asked, closed after the test.

    `manifest` is a file or a `host.manifest.Manifest`. For async tests under anyio's pytest plug-in.
    """
    from host.direct import open_function

    default = request.config.getoption("--coldframe-placement")
    async with AsyncExitStack() as stack:

        async def open_(manifest: Path | str | Manifest, placement: str | None = None, **kwargs: Any) -> OpenFunction:
            opened = open_function(manifest, placement=placement or default, **kwargs)
            return await stack.enter_async_context(opened)

        yield open_
