"""Scores compared with llama-cpp-python, which computes each sequence by itself, in full."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import loads
import numpy as np
import pytest
from ggufs import llamas
from ggufs.memories import recurrent, windowed
from numpy.typing import NDArray

from functions.engines.llama.scoring.branch import Branch
from functions.engines.llama.scoring.model import ScoringModel
from host.errors import ColdframeError, LoadFailed, ShuttingDown

pytestmark = pytest.mark.anyio
BAD = 258
"""A word whose embedding is not a number, in the file `poisoned`."""
Open = Callable[..., ScoringModel]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("gguf")
    metadata, tensors = llamas.llama()
    tensors["token_embd.weight"][BAD] = np.nan
    # The embedding is the output again; one of its own keeps the NaN out of every other token's logits.
    tensors["output.weight"] = np.random.default_rng(7).standard_normal((llamas.WORDS, llamas.WIDTH)).astype(np.float32)
    kinds = {"llama": llamas.llama(), "gemma": windowed(), "mamba": recurrent(), "poisoned": (metadata, tensors)}
    return {name: llamas.write(folder / f"{name}.gguf", *kind) for name, kind in kinds.items()}


@pytest.fixture
def open_(files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    opened: list[ScoringModel] = []

    def open_one(kind: str = "llama", path: Path | None = None, context: int = 512, **options: Any) -> ScoringModel:
        exact = {"cache_type_k": "f32", "cache_type_v": "f32", "flash_attention": "off"} if path is None else {}
        load = loads.given(
            "chat", path or files[kind], exact | options, engine="llama", threads=1, context=context, device="cpu"
        )
        opened.append(ScoringModel.load(load, ScoringModel.plan(load), loads.ignore))
        return opened[-1]

    yield open_one
    for model in opened:
        model.close()


class Reference:
    """Full logits of whole sequences, one after another, from a fresh cache each time."""

    def __init__(self, path: Path, **more: Any) -> None:
        more = {"type_k": 0, "type_v": 0, "n_threads": 1, "n_threads_batch": 1} | more
        self.llama = llama_cpp.Llama(str(path), n_ctx=1024, logits_all=True, verbose=False, **more)

    def log(self, prompt: Sequence[int], answer: Sequence[int]) -> float:
        ids = [*prompt, *answer]
        self.llama.reset()
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.llama.ctx), True)
        self.llama.eval(ids)
        rows = self.llama.scores[: len(ids)].astype(np.float64)
        logs = (
            rows - np.log(np.exp(rows - rows.max(1, keepdims=True)).sum(1, keepdims=True)) - rows.max(1, keepdims=True)
        )
        return float(sum(logs[len(prompt) - 1 + at, token] for at, token in enumerate(answer)))

    def logs(self, prefix: Sequence[int], branches: Sequence[Branch]) -> list[NDArray[np.float64]]:
        return [np.array([self.log([*prefix, *one.suffix], answer) for answer in one.answers]) for one in branches]


def drawn(dice: random.Random, count: int, *, longest: int = 12) -> list[Branch]:
    """Return branches of which many begin alike, with answers of one to four tokens, some beginning others."""
    stems = [[dice.randrange(256) for _ in range(5)] for _ in range(3)]

    def branch() -> Branch:
        suffix = [*dice.choice(stems), *(dice.randrange(256) for _ in range(dice.randrange(0, longest)))]
        answers = [[dice.randrange(256) for _ in range(dice.randrange(1, 4))] for _ in range(dice.randrange(1, 5))]
        answers.append([*answers[0], dice.randrange(256)])
        return Branch(suffix, answers)

    return [branch() for _ in range(count)]


def prefix_of(length: int, seed: int = 1) -> list[int]:
    dice = random.Random(seed)
    return [256, *(dice.randrange(256) for _ in range(length - 1))]


def close(found: Sequence[NDArray[np.float64]], wanted: Sequence[NDArray[np.float64]], within: float = 1e-4) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert np.abs(one - other).max() < within


def counting(model: ScoringModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list whose only number grows with every token that is computed."""
    computed, compute = [0], model._context.compute_shared

    def counted() -> int:
        computed[0] += model._context.batch.count
        return compute()

    monkeypatch.setattr(model._context, "compute_shared", counted)
    return computed


def asked(length: int, count: int, seed: int = 1) -> Branch:
    """Return a long question with many answers of two to four tokens, of which many begin alike."""
    dice = random.Random(seed)
    answers = [[dice.randrange(20), *(dice.randrange(256) for _ in range(dice.randrange(1, 4)))] for _ in range(count)]
    return Branch([dice.randrange(256) for _ in range(length)], answers)


@pytest.mark.parametrize("kind", ["llama", "gemma", "mamba"])
@pytest.mark.parametrize(("batch", "count"), [(512, 12), (16, 12)])
async def test_scores_equal_those_of_whole_sequences(
    kind: str, batch: int, count: int, open_: Open, files: dict[str, Path]
) -> None:
    prefix, branches = prefix_of(70), drawn(random.Random(kind), count)
    model = open_(kind, batch=batch, ubatch=batch)
    assert model.reuses == (kind != "mamba")
    close((await model.score(prefix, branches)).logprobs, Reference(files[kind]).logs(prefix, branches))


async def test_a_deterministic_model_computes_each_by_itself(open_: Open, files: dict[str, Path]) -> None:
    prefix, branches = prefix_of(40), drawn(random.Random(3), 6)
    model = open_(deterministic=True)
    one, two = await model.score(prefix, branches), await model.score(prefix, branches[::-1])
    assert one.cached == two.cached == 0
    close(one.logprobs, two.logprobs[::-1], within=1e-12)
    close(one.logprobs, Reference(files["llama"]).logs(prefix, branches))


async def test_scores_do_not_depend_on_order_number_or_cache(open_: Open) -> None:
    prefix, branches = prefix_of(50), drawn(random.Random(4), 150)
    model = open_(batch=64)
    first = await model.score(prefix, branches)
    again = await model.score(prefix, branches[::-1])
    assert (first.cached, again.cached) == (0, 50)
    close(first.logprobs, again.logprobs[::-1], within=1e-4)
    for at in (0, 77, 149):
        alone = await model.score(prefix, branches[at : at + 1])
        close(alone.logprobs, first.logprobs[at : at + 1], within=1e-4)


async def test_a_prefix_reuses_the_common_part_of_the_previous_one(open_: Open, files: dict[str, Path]) -> None:
    model, reference, branches = open_(), Reference(files["llama"]), drawn(random.Random(5), 3)
    one = prefix_of(60)
    two = [*one[:37], *prefix_of(20, seed=9)]
    for prefix, cached in ((one, 0), (two, 37), (one, 60), ([*two, 7, 8], 57), (one[:30], 30), (two, 57)):
        found = await model.score(prefix, branches)
        assert found.cached == cached
        close(found.logprobs, reference.logs(prefix, branches))


async def test_prefixes_that_do_not_fit_are_evicted(open_: Open, files: dict[str, Path]) -> None:
    """512 tokens and a round hold three prefixes of 200; twelve in turn push each other out, and stay right."""
    model, reference, branches = open_(batch=64), Reference(files["llama"]), drawn(random.Random(6), 4)
    prefixes = [prefix_of(200, seed=seed) for seed in range(12)]
    for prefix in [*prefixes, *prefixes[:2], prefixes[-1]]:
        found = await model.score(prefix, branches)
        assert found.cached in (1, 200) if prefix is not prefixes[0] else True
        close(found.logprobs, reference.logs(prefix, branches))
    assert (await model.score(prefixes[-1], branches)).cached == 200


async def test_a_sequence_may_fill_the_context(open_: Open, files: dict[str, Path]) -> None:
    prefix, suffix = prefix_of(250), prefix_of(258, seed=2)
    branches = [Branch(suffix, [[1, 2, 3, 4], [9]]), Branch(suffix[:5], [[7]])]
    model = open_(batch=64)
    close((await model.score(prefix, branches)).logprobs, Reference(files["llama"]).logs(prefix, branches))


async def test_answers_right_behind_the_prefix(open_: Open, files: dict[str, Path]) -> None:
    model, branches = open_(), [Branch([], [[5], [6, 7]]), Branch([9], [[5]])]
    for prefix in (prefix_of(20), [256]):
        close((await model.score(prefix, branches)).logprobs, Reference(files["llama"]).logs(prefix, branches))


async def test_more_answers_than_sequences(open_: Open, files: dict[str, Path]) -> None:
    answers = [[one, two, 3] for one in range(15) for two in range(17)]
    branches = [Branch([1, 2], answers)]
    found = (await open_().score(prefix_of(10), branches)).logprobs[0]
    reference = Reference(files["llama"])
    for at in range(0, len(answers), 40):
        assert abs(found[at] - reference.log([*prefix_of(10), 1, 2], answers[at])) < 1e-4


async def test_all_single_tokens_sum_to_one(open_: Open) -> None:
    found = await open_().score(prefix_of(10), [Branch([4], [[token] for token in range(llamas.WORDS)])])
    assert abs(np.exp(found.logprobs[0]).sum() - 1) < 1e-6


@pytest.mark.parametrize("flash", ["auto", "off"])
async def test_nonfinite_logits_affect_only_their_branch(flash: str, open_: Open, files: dict[str, Path]) -> None:
    branches = drawn(random.Random(8), 30)
    bad = {3, 17}
    for at in bad:
        branches[at] = Branch([*branches[at].suffix, BAD, 5], branches[at].answers)
    model, reference, prefix = open_("poisoned", flash_attention=flash), Reference(files["poisoned"]), prefix_of(30)
    found = await model.score(prefix, branches)
    within = 1e-4 if flash == "off" else 0.1
    for at, (branch, logs) in enumerate(zip(branches, found.logprobs, strict=True)):
        if at in bad:
            assert np.isnan(logs).all()
        else:
            close([logs], reference.logs(prefix, [branch]), within)
    sound = [branch for at, branch in enumerate(branches) if at not in bad]
    close(
        (await model.score(prefix, sound)).logprobs,
        [one for at, one in enumerate(found.logprobs) if at not in bad],
        within,
    )


async def test_after_a_nonfinite_prefix_the_next_call_is_right(open_: Open, files: dict[str, Path]) -> None:
    model, branches = open_("poisoned"), drawn(random.Random(9), 10)
    found = await model.score([*prefix_of(9), BAD], branches)
    assert all(np.isnan(logs).all() for logs in found.logprobs)
    close(
        (await model.score(prefix_of(9), branches)).logprobs, Reference(files["poisoned"]).logs(prefix_of(9), branches)
    )


async def test_concurrent_calls_are_interleaved(open_: Open, files: dict[str, Path]) -> None:
    model, reference = open_(batch=64), Reference(files["llama"])
    order: list[str] = []

    async def ask(name: str, prefix: list[int], branches: list[Branch]) -> list[NDArray[np.float64]]:
        found = (await model.score(prefix, branches)).logprobs
        order.append(name)
        return found

    long = (prefix_of(60, seed=1), drawn(random.Random(1), 200))
    short = (prefix_of(60, seed=2), drawn(random.Random(2), 3))
    found = await asyncio.gather(ask("long", *long), ask("short", *short))
    assert order == ["short", "long"]
    close(found[1], reference.logs(*short))
    alone = (await open_(batch=64).score(*long)).logprobs
    close(found[0], alone, within=1e-4)


async def test_a_short_call_overtakes_one_with_a_long_prefix(open_: Open) -> None:
    model, order = open_(batch=64), []

    async def ask(name: str, prefix: list[int], count: int) -> None:
        await model.score(prefix, [Branch([at], [[1]]) for at in range(count)])
        order.append(name)

    await asyncio.gather(ask("long", prefix_of(400), 250), ask("short", prefix_of(20), 2))
    assert order == ["short", "long"]


async def test_prefixes_that_evict_each_other_cost_at_most_half_of_the_time(
    open_: Open, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, reference = open_(batch=64), Reference(files["llama"])
    calls = [(prefix_of(400, seed=seed), drawn(random.Random(seed), 150)) for seed in (1, 2)]
    computed = counting(model, monkeypatch)
    for call in calls:
        await model.score(*call)
    apart, computed[0] = computed[0], 0
    model._scheduler._scorer._wipe()
    found = await asyncio.gather(*(model.score(*call) for call in calls))
    assert computed[0] < 2 * apart
    for (prefix, branches), scores in zip(calls, found, strict=True):
        close(scores.logprobs[::30], reference.logs(prefix, branches[::30]))


@pytest.mark.parametrize("kind", ["llama", "gemma"])
@pytest.mark.parametrize("lengths", [(60,), (64,), (65,), (300,), (130, 40, 5, 200)])
async def test_a_question_with_many_answers_is_computed_once(
    kind: str, lengths: tuple[int, ...], open_: Open, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it fits into a round or not."""
    model, prefix = open_(kind, batch=64), prefix_of(100)
    branches = [asked(length, 120, seed=length) for length in lengths]
    computed = counting(model, monkeypatch)
    found = await model.score(prefix, branches)
    answers = sum(len({tuple(one[:end]) for one in branch.answers for end in range(1, 5)}) for branch in branches)
    assert computed[0] < 1.5 * (len(prefix) + sum(lengths) + answers)
    some = [Branch(branch.suffix, branch.answers[::12]) for branch in branches]
    close([logs[::12] for logs in found.logprobs], Reference(files[kind]).logs(prefix, some), within=1e-3)
    computed[0] = 0
    again = await model.score(prefix, branches)
    assert again.cached == len(prefix)
    assert computed[0] < 1.5 * (sum(lengths) + answers)


@pytest.mark.parametrize("length", [200, 350])
async def test_long_questions_of_two_calls_do_not_evict_each_other_at_every_batch(
    length: int, open_: Open, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the two lengths the first is such that both calls' prefixes and questions have room beside a round."""
    model, reference = open_(batch=64), Reference(files["llama"])
    calls = [(prefix_of(40, seed=seed), [asked(length, 200, seed=seed)]) for seed in (1, 2)]
    computed = counting(model, monkeypatch)
    for call in calls:
        await model.score(*call)
    apart, computed[0] = computed[0], 0
    model._scheduler._scorer._wipe()
    found = await asyncio.gather(*(model.score(*call) for call in calls))
    assert computed[0] < (1.1 if length == 200 else 2) * apart
    for (prefix, [branch]), scores in zip(calls, found, strict=True):
        wanted = reference.logs(prefix, [Branch(branch.suffix, branch.answers[::20])])
        close([scores.logprobs[0][::20]], wanted)


async def test_questions_do_not_stay_cached_after_a_call(open_: Open) -> None:
    """They would take the place of other calls' prefixes."""
    model = open_(batch=64)
    prefixes = [prefix_of(100, seed=seed) for seed in range(4)]
    for prefix in prefixes:
        await model.score(prefix, [asked(80, 100)])
    assert [(await model.score(prefix, [Branch([1], [[2]])])).cached for prefix in prefixes] == [100] * 4


async def test_a_cancelled_call_ends_and_leaves_others_right(open_: Open, files: dict[str, Path]) -> None:
    model, branches = open_(batch=32), drawn(random.Random(2), 5)
    for delay in (0, 0.001, 0.01, 0.05):
        long = asyncio.create_task(model.score(prefix_of(300), drawn(random.Random(1), 3000)))
        await asyncio.sleep(delay)
        if long.cancel():  # else the machine stood still for so long that it ended before
            with pytest.raises(asyncio.CancelledError):
                await long
        close(
            (await model.score(prefix_of(40), branches)).logprobs,
            Reference(files["llama"]).logs(prefix_of(40), branches),
        )


async def test_closing_fails_waiting_calls(open_: Open) -> None:
    model = open_(batch=32)
    calls = [asyncio.create_task(model.score(prefix_of(300), drawn(random.Random(1), 2000))) for _ in range(3)]
    await asyncio.sleep(0.05)
    await asyncio.to_thread(model.close)
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(one, ShuttingDown) for one in found)
    with pytest.raises(ShuttingDown):
        await model.score([1], [])


async def test_a_failed_computation_fails_its_call_only(
    open_: Open, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, branches = open_(), drawn(random.Random(2), 5)
    with monkeypatch.context() as patch:
        patch.setattr(model._context, "compute_shared", lambda: -3)
        with pytest.raises(ColdframeError, match="code -3"):
            await model.score(prefix_of(20), branches)
    model._context.batch.count = 0
    close(
        (await model.score(prefix_of(20), branches)).logprobs, Reference(files["llama"]).logs(prefix_of(20), branches)
    )


def test_adapters_are_refused(open_: Open) -> None:
    with pytest.raises(LoadFailed, match="adapters are for chats"):
        open_(adapters={"a": {"path": "./a.gguf"}})


@pytest.mark.slow
async def test_a_quantised_model_agrees_within_its_rounding(smollm2: Path, open_: Open) -> None:
    """Q4_1 multiplies activations rounded to 8 bits, so that logits move by tenths with the shape of a batch."""
    model = open_(path=smollm2, context=1024)
    words = model.vocabulary
    prefix = words.prompt("The weather was lovely and we enjoyed every minute of the concert in the park.\n")
    branches = [
        Branch(
            words.tokenize(text, special=False), [words.tokenize(answer, special=False) for answer in (" Yes", " No")]
        )
        for text in ("Was it sunny? Answer:", "Was it raining? Answer:", "Did they enjoy it? Answer:")
    ]
    found = (await model.score(prefix, branches)).logprobs
    wanted = Reference(smollm2, type_k=1, type_v=1).logs(prefix, branches)
    close(found, wanted, within=0.7)
