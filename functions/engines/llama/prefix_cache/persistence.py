"""Saves prefixes at unload, restores them at load.

Runs while nothing is computed: before the first request and after the last one.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import logging
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from functions.engines.llama.model.context import Context
from functions.engines.llama.model.gguf import shards
from functions.engines.llama.model.native_library import VERSION, lib
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.prefix_cache import disk_store as stores
from functions.engines.llama.prefix_cache.disk_store import PrefixStore, StoredPrefix
from functions.engines.llama.prefix_cache.slots import IdlePrefix, Slots
from functions.engines.prefix_cache.common_prefix import common_prefix
from host.byte_size import size as bytes_of
from host.function import Load, Plan

logger = logging.getLogger(__name__)

DEFAULT = 256 << 20
"""Bytes on disk for one model if the manifest has `keep_prefixes: true`."""
MIN_TOKENS = 32
"""Tokens that a prefix must add to the saved ones: fewer are computed as fast."""
_SECONDS = 2.0
"""Seconds after which no further file is written: the host kills workers that take too long to stop."""
_HEAD = 1 << 20
"""Leading bytes of the model file that are part of its identity."""
_FORMAT = 1


class PrefixPersistence:
    """Saves and restores the prefixes of one instance."""

    def __init__(self, store: PrefixStore, bound: int, adapters: Mapping[str, str]) -> None:
        """`adapters` are identities of adapter files by adapter name."""
        self._store = store
        self._bound = bound
        self._adapters = adapters
        self._restored: list[tuple[str | None, list[int]]] = []

    @classmethod
    def of(cls, load: Load, plan: Plan, options: LlamaOptions) -> PrefixPersistence | None:
        """Return the persistence that the options ask for; None if prefixes are not saved or not reused."""
        if not options.keep_prefixes or not options.prefix_reuse or options.deterministic:
            return None
        wanted = options.keep_prefixes
        path = Path(load.path)
        try:
            store = PrefixStore(path, _key(path, plan, options))
            files = {name: Path(load.base) / Path(one.path).expanduser() for name, one in options.adapters.items()}
            adapters = {name: f"{options.adapters[name].scale} {identity(file)}" for name, file in files.items()}
        except OSError as error:
            logger.warning("prefixes are not saved: %s", error.strerror)
            return None
        return cls(store, DEFAULT if wanted is True else bytes_of(wanted), adapters)

    def restore(self, context: Context, slots: Slots) -> int:
        """Restore saved prefixes into empty slots, the most recently used first; returns the number of tokens.

        A file must match its checksum, llama.cpp must accept it, and the sequence must then be as long as the prefix;
        files that fail are deleted.
        """
        for entry in self._store.entries():
            tokens, adapter = entry.label.tokens, entry.label.adapter
            name = next((name for name, file in self._adapters.items() if file == adapter), None)
            known = adapter is None or name is not None
            if not known or _new_tokens(tokens, [saved for of, saved in self._restored if of == adapter]) < MIN_TOKENS:
                continue
            slot = slots.reserve(len(tokens))
            if slot is None:
                break
            if stores.is_intact(entry) and _read(context, entry, slot, tokens):
                slots.fill(slot, tokens, name)
                self._restored.append((adapter, tokens))
            else:
                logger.warning("a saved prefix of %d tokens could not be restored and is deleted", len(tokens))
                context.forget(slot)
                stores.discard(entry.path)
        return sum(len(tokens) for _, tokens in self._restored)

    def save(self, context: Context, slots: Slots) -> int:
        """Save prefixes, the most recently used first, within limits on bytes and time; returns their number."""
        start, now, left, written = time.monotonic(), time.time_ns(), self._bound, 0
        saved: dict[str | None, list[list[int]]] = {}
        try:
            for number, one in enumerate(slots.idle_prefixes()):
                adapter = self._adapters[one.adapter] if one.adapter is not None else None
                size = int(lib.llama_state_seq_get_size(context.handle, one.slot)) + 8 * len(one.tokens) + 4096
                if _new_tokens(one.tokens, saved.get(adapter, [])) < MIN_TOKENS or size > left:
                    continue
                # A restored prefix that was not extended is saved already; its time of use has not changed.
                if (adapter, one.tokens) not in self._restored:
                    if time.monotonic() - start > _SECONDS:
                        break
                    written += self._store.put(one.tokens, adapter, _writer(context, one), now - number)
                left -= size
                saved.setdefault(adapter, []).append(one.tokens)
            self._store.trim(self._bound)
            stores.sweep()
        except OSError as error:
            logger.warning("prefixes could not be saved: %s", error.strerror)
        return written


def identity(path: Path) -> str:
    """Return a hash of path, size, time and first bytes of a file and its shards; raises `OSError`."""
    found = hashlib.sha256()
    for shard in shards(path):
        stat = shard.stat()
        found.update(f"{shard.resolve()} {stat.st_size} {stat.st_mtime_ns} ".encode())
        with shard.open("rb") as file:
            found.update(file.read(_HEAD))
    return found.hexdigest()


def _key(path: Path, plan: Plan, options: LlamaOptions) -> str:
    context = (options.cache_type_k, options.cache_type_v, options.flash_attention, options.sliding_window_full)
    where = [plan.detail.get(name) for name in ("devices", "offloaded", "split", "shares")]
    return " ".join(map(str, (_FORMAT, VERSION, identity(path), plan.context, plan.slots, *context, *where)))


def _new_tokens(tokens: list[int], saved: list[list[int]]) -> int:
    """Return the number of tokens beyond the longest saved prefix."""
    return len(tokens) - max((common_prefix(tokens, other, len(tokens)) for other in saved), default=0)


def _writer(context: Context, one: IdlePrefix) -> stores.Writer:
    tokens = (lib.llama_token * len(one.tokens))(*one.tokens)

    def write(path: Path) -> int:
        return int(lib.llama_state_seq_save_file(context.handle, str(path).encode(), one.slot, tokens, len(one.tokens)))

    return write


def _read(context: Context, entry: StoredPrefix, slot: int, tokens: list[int]) -> bool:
    """Restore a file into a sequence; returns whether all its tokens are in the KV cache."""
    # llama.cpp aborts the process if the number of tokens differs from the file's.
    with contextlib.suppress(OSError), entry.path.open("rb") as file:
        head = struct.pack("<III", lib.LLAMA_STATE_SEQ_MAGIC, lib.LLAMA_STATE_SEQ_VERSION, len(tokens))
        if file.read(len(head)) != head:
            return False
    room = (lib.llama_token * len(tokens))()
    count = ctypes.c_size_t()
    taken = lib.llama_state_seq_load_file(
        context.handle, str(entry.path).encode(), slot, room, len(tokens), ctypes.byref(count)
    )
    return bool(taken) and list(room[: count.value]) == tokens and context.length(slot) == len(tokens)
