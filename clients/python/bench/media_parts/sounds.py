"""FLAC files: all of the sound, and a part from its middle, beside ``soundfile``."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import soundfile

import stoker
from harness.turns import Pair
from media_parts.tables import Files, decoding

__all__ = ["pairs"]

_RATE = 44_100


def pairs(lake: stoker.Lake, divisor: int, threads: int) -> Iterator[Pair]:
    """Yields the pairs; ``divisor`` divides the number of rows."""
    files = Files(lake, "sounds", ["sound"], 200 // divisor, lambda row: [_flac(row)])
    whole = stoker.AudioClip(sample_rate=_RATE, seconds=10, mono=False)
    yield decoding(
        "FLAC, 10 s",
        files,
        whole,
        "soundfile",
        lambda row: soundfile.read(io.BytesIO(row[0]), dtype="float32", always_2d=True)[0],
        0.9,
        threads,
    )
    part = stoker.AudioClip(sample_rate=_RATE, seconds=1, start=5.0, mono=False)
    yield decoding(
        "FLAC, 1 s of 10",
        files,
        part,
        "soundfile that seeks",
        lambda row: soundfile.read(io.BytesIO(row[0]), start=5 * _RATE, frames=_RATE, dtype="float32")[0],
        0.9,
        threads,
    )


def _flac(seed: int) -> bytes:
    time_axis = np.arange(10 * _RATE) / _RATE
    noise = np.random.default_rng(seed).normal(0, 0.01, (len(time_axis), 2))
    tones = 0.3 * np.sin(2 * np.pi * (220 + seed) * time_axis) + 0.1 * np.sin(2 * np.pi * 3_000 * time_axis)
    file = io.BytesIO()
    soundfile.write(file, tones[:, None] + noise, _RATE, format="FLAC", subtype="PCM_16")
    return file.getvalue()
