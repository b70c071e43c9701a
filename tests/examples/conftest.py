"""One host for all examples: `coldframe serve` over the demo manifests and the models that the pages add to them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import classifiers
import pytest
from serving import Served

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The host of the pages' examples; the three manifests beside the demo ones are those that docs/http.md shows."""
    folder = tmp_path_factory.mktemp("examples")
    manifests = shutil.copytree(ROOT / "manifests", folder / "manifests")
    classifiers.trained(manifests / "sentiment", classifiers.SENTIMENT)
    toxicity = {"problem_type": "multi_label_classification"}
    classifiers.trained(manifests / "toxicity", classifiers.TOXICITY, **toxicity)
    for name, text in page_manifests().items():
        (manifests / name).write_text(text)
    host = Served(manifests, "--port", "0", XDG_CACHE_HOME=str(folder / "cache"))
    yield host
    assert host.stop() == 0


def page_manifests() -> dict[str, str]:
    """The manifests on docs/http.md, by file name."""
    page = (ROOT / "docs" / "http.md").read_text()
    blocks = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    return {block.split()[1]: block for block in blocks}
