"""The rows that every system gets.

Row *i* of *n* has a tensor, a label and a score. The tensor is of one kind (``harness/rows.py``), with random bytes,
which no codec compresses; its first four bytes are *i*. The label is one of 100 classes, by which the rows are sorted.
The score is from 0 to 99 in random order, so that ``score < 5`` selects 5 % of the rows, scattered over the table. The
tensors of a batch alone tell which rows it has (:func:`row_ids`) and that their bytes arrived (:func:`touched_bytes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from harness.rows import SUBSET_SCORES, RowKind

__all__ = ["Array", "Block", "Dataset", "row_ids", "touched_bytes"]

Array = np.ndarray[Any, Any]

NUM_CLASSES = 100
NUM_SCORES = 100
#: The bytes of a row that a reader reads are at most a page apart, so that each page must be in memory.
TOUCH_STRIDE_MAX = 4096
#: A reader reads at least so many bytes of a row, also of a row that is smaller than a page.
TOUCHED_MIN = 4


@dataclass(frozen=True)
class Block:
    """Adjacent rows."""

    tensors: Array
    labels: Array
    scores: Array


@dataclass(frozen=True)
class Dataset:
    """The rows in a folder, as flat files, from which the other formats are written and which the ceiling reads."""

    folder: Path
    kind: RowKind
    num_rows: int

    @classmethod
    def write(cls, folder: Path, kind: RowKind, num_rows: int) -> Dataset:
        """Writes the rows. For a kind and a number of rows they are always the same."""
        dataset = cls(folder, kind, num_rows)
        ids = np.arange(num_rows)
        scores = np.random.default_rng(0).permutation(ids) % NUM_SCORES
        np.save(folder / "labels.npy", ids * NUM_CLASSES // num_rows)
        np.save(folder / "scores.npy", scores.astype(np.int32))
        touched = []
        with dataset.tensor_file.open("wb") as file:
            for start in range(0, num_rows, kind.block_rows):
                tensors = _random_tensors(kind, ids[start : start + kind.block_rows])
                touched.append(touched_bytes(tensors))
                file.write(tensors.data)
        np.save(folder / "touched.npy", np.concatenate(touched))
        return dataset

    @property
    def tensor_file(self) -> Path:
        """The file with the bytes of all tensors, one after the other."""
        return self.folder / "tensors.bin"

    @cached_property
    def tensors(self) -> Array:
        """The tensors, mapped: the shape is ``(rows, *kind.shape)``."""
        return np.memmap(self.tensor_file, self.kind.dtype, "r", shape=(self.num_rows, *self.kind.shape))

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

    @property
    def block_starts(self) -> range:
        """The first row of each block."""
        return range(0, self.num_rows, self.kind.block_rows)

    def block(self, start: int) -> Block:
        """Returns up to ``kind.block_rows`` rows from ``start`` on; the tensors are copied into memory."""
        rows = slice(start, min(start + self.kind.block_rows, self.num_rows))
        return Block(np.array(self.tensors[rows]), self.labels[rows], self.scores[rows])

    def blocks(self) -> Iterator[Block]:
        """Yields all rows in order, block by block."""
        return map(self.block, self.block_starts)


def row_ids(tensors: Array) -> Array:
    """Returns the ids of the rows with these tensors: int64 of shape ``(rows,)``."""
    head = np.ascontiguousarray(_row_bytes(tensors)[:, :4])
    return head.view("<i4").reshape(-1).astype(np.int64)


def touched_bytes(tensors: Array) -> Array:
    """Returns the sum of some bytes of each row, at least one per page and four per row: int64 of shape ``(rows,)``."""
    rows = _row_bytes(tensors)
    stride = min(TOUCH_STRIDE_MAX, rows.shape[1] // TOUCHED_MIN)
    sums: Array = rows[:, ::stride].sum(axis=1, dtype=np.int64)
    return sums


def _row_bytes(tensors: Array) -> Array:
    """Returns the bytes of each row: uint8 of shape ``(rows, row bytes)``, without a copy of contiguous tensors."""
    return np.ascontiguousarray(tensors).reshape(len(tensors), -1).view(np.uint8)


def _random_tensors(kind: RowKind, ids: Array) -> Array:
    generator = np.random.default_rng(int(ids[0]) + 1)
    rows = generator.integers(0, 256, (len(ids), kind.row_bytes), dtype=np.uint8)
    rows[:, :4] = ids.astype("<i4").view(np.uint8).reshape(-1, 4)
    return rows.view(kind.dtype).reshape(-1, *kind.shape)
