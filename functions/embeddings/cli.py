"""Embeddings at a command line: the words are one text, and each vector is printed as a line of JSON."""

from __future__ import annotations

from typing import Any

import msgspec


class EmbeddingsCli:
    """See `host.function.Shell`."""

    def body(self, text: str) -> dict[str, Any]:
        """Ask for the vector of the whole text."""
        return {"input": text}

    def show(self, answer: Any) -> str:
        """Return one line for each input, in their order."""
        return "\n".join(msgspec.json.encode(item["embedding"]).decode() for item in answer["data"])
