"""The rows that every system gets.

Row *i* of *n* has an image, a label and a score. The image is ``uint8[3,224,224]`` of random bytes, which no codec
compresses; its first four bytes are *i*. The label is one of 100 classes, by which the rows are sorted. The score is
from 0 to 99 in random order, so that ``score < 5`` selects 5 % of the rows, scattered over the table. The images of a
batch alone tell which rows it has (:func:`row_ids`) and that their bytes arrived (:func:`touched_bytes`).
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
#: The distance in bytes between the bytes of an image that a reader reads: a page, so that each page must be in memory.
TOUCH_STRIDE = 4096
#: The number of rows in a block.
BLOCK_ROWS = 64


@dataclass(frozen=True)
class Block:
    """Adjacent rows."""

    images: Array
    labels: Array
    scores: Array


@dataclass(frozen=True)
class Dataset:
    """The rows in a folder, as flat files, from which the other formats are written and which the ceiling reads."""

    folder: Path
    num_rows: int

    @classmethod
    def write(cls, folder: Path, num_rows: int) -> Dataset:
        """Writes the rows. For a number of rows they are always the same."""
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
        """The file with the bytes of all images, one after the other."""
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
        """The result of :func:`touched_bytes` for each row: int64 of shape ``(rows,)``."""
        touched: Array = np.load(self.folder / "touched.npy")
        return touched

    @property
    def subset(self) -> Array:
        """The ids of the rows that the predicate selects: int64 of shape ``(selected rows,)``, ascending."""
        return np.flatnonzero(self.scores < SUBSET_SCORES)

    def blocks(self) -> Iterator[Block]:
        """Yields all rows in order, in blocks of up to :data:`BLOCK_ROWS` rows; the images are copied into memory."""
        for start in range(0, self.num_rows, BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, self.num_rows))
            yield Block(np.array(self.images[rows]), self.labels[rows], self.scores[rows])


def row_ids(images: Array) -> Array:
    """Returns the ids of the rows with these images: int64 of shape ``(rows,)``."""
    head = np.ascontiguousarray(images.reshape(len(images), -1)[:, :4])
    return head.view("<i4").reshape(-1).astype(np.int64)


def touched_bytes(images: Array) -> Array:
    """Returns the sum of one byte per page of each image: int64 of shape ``(rows,)``."""
    sums: Array = images.reshape(len(images), -1)[:, ::TOUCH_STRIDE].sum(axis=1, dtype=np.int64)
    return sums


def _random_images(ids: Array) -> Array:
    generator = np.random.default_rng(int(ids[0]) + 1)
    images = generator.integers(0, 256, (len(ids), IMAGE_BYTES), dtype=np.uint8)
    images[:, :4] = ids.astype("<i4").view(np.uint8).reshape(-1, 4)
    return images
