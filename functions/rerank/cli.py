"""Reranking at the command line: the first argument or line is the query, others are documents, printed best first."""

from __future__ import annotations

from typing import Any

_SEPARATOR = " | "
"""Separates query and documents on one line."""


class RerankCli:
    """See `host.function.Cli`."""

    between = "\n"
    """Joins the arguments: each is a line."""

    def body(self, text: str) -> dict[str, Any]:
        """Return a request to rank the documents: lines after the first, or the parts between `|` of a single line."""
        if "|" in (lines := [line.strip() for line in text.splitlines()]):
            text = " ".join(lines)
        parts = text.splitlines() if "\n" in text.strip() else text.split(_SEPARATOR)
        query, *documents = [part.strip() for part in parts if part.strip()] or [""]
        return {"query": query, "documents": documents}

    def show(self, answer: Any) -> str:
        """Return one line for each document: its score and its text."""
        lines = [(result["relevance_score"], _text(result)) for result in answer["results"]]
        return "\n".join(f"{score:.4f}  {text}" for score, text in lines)


def _text(result: Any) -> str:
    document = result.get("document")
    text = document.get("text") if isinstance(document, dict) else document
    return str(text) if text is not None else f"[{result['index']}]"
