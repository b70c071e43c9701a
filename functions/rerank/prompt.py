"""A prompt with places for query, document and instruction, tokenised so that texts cannot pose as special tokens.

It cuts the prompt at its special tokens. What stands between two of them is tokenised as one text, since a tokenizer
joins the end of one word with the start of the next. It knows no library: `encode` is the model's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from host.errors import LoadFailed

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
"""The Qwen3-Reranker model card's, for when nobody says any."""

_CHATML = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: {instruction}\n'
    "<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n"
)
_THOUGHT = "<think>\n\n</think>\n\n"
_PLACE = re.compile(r"\{(instruction|query|document)\}")

Encode = Callable[[str], list[int]]


def fault(template: str) -> str | None:
    """Return what is wrong with a prompt's places; None for one that is right."""
    for place in ("query", "document"):
        if template.count(f"{{{place}}}") != 1:
            return f"{{{place}}} must stand in it exactly once"
    for place in ("query", "instruction"):
        if f"{{{place}}}" in template.partition("{document}")[2]:
            return f"{{{place}}} must stand before {{document}}"
    return None


class Prompt:
    """A prompt for one tokenizer. `special` is token -> id of what the template may mean by it, and texts may not."""

    def __init__(
        self,
        template: str,
        special: Mapping[str, int],
        encode: Encode,
        prefix: Sequence[int] = (),
        instruction: str = INSTRUCTION,
    ) -> None:
        """`prefix` is what the tokenizer puts before every text, `instruction` what is looked for when nobody says it.

        Raises `LoadFailed` for a prompt without places.
        """
        wrong = fault(template)
        if wrong is not None:
            raise LoadFailed(f"options.prompt: {wrong}", param="options.prompt")
        start, _, end = template.partition("{document}")
        self.instructed = "{instruction}" in start
        self._encode = encode
        self._instruction = instruction
        marks = sorted(filter(None, special), key=len, reverse=True)
        cuts = re.compile(f"({'|'.join(map(re.escape, marks))})") if marks else None
        runs = cuts.split(start) if cuts else [start]
        self._runs: list[int | str] = [special.get(run, run) for run in runs[:-1] if run]
        self._lead = runs[-1]
        self._prefix = [] if self._runs and self._runs[0] in prefix else list(prefix)
        tail = cuts.split(end) if cuts else [end]
        self.tail = [token for run in tail if run for token in ([special[run]] if run in special else encode(run))]

    def opening(self, query: str, instruction: str | None) -> tuple[list[int], str]:
        """Return the tokens before the last special one in front of the document, and the text from there to it."""
        instruction = self._instruction if instruction is None else instruction
        found = list(self._prefix)
        for run in self._runs:
            found += [run] if isinstance(run, int) else self._encode(_filled(run, query, instruction))
        return found, _filled(self._lead, query, instruction)


def known(model_type: str, special: Mapping[str, int]) -> str | None:
    """Return the prompt of rerankers that are made like Qwen3-Reranker, as its model card has it; None for others.

    Models that were not trained to think get it without the empty thought.
    """
    if "<|im_start|>" not in special or "<|im_end|>" not in special:
        return None
    return _CHATML + (_THOUGHT if model_type.startswith("qwen3") else "")


def asked(template: str | None, model_type: str, special: Mapping[str, int]) -> str:
    """Return the prompt that is stated, else the one that is known; raises `LoadFailed` where neither is there."""
    found = template or known(model_type, special)
    if found is None:
        raise LoadFailed(
            f"how a {model_type} model is asked for yes or no is not known: set options.prompt, "
            "with {query} and {document} in it",
            param="options.prompt",
        )
    return found


def _filled(run: str, query: str, instruction: str) -> str:
    values = {"query": query, "instruction": instruction}
    return _PLACE.sub(lambda match: values.get(match[1], match[0]), run)
