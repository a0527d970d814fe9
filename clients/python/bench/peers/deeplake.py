"""Deeplake 4, in its two documented ways, over a data set with its default chunks.

``deeplake-batches`` is ``batches()`` of a query's view, which prefetches in native threads. The query selects all rows
in order, or with ``ORDER BY RANDOM()``, and for the subset with the predicate too. ``deeplake-pytorch`` is a
``DataLoader`` over ``pytorch()`` of the view of the rows, with ``shuffle=True`` (except in sequential order) and forked
workers, as in Deeplake's documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.rows import SUBSET_PREDICATE
from harness.task import Epochs, Order, Place, System, Task

if TYPE_CHECKING:
    from harness.dataset import Dataset


def _write(dataset: Dataset, target: Path) -> None:
    import deeplake

    table = deeplake.create(f"file://{target}/samples")
    table.add_column("tensor", deeplake.types.Array(dataset.kind.dtype, shape=list(dataset.kind.shape)))
    table.add_column("label", "int64")
    table.add_column("score", "int32")
    for block in dataset.blocks():
        table.append({"tensor": block.tensors, "label": block.labels, "score": block.scores})
    table.commit()


def _open_table(task: Task) -> Any:
    import deeplake

    url = f"{task.url('deeplake')}/samples"
    if task.place is Place.LOCAL:
        return deeplake.open_read_only(f"file://{url}")
    creds = {
        "aws_access_key_id": "stoker",
        "aws_secret_access_key": "stoker-bench",
        "aws_region": "us-east-1",
        "endpoint_url": str(task.endpoint),
    }
    return deeplake.open_read_only(url, creds=creds)


def _query(task: Task) -> str:
    where = f" WHERE {SUBSET_PREDICATE}" if task.order is Order.SUBSET else ""
    return f"SELECT tensor, label{where}"


def _open_batches(task: Task) -> Epochs:
    import torch

    table = _open_table(task)
    query = _query(task) + ("" if task.order is Order.SEQUENTIAL else " ORDER BY RANDOM()")

    first = table.query(query)

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        view = table.query(query) if number else first
        for batch in view.batches(task.batch_size):
            yield torch.from_numpy(batch["tensor"]), torch.from_numpy(batch["label"])

    return epoch


def _open_pytorch(task: Task) -> Epochs:
    from torch.utils.data import DataLoader

    loader = DataLoader(
        _open_table(task).query(_query(task)).pytorch(),
        batch_size=task.batch_size,
        shuffle=task.order is not Order.SEQUENTIAL,
        num_workers=task.num_workers,
        persistent_workers=task.num_workers > 0,
        multiprocessing_context="fork" if task.num_workers else None,
    )

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        for batch in loader:
            yield batch["tensor"], batch["label"]

    return epoch


def _system(key: str, title: str, open_: Any, workers: tuple[int, ...]) -> System:
    return System(key, title, "deeplake", ("deeplake",), "deeplake", _write, open_, workers, keeps_copy=True)


SYSTEMS = [
    _system("deeplake-batches", "Deeplake `batches()`", _open_batches, (0,)),
    _system("deeplake-pytorch", "Deeplake `pytorch()`", _open_pytorch, (0, 1, 2)),
]
