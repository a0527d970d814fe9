"""Stoker, in process: ``Query.torch``, which needs no worker processes.

The query selects tensor and label, for the subset with the predicate. The order is ``shuffle="block"``, the default, or
the query's own order for sequential paths. Other options that cost or save time have their defaults too, so each row
is compared with its checksum. The lake keeps the row set of a query: the first measurement of a path makes it, and
later ones find it.
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
    import stoker
    from harness.arrow_rows import reader

    stoker.connect(str(target)).create_table("samples", reader(dataset))


def _open(task: Task) -> Epochs:
    import stoker

    options = None
    if task.place is Place.S3:
        options = {"aws_endpoint": str(task.endpoint), "aws_region": "us-east-1", "allow_http": "true"}
    where = f" WHERE {SUBSET_PREDICATE}" if task.order is Order.SUBSET else ""
    query = stoker.connect(task.url("stoker"), storage_options=options).sql(f"SELECT tensor, label FROM samples{where}")
    loader = query.torch(
        batch_size=task.batch_size,
        seed=task.seed,
        shuffle=False if task.order is Order.SEQUENTIAL else "block",
        last_batch="uneven",
        rank=0,
        world_size=1,
    )

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        loader.set_epoch(number)
        for batch in loader:
            yield batch["tensor"], batch["label"]

    return epoch


SYSTEMS = [System("stoker", "Stoker", "stoker", ("stoker",), "stoker", _write, _open)]
