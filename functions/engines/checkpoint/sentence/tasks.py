"""Prepares ColBERT queries and documents: their marker tokens, lengths, expansion, and which tokens get a vector.

Resolves the token strings of the model's files to ids of its vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from functions.engines.batching.item import Ids, Item
from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence.colbert import ColbertConfig, Expansion, Task
from functions.engines.checkpoint.sentence.layout import Layout, VectorKind
from functions.engines.checkpoint.sentence.output import SentenceItem
from functions.engines.checkpoint.tokenizer import FastTokenizer
from host.errors import LoadFailed


class ColbertInputs:
    """Prepares queries and documents for late interaction, with one model's vocabulary."""

    def __init__(self, layout: Layout, model: Folder, tokens: FastTokenizer) -> None:
        config = layout.colbert or ColbertConfig(steps=())
        self.default: Task | None = "document" if layout.kinds == ("colbert",) else None
        """The task of a text for which the request names none."""
        self.prompts = dict(layout.prompts)
        """Texts before inputs, by name, without what is put there as a token."""
        self._config = config
        self._markers: dict[Task, int] = {}
        for task, marker in config.markers.items():
            self._add_marker(task, marker, tokens)
        self._fill_id = _expansion_id(config.expansion, model, tokens) if config.expansion is not None else 0
        unknown = named_id(model, "unk_token", tokens)
        found = (tokens.id(word) for word in config.skip_tokens)
        self._skip_ids = np.array([one for one in found if one is not None and one != unknown], dtype=np.int32)

    def marker(self, task: Task | None) -> int | None:
        """Return the token to put before a text."""
        return None if task is None else self._markers.get(task)

    def longest(self, task: Task | None) -> int | None:
        """Return the most tokens of a text, special ones included; None for the model's own bound."""
        expansion = self._config.expansion if task == "query" else None
        if expansion is not None and expansion.fixed:
            return expansion.length
        said = self._config.lengths.get(task) if task is not None else None
        return said if said is None or expansion is None else max(said, expansion.length)

    def wanted(self, items: Sequence[Item], kinds: tuple[VectorKind, ...], task: Task | None) -> list[Item]:
        """Return the items as `SentenceItem`s that name the kinds of vectors to make."""
        if "colbert" not in kinds:
            return [SentenceItem(ids=item.ids, prompt=item.prompt, kinds=kinds) for item in items]
        return [self._one(item, kinds, task) for item in items]

    def _one(self, item: Item, kinds: tuple[VectorKind, ...], task: Task | None) -> Item:
        expansion, ids = self._config.expansion if task == "query" else None, item.ids
        fills = 0 if expansion is None else max(0, expansion.length - len(ids))
        if fills:
            ids = np.concatenate([ids, np.full(fills, self._fill_id, dtype=np.int32)])
        attended = len(item.ids) if fills and expansion is not None and not expansion.attend else None
        return SentenceItem(
            ids=ids, prompt=item.prompt, kinds=kinds, output_mask=self._output_mask(ids, task), attended=attended
        )

    def _output_mask(self, ids: Ids, task: Task | None) -> npt.NDArray[np.bool_]:
        output_mask = np.ones(len(ids), dtype=np.bool_)
        output_mask[0] = not self._config.skip_first
        if (task or "document") in self._config.skip_tasks:
            output_mask &= ~np.isin(ids, self._skip_ids)
        if task != "query" and self._config.document_ids is not None:
            output_mask &= np.isin(ids, self._config.document_ids)
        return output_mask

    def _add_marker(self, task: Task, marker: str, tokens: FastTokenizer) -> None:
        """Set a task's marker: as a token where the vocabulary has it, else as text of the prompt."""
        prompt = self.prompts.get(task, "").removeprefix(marker)
        for word in (marker, marker.split(None, 1)[0] if marker.split() else ""):
            found = tokens.id(word)
            if found is not None:
                self._markers[task] = found
                prompt = marker[len(word) :] + prompt
                break
        else:
            prompt = marker + prompt
        self.prompts[task] = prompt
        if not prompt.strip():
            del self.prompts[task]


def with_text_prompts(layout: Layout, tasks: ColbertInputs) -> Layout:
    """Return the layout with the prompts that are text, not marker tokens."""
    return msgspec.structs.replace(layout, prompts=tasks.prompts)


def _expansion_id(expansion: Expansion, model: Folder, tokens: FastTokenizer) -> int:
    if expansion.token is not None:
        found = tokens.id(expansion.token)
    else:
        found = named_id(model, "mask_token", tokens)
        found = named_id(model, "eos_token", tokens) if found is None else found
    if found is None:
        raise LoadFailed("queries are filled up with mask tokens, but tokenizer_config.json names none")
    return found


def named_id(model: Folder, name: str, tokens: FastTokenizer) -> int | None:
    """Return the id of one of the tokens that `tokenizer_config.json` names."""
    said = model.mapping("tokenizer_config.json").get(name)
    word = said.get("content") if isinstance(said, dict) else said
    return tokens.id(word) if isinstance(word, str) else None
