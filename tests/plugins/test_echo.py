"""The echo plug-in by itself: plan, load and answer as a worker calls them, and the faults it was made for."""

import ast
import asyncio
import gc
import itertools
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import coldframe_echo
import msgspec
import pytest
from coldframe_echo.api import Echo, EchoOnce, End, Token
from coldframe_echo.instance import EchoInstance
from coldframe_echo.operations import ECHO, ECHO_ONCE
from coldframe_echo.options import EchoOptions

from host.errors import ColdframeError, ContextLengthExceeded, InvalidRequest, LoadFailed, OutOfMemory, QueueFull
from host.function import Load, Plan
from host.manifest import Manifest

pytestmark = pytest.mark.anyio
PACKAGE = Path(coldframe_echo.__file__).parent
MODEL = PACKAGE / "model.echo"


def make_load(attempt=0, path=MODEL, options=None, **keys):
    manifest = Manifest(task="echo", model="package:coldframe_echo/model.echo", name="echo", **keys)
    raw = msgspec.Raw(msgspec.msgpack.encode(options or {}))
    return Load(manifest=manifest, path=str(path), engine="echo", options=raw, attempt=attempt)


def make_instance(options=None, attempt=0, progress=lambda *_: None, **keys):
    load = make_load(attempt=attempt, options=options, **keys)
    return EchoInstance.load(load, EchoInstance.plan(load), progress)


async def say(instance, **fields):
    return [event async for event in instance.answer(Echo(**fields))]


async def report(instance):
    return (await instance.answer(EchoOnce(report=True))).report


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# ------------------------------------------------------------------------------------------------ the plug-in


def test_is_found_through_the_entry_points_and_names_what_really_exists():
    (entry,) = entry_points(group="coldframe", name="echo")
    plugin = entry.load()
    (function,) = plugin.coldframe_functions()
    (engine,) = plugin.coldframe_engines()
    module, _, name = function.instances[engine.name].partition(":")
    instance = getattr(sys.modules.get(module) or __import__(module, fromlist=[name]), name)
    assert instance is EchoInstance
    assert engine.options is EchoOptions
    assert function.operation("echo") is ECHO
    assert function.operation("echo_once") is ECHO_ONCE


@pytest.mark.parametrize("file", sorted(PACKAGE.glob("*.py")), ids=lambda file: file.stem)
def test_imports_nothing_but_the_public_contract(file):
    allowed = {"msgspec", "litestar", "host.function", "host.hooks", "host.errors", "host.manifest", "host.http"}
    for node in ast.walk(ast.parse(file.read_text())):
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            root = name.partition(".")[0]
            public = any(name == room or name.startswith(f"{room}.") for room in allowed)
            assert public or root in sys.stdlib_module_names or root == "coldframe_echo", f"{file.name} imports {name}"


def test_the_instance_loads_without_any_http_library():
    script = "import sys, coldframe_echo.instance as i; print(i.EchoInstance.__name__)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "EchoInstance\n"
    tree = ast.parse((PACKAGE / "instance.py").read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in modules if name.startswith(("litestar", "host.http"))}


@pytest.mark.parametrize("struct", [ECHO.request, ECHO_ONCE.request, EchoOptions])
def test_every_knob_is_documented_where_it_stands(struct):
    from host.manifest.schema import docs

    assert set(docs(struct)) >= set(struct.__struct_fields__)


@pytest.mark.parametrize("value", [Token(text="x"), End(), End(usage=None)], ids=["token", "end", "end-without-usage"])
def test_events_survive_the_wire(value):
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=ECHO.answer) == value


# ------------------------------------------------------------------------------------------------ plan


@pytest.mark.parametrize(
    ("options", "keys", "bytes_"),
    [
        ({}, {}, {"ram": MODEL.stat().st_size}),
        ({"hoard_bytes": 1000}, {}, {"ram": 1000 + MODEL.stat().st_size}),
        ({"hoard_bytes": 1000, "plan_bytes": 5}, {}, {"ram": 5}),
        ({"plan_bytes": 7, "vram_bytes": 100}, {"device": "cuda:0"}, {"cuda:0": 7}),
    ],
)
def test_the_plan_tells_the_bytes(options, keys, bytes_):
    assert EchoInstance.plan(make_load(options=options, **keys)).bytes == bytes_


def test_a_device_that_is_only_pretended_has_a_size():
    plan = EchoInstance.plan(make_load(options={"vram_bytes": 100}, device="cuda:0"))
    assert (plan.device, plan.pools) == ("cuda:0", {"cuda:0": 100})


def test_a_device_that_nobody_pretends_is_refused():
    with pytest.raises(LoadFailed, match="vram_bytes"):
        EchoInstance.plan(make_load(device="cuda:0"))


@pytest.mark.parametrize(
    ("attempt", "slots", "planned"), [(0, "auto", 4), (1, "auto", 2), (0, 7, 7), (1, 7, 7), (9, "auto", 1)]
)
def test_a_second_attempt_takes_less_of_what_is_left_open(attempt, slots, planned):
    assert EchoInstance.plan(make_load(attempt=attempt, slots=slots)).slots == planned


def test_the_plan_can_be_slow_and_can_fail():
    start = time.monotonic()
    with pytest.raises(LoadFailed, match="no luck"):
        EchoInstance.plan(make_load(options={"plan_seconds": 0.1, "plan_fails": "no luck"}))
    assert time.monotonic() - start >= 0.1


# ------------------------------------------------------------------------------------------------ load


def test_a_slow_load_reports_its_progress():
    seen = []
    start = time.monotonic()
    make_instance({"load_seconds": 0.2, "hoard_bytes": 1_000_000}, progress=lambda *step: seen.append(step))
    assert time.monotonic() - start >= 0.2
    assert len(seen) >= 5
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1] == ("weights", 1_000_000, 1_000_000)


def test_the_hoard_is_really_resident_and_given_back():
    size = 64_000_000
    gc.collect()  # nothing of other tests is given back meanwhile
    before = resident()
    instance = make_instance({"hoard_bytes": size})
    assert resident() - before > 0.9 * size
    instance.close()
    assert resident() - before < 0.1 * size


@pytest.mark.parametrize("attempt", [0, 1, 2])
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_so_many_loads_run_out_of_memory(failing, attempt):
    if attempt < failing:
        with pytest.raises(OutOfMemory, match=f"Attempt {attempt}"):
            make_instance({"load_oom": failing}, attempt=attempt)
    else:
        assert make_instance({"load_oom": failing}, attempt=attempt).info().slots == max(1, 4 >> attempt)


def test_a_load_fails_with_the_message_it_was_given():
    with pytest.raises(LoadFailed, match="the disk is on fire") as caught:
        make_instance({"load_fails": "the disk is on fire"})
    assert not isinstance(caught.value, OutOfMemory)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"], ids=["missing", "binary"])
def test_a_model_that_is_no_text_file_fails_to_load(tmp_path, content):
    path = tmp_path / "model.echo"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoadFailed):
        EchoInstance.load(make_load(path=path), Plan(bytes={}), lambda *_: None)


@pytest.mark.parametrize(("options", "capacity"), [({}, 3), ({"capacity": 1}, 1), ({"capacity": 9}, 9)])
def test_capacity_is_the_slots_unless_set_apart(options, capacity):
    facts = make_instance(options, slots=3, context=128).info()
    assert (facts.capacity, facts.slots, facts.context) == (capacity, 3, 128)


SCRIPT = """
import sys, msgspec
sys.path.insert(0, {here!r})
from test_echo import make_instance, say, EchoInstance, make_load
import asyncio
import itertools
{body}
print("alive", flush=True)
"""


def run(body):
    script = SCRIPT.format(here=str(Path(__file__).parent), body=body)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=180)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("make_instance({'load_crash': 'segv'})", -signal.SIGSEGV),
        ("make_instance({'load_crash': 'abort'})", -signal.SIGABRT),
        ("make_instance({'load_crash': 'kill'})", -signal.SIGKILL),
        ("make_instance({'load_crash': 0})", 0),
        ("EchoInstance.plan(make_load(options={'plan_crash': 3}))", 3),
        ("asyncio.run(say(make_instance(), count=5, crash_after=2, crash='segv'))", -signal.SIGSEGV),
        ("asyncio.run(say(make_instance(), count=1, crash_after=9, crash=7))", 7),
    ],
)
def test_crashes_end_the_process_as_asked(body, code):
    done = run(body)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr


@pytest.mark.slow
def test_a_deaf_instance_survives_sigterm_even_when_loaded_in_a_thread():
    body = """
import threading, os, signal, time
thread = threading.Thread(target=make_instance, args=({'deaf': True},)); thread.start(); thread.join()
os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.1)"""
    done = run(body)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


# ------------------------------------------------------------------------------------------------ answer


@pytest.mark.parametrize(
    ("fields", "text", "tokens"),
    [
        ({}, MODEL.read_text().strip(), 9),
        ({"text": "héllo  wörld"}, "héllo  wörld", 2),
        ({"text": "a b", "count": 5}, "a b a b a", 5),
        ({"text": "a b", "count": 1}, "a", 1),
        ({"text": "a", "count": 0}, "", 0),
        ({"text": ""}, "", 0),
        ({"text": "", "count": 5}, "", 0),
    ],
)
async def test_both_operations_say_the_same(fields, text, tokens):
    instance = make_instance()
    once = await instance.answer(EchoOnce(**fields))
    *words, end = await say(instance, **fields)
    assert once.text == "".join(word.text for word in words) == text
    assert once.usage == end.usage
    assert once.usage.completion_tokens == len(words) == tokens


async def test_tokens_come_one_by_one_with_the_delay():
    times = [time.monotonic()]
    async for _ in make_instance().answer(Echo(count=4, delay=0.05)):
        times.append(time.monotonic())
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert all(gap >= 0.045 for gap in gaps[:4])


@pytest.mark.parametrize(
    ("code", "kind"), [("queue_full", QueueFull), ("context_length_exceeded", ContextLengthExceeded)]
)
async def test_errors_are_raised_by_code_after_so_many_tokens(code, kind):
    got = []
    with pytest.raises(kind):
        async for event in make_instance().answer(Echo(count=5, error=code, error_after=2)):
            got.append(event)
    assert len(got) == 2


async def test_an_error_after_more_tokens_than_there_are_comes_at_the_end():
    with pytest.raises(QueueFull):
        await make_instance().answer(EchoOnce(count=1, error="queue_full", error_after=100))


async def test_a_bug_is_none_of_our_errors():
    with pytest.raises(ZeroDivisionError) as caught:
        await make_instance().answer(EchoOnce(error="bug"))
    assert not isinstance(caught.value, ColdframeError)


async def test_an_unknown_code_names_the_field_and_the_codes():
    with pytest.raises(InvalidRequest, match="queue_full") as caught:
        await make_instance().answer(EchoOnce(error="nope"))
    assert caught.value.param == "error"


async def test_blocking_stops_the_whole_loop():
    ticks = []

    async def tick():
        while True:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.03)
    await make_instance().answer(EchoOnce(block=0.3, count=1))
    ticking.cancel()
    assert max(b - a for a, b in zip(ticks, [*ticks[1:], time.monotonic()], strict=True)) >= 0.29


async def test_memory_is_taken_for_one_call_only():
    size = 64_000_000
    gc.collect()  # nothing of other tests is given back meanwhile
    before = resident()
    stream = make_instance().answer(Echo(count=2, allocate=size))
    await anext(stream)
    assert resident() - before > 0.9 * size
    await stream.aclose()
    assert resident() - before < 0.1 * size


async def test_a_hanging_call_ends_only_by_cancelling():
    instance = make_instance()
    call = asyncio.ensure_future(instance.answer(EchoOnce(count=0, hang=True)))
    done, _ = await asyncio.wait({call}, timeout=0.05)
    assert not done
    assert (await report(instance)).running == 1
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    seen = await report(instance)
    assert (seen.started, seen.cancelled, seen.running) == (1, 1, 0)


async def test_the_report_counts_how_calls_ended():
    instance = make_instance()
    await instance.answer(EchoOnce())
    await say(instance, count=2)
    with pytest.raises(QueueFull):
        await instance.answer(EchoOnce(error="queue_full"))
    stream = instance.answer(Echo(count=5))
    await anext(stream)
    await stream.aclose()
    seen = (await say(instance, report=True))[0].report
    assert (seen.started, seen.finished, seen.failed, seen.cancelled) == (4, 2, 1, 1)


async def test_the_report_knows_the_most_calls_side_by_side():
    instance = make_instance()
    await asyncio.gather(*(instance.answer(EchoOnce(count=1, delay=0.02)) for _ in range(7)))
    assert (await report(instance)).peak == 7
