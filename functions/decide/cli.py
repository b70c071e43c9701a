"""Decisions at the command line: the first line is the question, the lines below it the input."""

from __future__ import annotations

from typing import Any

from functions.decide.texts import value_text


class DecideCli:
    """See `host.function.Cli`.

    `Is the writer happy?` asks for yes or no; `Topic? sports | travel | health` to choose, where the bars are.
    """

    def body(self, text: str) -> dict[str, Any]:
        """Return a request with one question about the lines below it; an empty input is refused by the server."""
        first, _, rest = text.strip().partition("\n")
        about = rest.strip()
        if "|" not in first:
            return {"input": about, "questions": [{"type": "predicate", "instructions": first}]}
        head, _, last = first.replace("?", "?\0", 1).partition("\0")
        if not last:
            head, last = "Which of these is it?", first
        choices = [{"value": value.strip()} for value in last.split("|") if value.strip()]
        return {"input": about, "questions": [{"type": "choice", "instructions": head, "choices": choices}]}

    def show(self, answer: Any) -> str:
        """Return a line for each possible answer, the most probable first."""
        return "\n".join(_line(one) for one in answer["answers"])


def _line(answer: dict[str, Any]) -> str:
    if answer["type"] == "refusal":
        return "no answer"
    if answer["type"] == "predicate":
        return f"{'yes' if answer['probability'] > 0.5 else 'no'} ({answer['probability']:.3f} yes)"
    ranked = sorted(answer["probabilities"], key=lambda one: -one["probability"])
    return "\n".join(f"{one['probability']:.3f} {one.get('label') or value_text(one['value'])}" for one in ranked)
