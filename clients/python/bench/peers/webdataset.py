"""WebDataset: ``WebDataset`` and ``WebLoader`` over tar files of 64 MB with the bytes of each row's tensor.

The shuffled orders use ``shardshuffle`` over all shards and ``shuffle(1000)``, sizes from WebDataset's documentation.
The subset uses ``select``, which reads all rows and drops those that do not match before they are decoded. WebDataset
reads from the S3-compatible server with ``curl``, because the URLs have the scheme ``http``. The workers assemble the
batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.rows import SUBSET_SCORES, RowKind
from harness.task import Epochs, Order, Place, System, Task

if TYPE_CHECKING:
    from harness.dataset import Dataset

_SHARD_BYTES = 64e6


def _write(dataset: Dataset, target: Path) -> None:
    from webdataset import ShardWriter

    with ShardWriter(str(target / "%06d.tar"), maxsize=_SHARD_BYTES, verbose=0) as writer:
        row = 0
        for block in dataset.blocks():
            for tensor, label, score in zip(block.tensors, block.labels, block.scores, strict=True):
                sample = {"tensor.bin": tensor.tobytes(), "label.cls": int(label), "score.cls": int(score)}
                writer.write({"__key__": f"{row:09}", **sample})
                row += 1


def _matches(sample: dict[str, Any]) -> bool:
    return int(sample["score.cls"]) < SUBSET_SCORES


def _decode(kind: RowKind, sample: dict[str, Any]) -> tuple[Any, int]:
    import numpy as np

    return np.frombuffer(sample["tensor.bin"], kind.dtype).reshape(kind.shape), int(sample["label.cls"])


def _open(task: Task) -> Epochs:
    from webdataset import WebDataset, WebLoader

    names = sorted(shard.name for shard in task.folder("webdataset").glob("*.tar"))
    root = task.http_url("webdataset") if task.place is Place.S3 else task.url("webdataset")
    urls = [f"{root}/{name}" for name in names]
    is_shuffled = task.order is not Order.SEQUENTIAL
    dataset = WebDataset(urls, shardshuffle=len(urls) if is_shuffled else False, seed=task.seed)
    if task.order is Order.SUBSET:
        dataset = dataset.select(_matches)
    dataset = dataset.map(partial(_decode, task.kind))
    if is_shuffled:
        dataset = dataset.shuffle(1000)
    dataset = dataset.batched(task.batch_size)
    loader = WebLoader(dataset, batch_size=None, num_workers=task.num_workers, persistent_workers=task.num_workers > 0)

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        import torch

        for tensors, labels in loader:
            yield torch.as_tensor(tensors), torch.as_tensor(labels)

    return epoch


SYSTEMS = [System("webdataset", "WebDataset", "webdataset", ("webdataset",), "webdataset", _write, _open, (0, 1, 2))]
