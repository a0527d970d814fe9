"""MosaicML Streaming: ``StreamingDataset`` and ``StreamingDataLoader`` over uncompressed shards of 64 MiB, the default.

The shuffled orders use ``shuffle=True`` and the default algorithm, ``py1e``. The library has no predicates. For the
subset, the better of two ways counts: ``index`` is random access by row numbers, which come from a NumPy array of
scores in place of an index outside the library; ``filter`` streams all rows and drops those that do not match. From S3,
the library downloads shards to a local copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.task import Epochs, Order, Place, System, Task

if TYPE_CHECKING:
    from harness.dataset import Dataset


def _write(dataset: Dataset, target: Path) -> None:
    from streaming import MDSWriter

    kind = dataset.kind
    tensor = f"ndarray:{kind.dtype}:{','.join(map(str, kind.shape))}"
    columns = {"tensor": tensor, "label": "int64", "score": "int32"}
    with MDSWriter(columns=columns, out=str(target / "shards")) as writer:
        for block in dataset.blocks():
            for row, label, score in zip(block.tensors, block.labels, block.scores, strict=True):
                writer.write({"tensor": row, "label": label, "score": score})


def _close_connections(dataset: Any) -> None:
    """Closes the connection that read the index. Forked workers would share it and read each other's responses."""
    for stream in dataset.streams:
        stream._downloader.clean_up()


def _open(task: Task) -> Epochs:
    from streaming import StreamingDataLoader, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    url = f"{task.url('mosaicml')}/shards"
    source = {"local": url} if task.place is Place.LOCAL else {"remote": url, "local": task.scratch}
    dataset: Any = StreamingDataset(
        **source,
        shuffle=task.order is not Order.SEQUENTIAL,
        shuffle_seed=task.seed,
        batch_size=task.batch_size,
        num_canonical_nodes=1,
    )
    _close_connections(dataset)
    arguments: dict[str, Any] = {
        "batch_size": task.batch_size,
        "num_workers": task.num_workers,
        "persistent_workers": task.num_workers > 0,
    }
    if task.order is Order.SUBSET:
        loader = _subset_loader(task, dataset, arguments)
    else:
        loader = StreamingDataLoader(dataset, **arguments)

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        for batch in loader:
            yield batch["tensor"], batch["label"]

    return epoch


def _subset_loader(task: Task, dataset: Any, arguments: dict[str, Any]) -> Any:
    from torch.utils.data import DataLoader, Subset

    from peers.matching import Matching

    if task.setting.variant == "filter":
        return DataLoader(Matching(dataset), **arguments)
    return DataLoader(Subset(dataset, task.dataset.subset.tolist()), shuffle=True, **arguments)


def _variants(order: Order) -> tuple[str, ...]:
    return ("index", "filter") if order is Order.SUBSET else ("",)


SYSTEMS = [
    System(
        "mosaicml",
        "MosaicML Streaming",
        "mosaicml-streaming",
        ("streaming",),
        "mosaicml",
        _write,
        _open,
        (0, 1, 2),
        keeps_copy=True,
        variants=_variants,
    )
]
