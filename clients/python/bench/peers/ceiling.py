"""The ceiling that the hardware sets: a mapped file for local paths, parallel GETs for S3.

Locally, each batch is copied from a mapped file of all images, by a slice or by the numbers of its rows. From S3, 16
connections read ranges of up to 8 MB into the memory of the batches, of which up to four are prefetched. Shuffled rows
are read in the order of the file, because no order can be faster than to read each byte once. Each row of a subset is
read by a GET of its own, on 64 connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.getter import Getter
from harness.rows import IMAGE_BYTES, IMAGE_SHAPE
from harness.task import Epochs, Order, Place, System, Task

if TYPE_CHECKING:
    from harness.dataset import Array, Dataset

_RANGE_BYTES = 8_000_000
_BATCHES_AHEAD = 4


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

    images, labels = task.dataset.images, task.dataset.labels

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        ids = _ids(task, number)
        for start in range(0, len(ids), task.batch_size):
            rows = ids[start : start + task.batch_size]
            if task.order is Order.SEQUENTIAL:
                pixels = np.array(images[rows[0] : rows[-1] + 1])
            else:
                pixels = np.asarray(images[rows])
            yield torch.from_numpy(pixels), torch.from_numpy(labels[rows])

    return epoch


def _from_s3(task: Task) -> Epochs:
    import numpy as np
    import torch

    labels = task.dataset.labels
    pool = ThreadPoolExecutor(64 if task.order is Order.SUBSET else 16)
    getter = Getter(f"{task.http_url('flat')}/images.bin")

    def ask(rows: Array) -> tuple[Array, Array, list[Future[None]]]:
        pixels = np.empty((len(rows), IMAGE_BYTES), np.uint8)
        flat = pixels.reshape(-1)
        if task.order is Order.SUBSET:
            asked = [pool.submit(getter.get, int(row) * IMAGE_BYTES, pixels[i]) for i, row in enumerate(rows)]
        else:
            begin = int(rows[0]) * IMAGE_BYTES
            starts = range(0, len(flat), _RANGE_BYTES)
            asked = [pool.submit(getter.get, begin + start, flat[start : start + _RANGE_BYTES]) for start in starts]
        return rows, pixels, asked

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        ids = _ids(task, number)
        batches = (ids[start : start + task.batch_size] for start in range(0, len(ids), task.batch_size))
        queue: deque[tuple[Array, Array, list[Future[None]]]] = deque()
        while True:
            while len(queue) < _BATCHES_AHEAD and (rows := next(batches, None)) is not None:
                queue.append(ask(rows))
            if not queue:
                return
            rows, pixels, asked = queue.popleft()
            for done in asked:
                done.result()
            yield torch.from_numpy(pixels.reshape(-1, *IMAGE_SHAPE)), torch.from_numpy(labels[rows])

    return epoch


SYSTEMS = [System("ceiling", "ceiling (memmap; raw GETs)", None, (), "flat", _write, _open)]
