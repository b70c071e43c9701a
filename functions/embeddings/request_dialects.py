"""Checks the fields of Cohere's, Jina's, Mixedbread's, TEI's, vLLM's and Voyage's dialects.

References: https://docs.voyageai.com/reference/embeddings-api,
https://docs.cohere.com/reference/embed, https://api.jina.ai/redoc, https://www.mixedbread.com/api-reference,
https://huggingface.github.io/text-embeddings-inference and vLLM's pooling requests.
"""

from __future__ import annotations

from typing import Any

from functions.embeddings.api import TASKS, EmbeddingsRequest
from host.errors import InvalidRequest, UnsupportedParameter

_LENGTH = "inputs are cut at the length of the model or the manifest, and only where truncate is true"
_UNSERVED = {
    "late_chunking": "each input is embedded by itself",
    "return_multivector": "send embedding_type: 'colbert' for a vector of each token",
    "prompt": "name one of the model's or the manifest's with prompt_name, or put the text before the input",
    "max_length": _LENGTH,
    "max_tokens": _LENGTH,
    "truncate_prompt_tokens": _LENGTH,
}


def check(request: EmbeddingsRequest) -> None:
    """Raise `InvalidRequest` for fields that contradict each other, and `UnsupportedParameter` for unserved ones."""
    _check_task(request)
    _check_same(request, "dimensions", "output_dimension", request.output_dimension)
    _check_same(request, "truncate", "truncation", request.truncation)
    for name in ("normalized", "normalize"):
        if getattr(request, name) is False:
            raise UnsupportedParameter(f"{name} must be true: vectors are as the model scales them", param=name)
    for name in ("output_dtype", "embedding_types"):
        if getattr(request, name) not in (None, "float", ["float"]):
            raise UnsupportedParameter(f"{name} must be 'float': numbers are not quantised", param=name)
    for name in ("truncation_direction", "truncation_side"):
        side = getattr(request, name)
        if side is not None and side.lower() != "right":
            raise UnsupportedParameter(f"{name} must be 'right': only an input's end is cut", param=name)
    for name, instead in _UNSERVED.items():
        value = getattr(request, name)
        if value is not None and value is not False:
            raise UnsupportedParameter(f"{name} is not served: {instead}", param=name)


def _check_task(request: EmbeddingsRequest) -> None:
    task = request.task
    if task is None:
        return
    if task not in TASKS:
        known = " or ".join(map(repr, TASKS))
        raise UnsupportedParameter(f"task must be {known}, got {task!r}; others are not served", param="task")
    if request.prompt_name is not None:
        raise UnsupportedParameter("set prompt_name or task, not both", param="task")
    _check_same(request, "input_type", "task", TASKS[task])


def _check_same(request: EmbeddingsRequest, field: str, other: str, value: Any) -> None:
    own = getattr(request, field)
    if value is not None and own != value:
        raise InvalidRequest(f"{field} is {own!r} and {other} says {value!r}: send one of them", param=other)
