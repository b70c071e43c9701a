"""Entity recognition at the command line: the arguments are one text; each entity is a line of label, score, text."""

from __future__ import annotations

from typing import Any


class NerCli:
    """See `host.function.Cli`."""

    def body(self, text: str) -> dict[str, Any]:
        """Return a request for the entities of the text."""
        return {"input": text}

    def show(self, answer: Any) -> str:
        """Return one line for each entity in the order of the text; of redacted texts, the text alone."""
        return "\n".join(line for item in answer["data"] for line in _lines(item))


def _lines(item: dict[str, Any]) -> list[str]:
    if item.get("redacted_text") is not None:
        return [item["redacted_text"]]
    return [f"{entity['label']}\t{entity['score']:.3f}\t{entity['text']}" for entity in item["entities"]]
