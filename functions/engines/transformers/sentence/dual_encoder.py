"""A loaded dual encoder: a text tower and an image tower with vectors in one space (CLIP, SigLIP).

Its interface is that of `SentenceModel`; it takes images as well. CLIP: Radford et al. 2021, arXiv:2103.00020.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import msgspec
import numpy as np
import torch

from functions.engines.batching.batcher import Batcher
from functions.engines.batching.item import Item, size
from functions.engines.checkpoint import max_length, tokenizer
from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence.layout import Layout
from functions.engines.checkpoint.sentence.output import SentenceOutput, Vector
from functions.engines.checkpoint.tokenizer import FastTokenizer
from functions.engines.transformers import encoder as encoders
from functions.engines.transformers import memory
from functions.engines.transformers import plan as planning
from functions.engines.transformers.encoder import Encoder
from functions.engines.transformers.options import TransformersOptions
from functions.engines.transformers.sentence import images, layers
from functions.engines.transformers.sentence.images import ImageProcessor, Pixels
from host.errors import LoadFailed, NotFinite
from host.function import Load, Plan, Progress


class ImageItem(Item, frozen=True):
    """An image to embed; `ids` only reserve its tokens in a batch."""

    pixels: Pixels = msgspec.field(default_factory=lambda: np.zeros((3, 1, 1), dtype=np.float32))
    """(channels, height, width)."""

    @classmethod
    def of(cls, pixels: Pixels, tokens: int) -> Self:
        """Return the item of an image that takes `tokens` tokens."""
        return cls(ids=np.zeros(tokens, dtype=np.int32), pixels=pixels)


class DualEncoder:
    """A text and an image tower. `size` is the dimension, `longest` the most tokens of a text, special ones too."""

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        encoder: Encoder,
        after: tuple[list[layers.Layer], int],
        tokens: FastTokenizer,
        processor: ImageProcessor,
        options: TransformersOptions,
    ) -> None:
        self.layout = layout
        self.tokenizer = tokens
        self.images = processor
        self.longest = plan.context or 0
        self._encoder = encoder
        self._layers, self.size = after
        config = encoder.model.config.text_config
        self._pads_to_maximum = encoder.model.config.model_type == "siglip"
        """SigLIP was trained on texts filled up to its last position, and reads the vector there."""
        self._padding = int(config.pad_token_id or 0)
        budget, overhead = encoders.budget(options, plan, encoder.device)
        self._batcher: Batcher[Item, SentenceOutput] = Batcher(
            self._compute,
            size,
            budget=budget,
            overhead=overhead,
            is_out_of_memory=memory.is_out_of_memory,
            release=memory.release,
        )

    @staticmethod
    def plan(load: Load, layout: Layout) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        options, model = _read(load, layout)
        longest, bound = max_length.longest(
            {"max_position_embeddings": _positions(model)}, {}, load.manifest.context, layout.longest
        )
        plan = planning.encoder(load, options, model, longest)
        notes = (*plan.notes, f"texts of up to {longest} tokens ({bound})", *layout.notes)
        return msgspec.structs.replace(plan, notes=notes)

    @classmethod
    def load(cls, load: Load, plan: Plan, layout: Layout, progress: Progress) -> Self:
        """Load tokenizer, image processor and weights; raises `LoadFailed` and `OutOfMemory`."""
        options, model = _read(load, layout)
        tokens = tokenizer.load(model, load.threads, lower=layout.lower, trusted=options.trust_remote_code)
        processor = images.load(model, model.config())
        encoder = encoders.load(load, plan, options, model, progress)
        tokens.bound(int(encoder.model.config.text_config.vocab_size))
        after = layers.load(layout.steps, Folder(load.path), _vector_size(encoder.model.config), encoder.device)
        return cls(plan, layout, encoder, after, tokens, processor, options)

    async def vectors(self, items: Sequence[Item]) -> list[Vector]:
        """Return the vector of each item, in their order; raises what `outputs` raises."""
        return [output.dense for output in await self.outputs(items) if output.dense is not None]

    async def outputs(self, items: Sequence[Item]) -> list[SentenceOutput]:
        """Return the vector of each item, in their order; raises `QueueFull`, `ShuttingDown`, `OutOfMemory`."""
        return await self._batcher.run(items)

    def detail(self) -> dict[str, Any]:
        """Return what was chosen, and by which file."""
        return self.layout.detail(self.size) | {"inputs": ["text", "image"]} | self._encoder.detail()

    def close(self) -> None:
        """End the threads."""
        self._batcher.close()
        self.tokenizer.close()
        self.images.close()

    def _compute(self, items: Sequence[Item]) -> list[SentenceOutput]:
        """Return the vectors of one batch; runs in the compute thread."""
        found: dict[int, Vector] = {}
        for kind, features in ((False, self._texts), (True, self._images)):
            places = [at for at, item in enumerate(items) if isinstance(item, ImageItem) is kind]
            if places:
                with torch.inference_mode():
                    vectors = features([items[at] for at in places]).pooler_output.float()
                    for layer in self._layers:
                        vectors = layer(vectors)
                found.update(zip(places, vectors.cpu().numpy(), strict=True))
        if not all(bool(np.isfinite(vector).all()) for vector in found.values()):
            raise NotFinite(f"the model gave numbers that are not finite in {self._encoder.precision}")
        return [SentenceOutput(dense=found[at]) for at in range(len(items))]

    def _texts(self, items: Sequence[Item]) -> Any:
        longest = _maximum(self._encoder) if self._pads_to_maximum else max(len(item.ids) for item in items)
        ids = torch.full((len(items), longest), self._padding, dtype=torch.long)
        mask = torch.zeros((len(items), longest), dtype=torch.long)
        for row, item in enumerate(items):
            ids[row, : len(item.ids)] = torch.from_numpy(item.ids)
            mask[row, : len(item.ids)] = 1
        extra = {} if self._pads_to_maximum else {"attention_mask": mask.to(self._encoder.device)}
        return self._encoder.model.get_text_features(input_ids=ids.to(self._encoder.device), **extra)

    def _images(self, items: Sequence[Item]) -> Any:
        pixels = torch.from_numpy(np.stack([item.pixels for item in items if isinstance(item, ImageItem)]))
        return self._encoder.model.get_image_features(pixels.to(self._encoder.device, self._encoder.dtype))


def _vector_size(config: Any) -> int:
    """Return the numbers of a vector: of CLIP's projection, or of SigLIP's head."""
    text = config.text_config
    return int(getattr(config, "projection_dim", None) or getattr(text, "projection_size", None) or text.hidden_size)


def _maximum(encoder: Encoder) -> int:
    return int(encoder.model.config.text_config.max_position_embeddings)


def _positions(model: Folder) -> int:
    said = model.config().get("text_config") or {}
    if not isinstance(said, dict):
        raise LoadFailed("config.json: text_config should be an object")
    known = {"clip": 77, "siglip": 64}
    return int(said.get("max_position_embeddings") or known[model.config()["model_type"]])


def _read(load: Load, layout: Layout) -> tuple[TransformersOptions, Folder]:
    options = load.engine_options(TransformersOptions)
    return options, Folder(load.path).inside(layout.encoder)
