"""Grain over a memory map of the flat files, with the threads of its reader.

``MapDataset.source(...).shuffle(seed).batch(...)``, as its documentation shows, over a source whose items are views of
the mapped rows. Batches are read by 16 threads, the default of ``ReadOptions``. Grain has no source of S3.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.task import DataPath, Epochs, Order, Place, System, Task

if TYPE_CHECKING:
    from harness.dataset import Array, Dataset


def _write(dataset: Dataset, target: Path) -> None:
    """Does nothing, because the flat files exist already."""


class _Mapped:
    """A random-access source of some of the mapped rows."""

    def __init__(self, dataset: Dataset, rows: Array) -> None:
        self._tensors, self._labels, self._rows = dataset.tensors, dataset.labels, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        row = self._rows[index]
        return self._tensors[row], self._labels[row]


def _open(task: Task) -> Epochs:
    import grain
    import numpy as np
    import torch

    dataset = task.dataset
    source = _Mapped(dataset, dataset.subset if task.order is Order.SUBSET else np.arange(task.num_rows))

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        rows = grain.MapDataset.source(source)
        if task.order is not Order.SEQUENTIAL:
            rows = rows.shuffle(seed=task.seed + number)
        for tensors, labels in rows.batch(task.batch_size).to_iter_dataset():
            yield torch.from_numpy(tensors), torch.from_numpy(labels)

    return epoch


def _lacks(path: DataPath) -> str | None:
    return "it has no source of S3" if path.place is Place.S3 else None


SYSTEMS = [System("grain", "Grain over a memory map", "grain", ("grain",), "flat", _write, _open, lacking=_lacks)]
