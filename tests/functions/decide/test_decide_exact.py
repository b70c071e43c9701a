"""The real SmolLM2 against plain forward passes of the same texts: questions side by side, and one after the other.

Its first layers are written out in 32 bits: in 4 bits, probabilities move by hundredths with whatever is computed
together, which would hide most mistakes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import loads
import numpy as np
import pytest
from decisions import numbers, request_of

from functions.decide.llama import LlamaDecide

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
EXACT = {"cache_type_k": "f32", "cache_type_v": "f32", "flash_attention": "off"}
LAYERS = 4
TICKET = "The lamp came two days late and the box was broken. I want my money back — ¡ahora! 😡"
NOTE = "Snow in San Francisco: 3 cm, reported at 07:15."
YES, NO = ["Yes", "yes"], ["No", "no"]


def choice(instructions: str, *values: Any) -> dict[str, Any]:
    return {"type": "choice", "instructions": instructions, "choices": [{"value": value} for value in values]}


def score(instructions: str, *labels: str) -> dict[str, Any]:
    return {"type": "score", "instructions": instructions, "levels": [{"label": label} for label in labels]}


# Each with how its answers are put to the model, and how they are spelled.
QUESTIONS: list[tuple[dict[str, Any], str, list[list[str]]]] = [
    ({"type": "predicate", "instructions": "Did the lamp come late?"}, "", [YES, NO]),
    ({"type": "predicate", "instructions": " 這是一個箱子嗎\n"}, "", [YES, NO]),
    (choice("Where is it?", "San", "San Francisco", "San Francisco Bay"), "San, San Francisco, San Francisco Bay",
     [["San"], ["San Francisco"], ["San Francisco Bay"]]),
    (choice("Is it so?", True, "true", "false"), 'true, "true", "false"', [["true"], ['"true"'], ['"false"']]),
    (choice("Is it so?", True, False, " maybe "), "true, false, maybe", [["true"], ["false"], ["maybe"]]),
    (choice("How many?", "7", "70", "-7", "1,000"), "7, 70, -7, 1,000", [["7"], ["70"], ["-7"], ["1,000"]]),
    (choice("Mood?", "😡", "😀", "日本語", "naïve"), "😡, 😀, 日本語, naïve", [["😡"], ["😀"], ["日本語"], ["naïve"]]),
    (score("How bad is it?", "not bad", "bad", "bad enough to return it"), "not bad, bad, bad enough to return it",
     [["not bad"], ["bad"], ["bad enough to return it"]]),
]  # fmt: skip
COMPANY = [{"type": "predicate", "instructions": f"Is item {at} in it?"} for at in range(92)]


def prompt(text: str, question: dict[str, Any], listed: str) -> str:
    """Return what the model reads, written out by hand."""
    lead, tail = "Answer questions about the text.", f" ({listed})"
    if question["type"] == "predicate":
        lead, tail = "Answer questions about the text with Yes or No.", ""
    return (
        "<|im_start|>system\nYou answer questions about a text.<|im_end|>\n"
        f"<|im_start|>user\n{text}\n\n{lead}<|im_end|>\n<|im_start|>assistant\n"
        f"Is this a text? Yes\nIs this a picture? No\n{question['instructions'].strip()}{tail}"
    )


class Direct:
    """llama-cpp-python, which computes one sequence at a time; what is before an answer is computed once."""

    def __init__(self, path: Path) -> None:
        self.llama = llama_cpp.Llama(
            str(path),
            n_ctx=256,
            logits_all=True,
            verbose=False,
            type_k=0,
            type_v=0,
            flash_attn=False,
            n_threads=1,
            n_threads_batch=1,
        )
        self.before: list[int] = []

    def ids(self, text: str, *, special: bool = False) -> list[int]:
        return list(self.llama.tokenize(text.encode(), add_bos=False, special=special))

    def log(self, before: Sequence[int], answer: Sequence[int]) -> float:
        memory = llama_cpp.llama_get_memory(self.llama.ctx)
        if self.before != before:
            self.llama.reset()
            llama_cpp.llama_memory_clear(memory, True)
            self.llama.eval(before)
            self.before = list(before)
        self.llama.n_tokens = len(before)
        llama_cpp.llama_memory_seq_rm(memory, 0, len(before), -1)
        self.llama.eval(answer)
        rows = self.llama.scores[len(before) - 1 : len(before) + len(answer) - 1].astype(np.float64)
        wholes = np.log(np.exp(rows - rows.max(1, keepdims=True)).sum(1)) + rows.max(1)
        return float(sum(rows[at, token] - wholes[at] for at, token in enumerate(answer)))

    def shares(self, text: str, answers: list[list[str]]) -> list[float]:
        """Return the shares of answers behind a prompt, where one that others go on from ends before they do."""
        before = self.ids(text, special=True)
        spelled = {
            tuple(self.ids(space + one)): at for at, some in enumerate(answers) for one in some for space in (" ", "")
        }
        logs = {ids: np.exp(self.log(before, ids)) for ids in spelled}
        found = [0.0] * len(answers)
        for ids, at in spelled.items():
            longer = [other for other in logs if len(other) > len(ids) and other[: len(ids)] == ids]
            # What goes on from a longer one goes on from this one too: it is taken away once.
            nearest = [
                one for one in longer if not any(one != other and one[: len(other)] == other for other in longer)
            ]
            found[at] += logs[ids] - sum(logs[one] for one in nearest)
        return [one / sum(found) for one in found]


@pytest.fixture(scope="module")
def wide(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first layers of SmolLM2 with numbers of 32 bits: its vocabulary, and a seventh of its time and memory."""
    path = tmp_path_factory.mktemp("wide") / "smollm2.gguf"
    read = gguf.GGUFReader(smollm2)
    made = gguf.GGUFWriter(path, "llama")
    for name, field in read.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            value = LAYERS if name == "llama.block_count" else field.contents()
            kinds = field.types
            made.add_key_value(name, value, kinds[0], kinds[-1] if len(kinds) > 1 else None)
    for tensor in read.tensors:
        block = tensor.name.split(".")[1] if tensor.name.startswith("blk.") else "0"
        if int(block) < LAYERS:
            made.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()
    return path


@pytest.fixture(scope="module")
def direct(wide: Path) -> Iterator[Direct]:
    made = Direct(wide)
    yield made
    made.llama.close()


@pytest.fixture(scope="module")
def model(wide: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaDecide]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        load = loads.given("decide", wide, dict(EXACT), engine="llama", context=512, device="cpu")
        made = LlamaDecide.load(load, LlamaDecide.plan(load), loads.ignore)
        yield made
        made.close()


@pytest.mark.parametrize(("text", "some"), [(TICKET, QUESTIONS), (NOTE, QUESTIONS[:3])], ids=["ticket", "note"])
async def test_answers_are_those_of_plain_forward_passes(
    model: LlamaDecide, direct: Direct, text: str, some: Sequence[Any]
) -> None:
    asked = [question for question, _, _ in some]
    found = (await model.answer(request_of(text, [*asked, *COMPANY]))).answers
    for answer, (question, listed, answers) in zip(found, some, strict=False):
        wanted = direct.shares(prompt(text, question, listed), answers)
        own = wanted[:1] if question["type"] == "predicate" else wanted
        assert numbers(answer) == pytest.approx(own, abs=1e-3), question


async def test_neither_order_nor_company_matters(model: LlamaDecide) -> None:
    many = [*(question for question, _, _ in QUESTIONS), *COMPANY]
    whole = (await model.answer(request_of(TICKET, many))).answers
    turned = (await model.answer(request_of(TICKET, many[::-1]))).answers[::-1]
    for at, (one, other) in enumerate(zip(whole, turned, strict=True)):
        assert numbers(one) == pytest.approx(numbers(other), abs=1e-4), many[at]
    for at in range(len(QUESTIONS)):
        alone = await model.answer(request_of(TICKET, many[at : at + 1]))
        assert numbers(alone.answers[0]) == pytest.approx(numbers(whole[at]), abs=1e-4), many[at]


@pytest.mark.parametrize("answer", ["Yes", "San Francisco", "bad enough to return it", "true", "-7", "日本語"])
def test_an_answer_is_cut_into_tokens_as_in_the_whole_text(direct: Direct, answer: str) -> None:
    """Else it would be scored by a way of writing it that the model has never seen."""
    for question, listed, _ in QUESTIONS:
        text = prompt(TICKET, question, listed)
        together = direct.ids(f"{text} {answer}", special=True)
        assert together == [*direct.ids(text, special=True), *direct.ids(f" {answer}")]
