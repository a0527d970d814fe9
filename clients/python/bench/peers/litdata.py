"""LitData: ``StreamingDataset`` and ``StreamingDataLoader`` over chunks of 64 MB, the default, made by ``optimize``.

``optimize`` calls a generator for each block of rows. Tokens are a tensor in a dict, like images, because
``TokensLoader`` delivers tokens without labels. The shuffled orders use ``shuffle=True``. LitData has no predicates.
For the subset, the better of two ways counts: ``index`` is ``StreamingDataset.subset`` of the row numbers, which come
from a NumPy array of scores in place of an index outside LitData; ``filter`` streams all rows and drops those that do
not match. From S3, LitData downloads chunks to a local cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.task import Epochs, Order, Place, System, Task

if TYPE_CHECKING:
    from harness.dataset import Dataset


def _samples(dataset: Dataset, start: int) -> Iterator[dict[str, Any]]:
    """Yields the rows of the block that begins with the row ``start``."""
    import torch

    block = dataset.block(start)
    for tensor, label, score in zip(block.tensors, block.labels, block.scores, strict=True):
        yield {"tensor": torch.from_numpy(tensor), "label": int(label), "score": int(score)}


def _write(dataset: Dataset, target: Path) -> None:
    from litdata import optimize

    optimize(
        partial(_samples, dataset),
        inputs=list(dataset.block_starts),
        output_dir=str(target / "chunks"),
        chunk_bytes="64MB",
        num_workers=1,
        reorder_files=False,
        keep_data_ordered=True,
        verbose=False,
    )


def _allow_http() -> None:
    """Lets LitData download chunks over plain HTTP, for which it has no option. The server here has no TLS."""
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"


def _open(task: Task) -> Epochs:
    from litdata import StreamingDataLoader, StreamingDataset
    from torch.utils.data import DataLoader

    from peers.matching import Matching

    arguments: dict[str, Any] = {}
    if task.place is Place.S3:
        _allow_http()
        storage = {
            "endpoint_url": task.endpoint,
            "aws_access_key_id": "stoker",
            "aws_secret_access_key": "stoker-bench",
            "region_name": "us-east-1",
        }
        arguments = {"storage_options": storage, "cache_dir": task.scratch, "max_cache_size": "100GB"}
    dataset = StreamingDataset(
        f"{task.url('litdata')}/chunks", shuffle=task.order is not Order.SEQUENTIAL, seed=task.seed, **arguments
    )
    loading: dict[str, Any] = {
        "batch_size": task.batch_size,
        "num_workers": task.num_workers,
        "persistent_workers": task.num_workers > 0,
    }
    loader: Any
    if task.setting.variant == "filter":
        loader = DataLoader(Matching(dataset), **loading)
    else:
        is_subset = task.order is Order.SUBSET
        loader = StreamingDataLoader(dataset.subset(task.dataset.subset.tolist()) if is_subset else dataset, **loading)

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        for batch in loader:
            yield batch["tensor"], batch["label"]

    return epoch


def _variants(order: Order) -> tuple[str, ...]:
    return ("index", "filter") if order is Order.SUBSET else ("",)


SYSTEMS = [
    System(
        "litdata",
        "LitData",
        "litdata",
        ("litdata",),
        "litdata",
        _write,
        _open,
        (0, 1, 2),
        keeps_copy=True,
        variants=_variants,
    )
]
