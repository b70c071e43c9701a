"""What Cohere, Jina, Mixedbread, TEI, vLLM and Voyage call things: names of ours, or refused where they change vectors.

Their references, whose names these are: https://docs.voyageai.com/reference/embeddings-api,
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
    """Raise `InvalidRequest` for other dialects' fields that contradict ours, or ask for what is not served."""
    _task(request)
    _same(request, "dimensions", "output_dimension", request.output_dimension)
    _same(request, "truncate", "truncation", request.truncation)
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
        said = getattr(request, name)
        if said is not None and said is not False:
            raise UnsupportedParameter(f"{name} is not served: {instead}", param=name)


def _task(request: EmbeddingsRequest) -> None:
    task = request.task
    if task is None:
        return
    if task not in TASKS:
        words = " or ".join(map(repr, TASKS))
        raise UnsupportedParameter(f"task must be {words}, got {task!r}; others are not served", param="task")
    if request.prompt_name is not None:
        raise UnsupportedParameter("set prompt_name or task, not both", param="task")
    _same(request, "input_type", "task", TASKS[task])


def _same(request: EmbeddingsRequest, ours: str, theirs: str, value: Any) -> None:
    said = getattr(request, ours)
    if value is not None and said != value:
        raise InvalidRequest(f"{ours} is {said!r} and {theirs} says {value!r}: send one of them", param=theirs)
