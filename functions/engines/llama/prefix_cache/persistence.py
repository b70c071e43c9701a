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
from functions.engines.llama.model.library import VERSION, lib
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.prefix_cache import prefix_store as stores
from functions.engines.llama.prefix_cache.prefix_store import PrefixStore, StoredPrefix
from functions.engines.llama.prefix_cache.slots import IdlePrefix, Slots
from functions.engines.prefix_cache.common_prefix import common_prefix
from host.function import Load, Plan
from host.size import size as bytes_of

logger = logging.getLogger(__name__)

DEFAULT = 256 << 20
"""Bytes on disk for one model when the manifest only says that prefixes are to be kept."""
MIN_TOKENS = 32
"""Tokens that a prefix must save for it to be kept: fewer are computed as fast."""
_SECONDS = 2.0
"""Time after which no further file is begun: the host kills what does not end when told to."""
_HEAD = 1 << 20
"""Bytes of the model's file that are part of its identity."""
_FORMAT = 1


class PrefixPersistence:
    """The kept prefixes of one instance."""

    def __init__(self, store: PrefixStore, bound: int, adapters: Mapping[str, str]) -> None:
        """`adapters` tells the identity of each one's file by its name."""
        self._store = store
        self._bound = bound
        self._adapters = adapters
        self._restored: list[tuple[str | None, list[int]]] = []

    @classmethod
    def of(cls, load: Load, plan: Plan, options: LlamaOptions) -> PrefixPersistence | None:
        """Return what the manifest asks for; None where nothing is kept, or prefixes are not used at all."""
        if not options.keep_prefixes or not options.prefix_reuse or options.deterministic:
            return None
        wanted = options.keep_prefixes
        path = Path(load.path)
        try:
            store = PrefixStore(path, _key(path, plan, options))
            files = {name: Path(load.base) / Path(one.path).expanduser() for name, one in options.adapters.items()}
            adapters = {name: f"{options.adapters[name].scale} {identity(file)}" for name, file in files.items()}
        except OSError as error:
            logger.warning("prefixes are not kept: %s", error.strerror)
            return None
        return cls(store, DEFAULT if wanted is True else bytes_of(wanted), adapters)

    def restore(self, context: Context, slots: Slots) -> int:
        """Fill empty slots with what was kept, the most recently used first; returns the tokens that are back.

        Nothing is believed: a file must have its checksum, llama.cpp must take it, and the sequence must then be as
        long as the prefix. What fails is deleted.
        """
        for entry in self._store.entries():
            tokens, adapter = entry.label.tokens, entry.label.adapter
            name = next((name for name, file in self._adapters.items() if file == adapter), None)
            known = adapter is None or name is not None
            if not known or _new_tokens(tokens, [kept for of, kept in self._restored if of == adapter]) < MIN_TOKENS:
                continue
            slot = slots.reserve(len(tokens))
            if slot is None:
                break
            if stores.is_intact(entry) and _read(context, entry, slot, tokens):
                slots.fill(slot, tokens, name)
                self._restored.append((adapter, tokens))
            else:
                logger.warning("a kept prefix of %d tokens did not fit and is deleted", len(tokens))
                context.forget(slot)
                stores.discard(entry.path)
        return sum(len(tokens) for _, tokens in self._restored)

    def save(self, context: Context, slots: Slots) -> int:
        """Write what slots hold, the most recently used first, within bounds of bytes and time; returns the files."""
        start, now, left, written = time.monotonic(), time.time_ns(), self._bound, 0
        kept: dict[str | None, list[list[int]]] = {}
        try:
            for number, one in enumerate(slots.idle_prefixes()):
                adapter = self._adapters[one.adapter] if one.adapter is not None else None
                size = int(lib.llama_state_seq_get_size(context.handle, one.slot)) + 8 * len(one.tokens) + 4096
                if _new_tokens(one.tokens, kept.get(adapter, [])) < MIN_TOKENS or size > left:
                    continue
                # What nobody went on from since it was read back is there already, and no younger than it was.
                if (adapter, one.tokens) not in self._restored:
                    if time.monotonic() - start > _SECONDS:
                        break
                    written += self._store.put(one.tokens, adapter, _writer(context, one), now - number)
                left -= size
                kept.setdefault(adapter, []).append(one.tokens)
            self._store.trim(self._bound)
            stores.sweep()
        except OSError as error:
            logger.warning("prefixes could not be kept: %s", error.strerror)
        return written


def identity(path: Path) -> str:
    """Return what changes when a file, or any shard of it, does; raises `OSError`."""
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


def _new_tokens(tokens: list[int], kept: list[list[int]]) -> int:
    """Return how many of the tokens none of the kept prefixes has."""
    return len(tokens) - max((common_prefix(tokens, other, len(tokens)) for other in kept), default=0)


def _writer(context: Context, one: IdlePrefix) -> stores.Writer:
    tokens = (lib.llama_token * len(one.tokens))(*one.tokens)

    def write(path: Path) -> int:
        return int(lib.llama_state_seq_save_file(context.handle, str(path).encode(), one.slot, tokens, len(one.tokens)))

    return write


def _read(context: Context, entry: StoredPrefix, slot: int, tokens: list[int]) -> bool:
    """Bring a file into a sequence; says whether it is there now, all of it."""
    # llama.cpp aborts where the number of tokens is not that of the file, instead of saying no.
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
