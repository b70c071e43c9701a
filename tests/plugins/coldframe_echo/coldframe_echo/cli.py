"""The function at a command line: words are what to say, and tokens are printed as they come."""

from __future__ import annotations

import json
from typing import Any


class EchoCli:
    """See `host.function.Cli`."""

    def body(self, text: str) -> dict[str, Any]:
        """Say the words, token by token."""
        return {"text": text, "stream": True}

    def show(self, answer: Any) -> str:
        """Return a token's text, or the report where one was asked for."""
        report = answer.get("report")
        return json.dumps(report) if report else str(answer.get("text") or "")
