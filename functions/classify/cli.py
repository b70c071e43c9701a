"""Classification at the command line: the arguments are one text; each label is printed with its score."""

from __future__ import annotations

from typing import Any


class ClassifyCli:
    """See `host.function.Cli`."""

    def body(self, text: str) -> dict[str, Any]:
        """Return a request for the labels of the text."""
        return {"input": text}

    def show(self, answer: Any) -> str:
        """Return a line for each listed label, best first; the best one where none reaches its threshold."""
        return "\n".join(_lines(item) for item in answer["data"])


def _lines(item: dict[str, Any]) -> str:
    if not item["labels"]:
        return f"none ({item['label']} {item['score']:.4f})"
    return "\n".join(f"{entry['label']} {entry['score']:.4f}" for entry in item["labels"])
