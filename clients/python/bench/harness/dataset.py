"""The rows that every system gets.

Row *i* of *n* is an image ``uint8[3,224,224]`` of random bytes, which no codec shrinks, whose first four bytes are
*i*; a label, of 100 classes, by which the rows are sorted; and a score from 0 to 99, in random order, so that ``score
< 5`` selects 5 % of the rows, scattered over all. Whoever reads a batch can tell from the images alone which rows it
holds (:func:`row_ids`) and that their bytes arrived (:func:`touched_bytes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from harness.rows import IMAGE_BYTES, IMAGE_SHAPE, SUBSET_SCORES

__all__ = ["Array", "Block", "Dataset", "row_ids", "touched_bytes"]

Array = np.ndarray[Any, Any]

NUM_CLASSES = 100
NUM_SCORES = 100
#: The distance of the bytes of an image that a reader looks at: a page, so that each has to be in memory.
TOUCH_STRIDE = 4096
#: Rows that are made, and handed to writers, at a time.
BLOCK_ROWS = 64


@dataclass(frozen=True)
class Block:
    """Neighbouring rows."""

    images: Array
    labels: Array
    scores: Array


@dataclass(frozen=True)
class Dataset:
    """The rows in a folder, as flat files: what the other formats are written from, and what the ceiling reads."""

    folder: Path
    num_rows: int

    @classmethod
    def write(cls, folder: Path, num_rows: int) -> Dataset:
        """Makes the rows; the same ones wherever and whenever."""
        dataset = cls(folder, num_rows)
        ids = np.arange(num_rows)
        scores = np.random.default_rng(0).permutation(ids) % NUM_SCORES
        np.save(folder / "labels.npy", ids * NUM_CLASSES // num_rows)
        np.save(folder / "scores.npy", scores.astype(np.int32))
        touched = []
        with dataset.image_file.open("wb") as file:
            for start in range(0, num_rows, BLOCK_ROWS):
                images = _random_images(ids[start : start + BLOCK_ROWS])
                touched.append(touched_bytes(images))
                file.write(images.data)
        np.save(folder / "touched.npy", np.concatenate(touched))
        return dataset

    @property
    def image_file(self) -> Path:
        """All images, one after the other."""
        return self.folder / "images.bin"

    @cached_property
    def images(self) -> Array:
        """The images, mapped: uint8 of shape ``(rows, 3, 224, 224)``."""
        return np.memmap(self.image_file, np.uint8, "r", shape=(self.num_rows, *IMAGE_SHAPE))

    @cached_property
    def labels(self) -> Array:
        """The labels: int64 of shape ``(rows,)``."""
        labels: Array = np.load(self.folder / "labels.npy")
        return labels

    @cached_property
    def scores(self) -> Array:
        """The scores: int32 of shape ``(rows,)``."""
        scores: Array = np.load(self.folder / "scores.npy")
        return scores

    @cached_property
    def touched(self) -> Array:
        """What :func:`touched_bytes` says of each row."""
        touched: Array = np.load(self.folder / "touched.npy")
        return touched

    @property
    def subset(self) -> Array:
        """The ids of the rows that the predicate selects."""
        return np.flatnonzero(self.scores < SUBSET_SCORES)

    def blocks(self) -> Iterator[Block]:
        """All rows in order, a few at a time, in memory of their own."""
        for start in range(0, self.num_rows, BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, self.num_rows))
            yield Block(np.array(self.images[rows]), self.labels[rows], self.scores[rows])


def row_ids(images: Array) -> Array:
    """The ids of the rows with these images: int64 of shape ``(rows,)``."""
    head = np.ascontiguousarray(images.reshape(len(images), -1)[:, :4])
    return head.view("<i4").reshape(-1).astype(np.int64)


def touched_bytes(images: Array) -> Array:
    """The sum of one byte per page of each image: int64 of shape ``(rows,)``."""
    sums: Array = images.reshape(len(images), -1)[:, ::TOUCH_STRIDE].sum(axis=1, dtype=np.int64)
    return sums


def _random_images(ids: Array) -> Array:
    generator = np.random.default_rng(int(ids[0]) + 1)
    images = generator.integers(0, 256, (len(ids), IMAGE_BYTES), dtype=np.uint8)
    images[:, :4] = ids.astype("<i4").view(np.uint8).reshape(-1, 4)
    return images
