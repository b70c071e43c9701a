"""Entities at a command line: the words are one text, and each entity is a line of its label, score and text."""

from __future__ import annotations

from typing import Any


class NerCli:
    """See `host.function.Shell`."""

    def body(self, text: str) -> dict[str, Any]:
        """Ask for the entities of the whole text."""
        return {"input": text}

    def show(self, answer: Any) -> str:
        """Return one line for each entity in the order of the text; of redacted texts, the text alone."""
        return "\n".join(line for found in answer["data"] for line in _lines(found))


def _lines(found: dict[str, Any]) -> list[str]:
    if found.get("redacted_text") is not None:
        return [found["redacted_text"]]
    return [f"{entity['label']}\t{entity['score']:.3f}\t{entity['text']}" for entity in found["entities"]]
