"""One host for the examples of a file: `coldframe serve` over the demo manifests and the models that pages add."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import classifiers
import pytest
from serving import DEADLINE, Served

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A host over a copy of the demo manifests."""
    folder = tmp_path_factory.mktemp("examples")
    manifests = shutil.copytree(ROOT / "manifests", folder / "manifests")
    host = Served(manifests, "--port", "0", XDG_CACHE_HOME=str(folder / "cache"))
    yield host
    assert host.stop() == 0


@pytest.fixture(scope="module")
def pages(served: Served) -> Served:
    """The same host, with the models beside the demo ones whose manifests docs/http.md shows."""
    classifiers.trained(served.manifests / "sentiment", classifiers.SENTIMENT)
    toxicity = {"problem_type": "multi_label_classification"}
    classifiers.trained(served.manifests / "toxicity", classifiers.TOXICITY, **toxicity)
    for name, text in page_manifests().items():
        (served.manifests / name).write_text(text)
    end = time.monotonic() + DEADLINE
    for name in page_manifests():
        while served.client.get(f"/v1/models/{Path(name).stem}").status_code != 200:
            assert time.monotonic() < end, served.log.read_text()
            time.sleep(0.05)
    return served


def page_manifests() -> dict[str, str]:
    """The manifests on docs/http.md, by file name."""
    page = (ROOT / "docs" / "http.md").read_text()
    blocks = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    return {block.split()[1]: block for block in blocks}
