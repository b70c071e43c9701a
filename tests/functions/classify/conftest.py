"""Classifiers that tests open, closed at the end; and Transformers' own pipelines over the same folders."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loads
import pytest
import transformers

from functions.classify.api import ClassifyAnswer, ClassifyRequest
from functions.classify.instance import ClassifyInstance

Opener = Callable[..., ClassifyInstance]


@pytest.fixture
def opener() -> Iterator[Opener]:
    opened: list[ClassifyInstance] = []

    def open_(
        path: Path, options: dict[str, Any] | None = None, engine: str = "transformers", **manifest: Any
    ) -> ClassifyInstance:
        module, _, name = loads.registry().function("classify").instances[engine].partition(":")
        kind = getattr(importlib.import_module(module), name)
        if engine == "transformers":  # else it computes in bf16 where the processor has it
            manifest = {"quantization": "fp32", **manifest}
        load = loads.given("classify", path, options, engine=engine, **manifest)
        opened.append(loads.checked(kind.load(load, kind.plan(load), loads.ignore), "classify"))
        return opened[-1]

    yield open_
    for instance in opened:
        instance.close()


@pytest.fixture
def ask() -> Callable[..., Any]:
    async def ask(instance: ClassifyInstance, given: Any, **fields: Any) -> ClassifyAnswer:
        found = await instance.answer(ClassifyRequest(input=given, **fields))
        assert isinstance(found, ClassifyAnswer)
        return found

    return ask


@pytest.fixture
def pipeline() -> Callable[..., Any]:
    """Return the maker of a pipeline; its tokenizer cuts at `limit` tokens where it is asked to cut."""

    def made(task: str, folder: Path, limit: int = 512) -> Any:
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"), pad_token="<pad>", model_max_length=limit
        )
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
        segments = ["token_type_ids"] if model.config.model_type == "bert" else []
        tokenizer.model_input_names = ["input_ids", "attention_mask", *segments]
        return transformers.pipeline(task, model=model, tokenizer=tokenizer, device="cpu")

    return made
