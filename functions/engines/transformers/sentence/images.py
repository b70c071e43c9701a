"""Preprocesses images for CLIP and SigLIP: checks format and size, decodes, resizes; in a separate thread.

The size is read from the header before decoding, so that a small file cannot expand to a huge image. Only formats that
Pillow decodes by itself are accepted, and nothing is fetched."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from functions.engines.batching.side_thread import SideThread
from functions.engines.checkpoint.folder import Folder
from host.errors import InvalidRequest, LoadFailed

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
PIXELS_MAX = 40_000_000
"""Most pixels of an image, by its header: 120 MB when decoded."""

Pixels = npt.NDArray[np.float32]


class ImageProcessor:
    """Makes a model's input from image bytes. `tokens` is the sequence length of one image."""

    def __init__(self, processor: Any, tokens: int) -> None:
        self.tokens = tokens
        self._processor = processor
        self._thread = SideThread("images")

    async def pixels(self, images: Sequence[Callable[[], bytes]], places: Sequence[str]) -> list[Pixels]:
        """Return (channels, height, width) of each; raises `InvalidRequest` with the place of an invalid one.

        Cancelling stops at the next image.
        """
        found = []
        for read, place in zip(images, places, strict=True):
            found.append(await self._thread.run(self._pixels, read, place))
        return found

    def close(self) -> None:
        """Stop the thread."""
        self._thread.close()

    def _pixels(self, read: Callable[[], bytes], place: str) -> Pixels:
        image = open_image(read(), place)
        values = self._processor(images=image, return_tensors="np")["pixel_values"][0]
        return np.ascontiguousarray(values, dtype=np.float32)


def open_image(data: bytes, place: str) -> Any:
    """Return the image in RGB, upright; raises `InvalidRequest` if it is unreadable, broken or too large."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        known = ", ".join(FORMATS)
        raise InvalidRequest(f"{place} is not an image that can be read: expected {known}", param=place) from None
    except Image.DecompressionBombError:
        raise InvalidRequest(f"{place} is too large: at most {PIXELS_MAX:,} pixels are taken", param=place) from None
    except Exception:  # noqa: BLE001 - Pillow's plug-ins raise whatever comes up on broken headers
        raise InvalidRequest(f"{place} is a broken image", param=place) from None
    width, height = image.size
    if width * height > PIXELS_MAX:
        raise InvalidRequest(
            f"{place} is too large: {width} x {height} pixels, at most {PIXELS_MAX:,} are taken", param=place
        )
    try:
        return ImageOps.exif_transpose(image).convert("RGB")
    except Exception:  # noqa: BLE001 - see above
        raise InvalidRequest(
            f"{place} is a broken image: its {image.format} data ends early or is wrong", param=place
        ) from None


def load(folder: Folder, config: dict[str, Any]) -> ImageProcessor:
    """Return the folder's image processor; raises `LoadFailed` where Pillow or the processor's file is missing."""
    try:
        import PIL.Image
    except ImportError:
        raise LoadFailed("this model embeds images, which needs Pillow: pip install 'coldframe[images]'") from None
    from transformers import AutoImageProcessor

    if not folder.has("preprocessor_config.json") and not folder.has("processor_config.json"):
        raise LoadFailed("preprocessor_config.json is missing: it says how this model's images are resized")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        processor = AutoImageProcessor.from_pretrained(
            str(folder.path), local_files_only=True, trust_remote_code=False, backend="pil"
        )
    except Exception as error:
        first = str(error).strip().split("\n")[0].replace(str(folder.path), "…")
        raise LoadFailed(f"the image processor cannot be read: {first[:300]}") from error
    side, patch = _grid(config)
    probe = processor(images=PIL.Image.new("RGB", (31, 17)), return_tensors="np")["pixel_values"][0]
    if probe.shape != (3, side, side):
        raise LoadFailed(
            f"the image processor makes {probe.shape} of an image, but the model takes (3, {side}, {side})"
        )
    return ImageProcessor(processor, (side // patch) ** 2 + 1)


def _grid(config: dict[str, Any]) -> tuple[int, int]:
    """Return an image's pixels and a patch's along one side."""
    vision = config.get("vision_config") or {}
    usual = {"clip": 32, "siglip": 16}[config["model_type"]]
    return int(vision.get("image_size") or 224), int(vision.get("patch_size") or usual)
