"""Tokenises a prompt with placeholders for query, document and instruction; texts cannot inject special tokens.

The template is split at its special tokens. The text between two of them is tokenised as a whole, since a tokenizer
may merge the end of one text with the beginning of the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from host.errors import LoadFailed

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
"""The default instruction, of the Qwen3-Reranker model card."""

_CHATML = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: {instruction}\n'
    "<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n"
)
_EMPTY_THINKING = "<think>\n\n</think>\n\n"
_PLACEHOLDER = re.compile(r"\{(instruction|query|document)\}")

Encode = Callable[[str], list[int]]


def template_error(template: str) -> str | None:
    """Return what is wrong with a template's placeholders; None for a valid one."""
    for place in ("query", "document"):
        if template.count(f"{{{place}}}") != 1:
            return f"{{{place}}} must occur exactly once"
    for place in ("query", "instruction"):
        if f"{{{place}}}" in template.partition("{document}")[2]:
            return f"{{{place}}} must come before {{document}}"
    return None


class Prompt:
    """A prompt for one tokenizer. `special` maps the special tokens that the template may use to their ids."""

    def __init__(
        self,
        template: str,
        special: Mapping[str, int],
        encode: Encode,
        prefix: Sequence[int] = (),
        instruction: str = INSTRUCTION,
    ) -> None:
        """`encode` tokenises text without special tokens, `prefix` are the tokenizer's tokens before every text.

        `instruction` is the default one. Raises `LoadFailed` for a template without placeholders.
        """
        error = template_error(template)
        if error is not None:
            raise LoadFailed(f"options.prompt: {error}", param="options.prompt")
        start, _, end = template.partition("{document}")
        self.takes_instruction = "{instruction}" in start
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
        """Return the tokens up to the last special one before the document, and the text after that one."""
        instruction = self._instruction if instruction is None else instruction
        ids = list(self._prefix)
        for run in self._runs:
            ids += [run] if isinstance(run, int) else self._encode(_fill(run, query, instruction))
        return ids, _fill(self._lead, query, instruction)


def default_template(model_type: str, special: Mapping[str, int]) -> str | None:
    """Return the prompt of the Qwen3-Reranker model card for tokenizers with ChatML's special tokens; None for others.

    Only models of type qwen3 get its empty thinking block.
    """
    if "<|im_start|>" not in special or "<|im_end|>" not in special:
        return None
    return _CHATML + (_EMPTY_THINKING if model_type.startswith("qwen3") else "")


def resolve_template(template: str | None, model_type: str, special: Mapping[str, int]) -> str:
    """Return the configured template, else the default one; raises `LoadFailed` where there is neither."""
    found = template or default_template(model_type, special)
    if found is None:
        raise LoadFailed(
            f"the yes/no prompt of a {model_type} model is not known: set options.prompt, "
            "with {query} and {document} in it",
            param="options.prompt",
        )
    return found


def _fill(run: str, query: str, instruction: str) -> str:
    values = {"query": query, "instruction": instruction}
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), run)
