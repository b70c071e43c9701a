"""Chat at the command line: the arguments are the user's message; the answer is printed as it is generated."""

from __future__ import annotations

from typing import Any


class ChatCli:
    """See `host.function.Cli`."""

    def body(self, text: str) -> dict[str, Any]:
        """Return a streaming request with one user message."""
        return {"messages": [{"role": "user", "content": text}], "stream": True}

    def show(self, answer: Any) -> str:
        """Return the text of a chunk or of a completion."""
        found = (choice.get("delta") or choice.get("message") or {} for choice in answer.get("choices", []))
        return "".join(part.get("content") or "" for part in found)
