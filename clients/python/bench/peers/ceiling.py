"""The ceiling that the hardware sets: a mapped file for local paths, parallel GETs for S3.

Locally, each batch is copied from a mapped file of all tensors, by a slice or by the numbers of its rows. From S3, 16
connections read ranges of up to 8 MB into parts of 16 MB, or of one batch if that is larger, of which up to four are
prefetched. The batches are slices of these parts. Shuffled rows are read in the order of the file, because no order can
be faster than to read each byte once. Each row of a subset is read by a GET of its own, on 64 connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.getter import Getter
from harness.task import Epochs, Order, Place, System, Task

if TYPE_CHECKING:
    from harness.dataset import Array, Dataset

_RANGE_BYTES = 8_000_000
_PART_BYTES = 16_000_000
_PARTS_AHEAD = 4


def _write(dataset: Dataset, target: Path) -> None:
    """Does nothing, because the flat files exist already."""


def _ids(task: Task, epoch: int) -> Array:
    """Returns the row ids of the path in the order in which an epoch reads them."""
    import numpy as np

    dataset = task.dataset
    ids: Array = dataset.subset if task.order is Order.SUBSET else np.arange(task.num_rows)
    if task.order is Order.SEQUENTIAL or (task.place is Place.S3 and task.order is Order.SHUFFLED):
        return ids
    return np.random.default_rng([task.seed, epoch]).permutation(ids)


def _open(task: Task) -> Epochs:
    return _from_s3(task) if task.place is Place.S3 else _from_memmap(task)


def _from_memmap(task: Task) -> Epochs:
    import numpy as np
    import torch

    tensors, labels = task.dataset.tensors, task.dataset.labels

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        ids = _ids(task, number)
        for start in range(0, len(ids), task.batch_size):
            rows = ids[start : start + task.batch_size]
            if task.order is Order.SEQUENTIAL:
                batch = np.array(tensors[rows[0] : rows[-1] + 1])
            else:
                batch = np.asarray(tensors[rows])
            yield torch.from_numpy(batch), torch.from_numpy(labels[rows])

    return epoch


def _from_s3(task: Task) -> Epochs:
    import numpy as np
    import torch

    kind, labels, batch_size = task.kind, task.dataset.labels, task.batch_size
    part_rows = max(1, _PART_BYTES // (batch_size * kind.row_bytes)) * batch_size
    pool = ThreadPoolExecutor(64 if task.order is Order.SUBSET else 16)
    getter = Getter(f"{task.http_url('flat')}/{task.dataset.tensor_file.name}")

    def ask(rows: Array) -> tuple[Array, Array, list[Future[None]]]:
        part = np.empty((len(rows), kind.row_bytes), np.uint8)
        flat = part.reshape(-1)
        if task.order is Order.SUBSET:
            asked = [pool.submit(getter.get, int(row) * kind.row_bytes, part[i]) for i, row in enumerate(rows)]
        else:
            begin = int(rows[0]) * kind.row_bytes
            starts = range(0, len(flat), _RANGE_BYTES)
            asked = [pool.submit(getter.get, begin + start, flat[start : start + _RANGE_BYTES]) for start in starts]
        return rows, part.view(kind.dtype).reshape(-1, *kind.shape), asked

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        ids = _ids(task, number)
        parts = (ids[start : start + part_rows] for start in range(0, len(ids), part_rows))
        queue: deque[tuple[Array, Array, list[Future[None]]]] = deque()
        while True:
            while len(queue) < _PARTS_AHEAD and (rows := next(parts, None)) is not None:
                queue.append(ask(rows))
            if not queue:
                return
            rows, tensors, asked = queue.popleft()
            for done in asked:
                done.result()
            for start in range(0, len(rows), batch_size):
                batch = slice(start, start + batch_size)
                yield torch.from_numpy(tensors[batch]), torch.from_numpy(labels[rows[batch]])

    return epoch


SYSTEMS = [System("ceiling", "ceiling (memmap; raw GETs)", None, (), "flat", _write, _open)]
