"""JPEG files: at full size beside libjpeg-turbo, and at a smaller one beside Pillow with ``draft``."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import numpy as np
import simplejpeg
from PIL import Image

import stoker
from harness.turns import Pair
from media_parts.tables import Files, decoding

__all__ = ["pairs"]


def pairs(lake: stoker.Lake, divisor: int, threads: int) -> Iterator[Pair]:
    """Yields the pairs; ``divisor`` divides the numbers of rows."""
    small = Files(lake, "jpeg_small", ["image"], 2_000 // divisor, lambda row: [_jpeg(256, 256, row % 50)])
    turbo = stoker.ImageTransform(size=256, fit="stretch", layout="hwc", jpeg="turbo")
    alone = "libjpeg-turbo (simplejpeg)"
    yield decoding("JPEG 256²", small, turbo, alone, lambda row: simplejpeg.decode_jpeg(row[0]), 0.95, threads)
    large = Files(lake, "jpeg_large", ["image"], max(40 // divisor, 4), lambda row: [_jpeg(2000, 3000, row % 4)])
    for jpeg in ("turbo_scaled", "zune"):
        decoder = stoker.ImageTransform(size=224, fit="stretch", layout="hwc", jpeg=jpeg)
        name = f"JPEG 3000x2000 to 224², {jpeg}"
        # zune decodes at full size, which no bar asks to be as fast.
        bar = 1.0 if jpeg == "turbo_scaled" else None
        yield decoding(name, large, decoder, "Pillow with draft", _drafted, bar, threads)


def _jpeg(height: int, width: int, seed: int) -> bytes:
    """Returns a file with the statistics of a photograph: smooth shapes with some noise."""
    y, x = np.mgrid[0:height, 0:width]
    noise = np.random.default_rng(seed).integers(0, 16, (height, width))
    wave = np.sin((x + seed * 9) / 17) * np.cos(y / 23) * 90 + 120 + noise
    pixels = np.stack([wave, wave / 2 + x * 100 / width, wave / 3 + y * 100 / height], axis=-1)
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def _drafted(row: Sequence[bytes]) -> np.ndarray:
    image = Image.open(io.BytesIO(row[0]))
    image.draft("RGB", (448, 448))
    return np.asarray(image.resize((224, 224), Image.Resampling.BILINEAR))
