"""Embeddings at the command line: the arguments are one text; each vector is printed as a line of JSON."""

from __future__ import annotations

from typing import Any

import msgspec


class EmbeddingsCli:
    """See `host.function.Cli`."""

    def body(self, text: str) -> dict[str, Any]:
        """Return a request for the embedding of the text."""
        return {"input": text}

    def show(self, answer: Any) -> str:
        """Return one line for each input, in their order."""
        return "\n".join(msgspec.json.encode(item["embedding"]).decode() for item in answer["data"])
