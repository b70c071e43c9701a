"""Chat at a command line: the words are the user's message, the answer is printed as it comes."""

from __future__ import annotations

from typing import Any


class ChatCli:
    """See `host.function.Shell`."""

    def body(self, text: str) -> dict[str, Any]:
        """Ask with one user message, and for a stream."""
        return {"messages": [{"role": "user", "content": text}], "stream": True}

    def show(self, answer: Any) -> str:
        """Return the text that one chunk, or a whole completion, adds."""
        found = (choice.get("delta") or choice.get("message") or {} for choice in answer.get("choices", []))
        return "".join(part.get("content") or "" for part in found)
