"""pylance, in its two documented ways and in blocks by hand, over a table in its default file format.

``pylance-scan`` is ``lance.torch.data.LanceDataset``, which yields whole batches. The sequential order uses the default
sampler. The shuffled orders use ``ShardedBatchSampler(randomize=True)``, which shuffles batches, not rows, and the
subset uses ``filter`` too.

``pylance-take`` is the map-style way: a ``DataLoader`` with ``shuffle=True`` over a data set that takes the rows of
each batch in one call, like ``SafeLanceDataset``, but as tensors instead of Python lists. The numbers of the subset's
rows come from a scan of the score column.

``pylance-blocks`` is what users write by hand where ``take`` is too slow: blocks of 64 rows, in random order, of which
32 are read at once by one call of ``take``, in a thread that reads the next 32 while the rows of these are delivered in
random order. Of tokens, whose rows are small, 512 blocks are read at once.

``get_safe_loader`` spawns the workers, because Lance does not work after a fork. The table has four fragments, because
in sequential order the fragments are divided among the workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.rows import IMAGES, SUBSET_PREDICATE, SUBSET_SCORES, TOKENS
from harness.task import DataPath, Epochs, Order, Place, System, Task

if TYPE_CHECKING:
    from harness.dataset import Dataset

_COLUMNS = ["tensor", "label"]
_NUM_FRAGMENTS = 4
#: The rows of a block, and the blocks that are read at once, for each kind of rows, of ``pylance-blocks``.
_BLOCK_ROWS = 64
_POOL_BLOCKS = {IMAGES: 32, TOKENS: 512}


def _write(dataset: Dataset, target: Path) -> None:
    import lance

    from harness.arrow_rows import reader

    rows_per_fragment = -(-dataset.num_rows // _NUM_FRAGMENTS)
    lance.write_dataset(reader(dataset), str(target / "samples.lance"), max_rows_per_file=rows_per_fragment)


def _uri(task: Task) -> tuple[str, dict[str, Any]]:
    options = {}
    if task.place is Place.S3:
        endpoint = {"aws_endpoint": str(task.endpoint), "aws_region": "us-east-1", "allow_http": "true"}
        options = {"storage_options": endpoint}
    return f"{task.url('pylance')}/samples.lance", options


def _open_scan(task: Task) -> Epochs:
    from lance.torch.data import LanceDataset, get_safe_loader
    from torch.utils.data import DataLoader

    uri, options = _uri(task)
    dataset = LanceDataset(
        uri,
        task.batch_size,
        dataset_options=options,
        columns=_COLUMNS,
        filter=SUBSET_PREDICATE if task.order is Order.SUBSET else None,
    )
    make: Any = DataLoader
    if task.num_workers:
        init = None if task.order is Order.SEQUENTIAL else _ShuffleBatches(task.seed)
        make = partial(get_safe_loader, num_workers=task.num_workers, worker_init_fn=init)
    elif task.order is not Order.SEQUENTIAL:
        _shuffle_batches(dataset, task.seed)
    loader = make(dataset, batch_size=None)

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        for batch in loader:
            yield batch["tensor"].view(-1, *task.kind.shape), batch["label"]

    return epoch


def _shuffle_batches(dataset: Any, seed: int) -> None:
    """Gives the data set of this process a sampler that yields its share of the batches in random order."""
    from lance.sampler import ShardedBatchSampler
    from lance.torch.dist import get_global_rank, get_global_world_size

    dataset.sampler = ShardedBatchSampler(get_global_rank(), get_global_world_size(), randomize=True, seed=seed)


class _ShuffleBatches:
    """Calls :func:`_shuffle_batches` in a worker process, because an explicit sampler does not find out its rank."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, worker: int) -> None:
        from torch.utils.data import get_worker_info

        info: Any = get_worker_info()
        _shuffle_batches(info.dataset, self._seed)


class _Taken:
    """A map-style data set that takes the rows of a batch in one call to Lance. Each worker opens the table itself."""

    def __init__(self, uri: str, options: dict[str, Any], num_rows: int) -> None:
        self._uri = uri
        self._options = options
        self._num_rows = num_rows
        self._dataset: Any = None

    def __len__(self) -> int:
        return self._num_rows

    def __getitems__(self, indices: Sequence[int]) -> tuple[Any, Any]:
        import lance
        import torch

        if self._dataset is None:
            self._dataset = lance.dataset(self._uri, **self._options)
        table = self._dataset.take(indices, columns=_COLUMNS).combine_chunks()
        tensors = table["tensor"].chunk(0).to_numpy_ndarray()
        return torch.from_numpy(tensors), torch.from_numpy(table["label"].chunk(0).to_numpy())


def _as_is(batch: Any) -> Any:
    return batch


def _open_take(task: Task) -> Epochs:
    import lance
    import numpy as np
    from lance.torch.data import get_safe_loader
    from torch.utils.data import DataLoader, Subset

    uri, options = _uri(task)
    table = lance.dataset(uri, **options)
    rows: Any = _Taken(uri, options, table.count_rows())
    if task.order is Order.SUBSET:
        scores = table.to_table(columns=["score"])["score"].to_numpy()
        rows = Subset(rows, np.flatnonzero(scores < SUBSET_SCORES).tolist())
    make: Any = partial(get_safe_loader, num_workers=task.num_workers) if task.num_workers else DataLoader
    loader = make(rows, batch_size=task.batch_size, shuffle=task.order is not Order.SEQUENTIAL, collate_fn=_as_is)
    return lambda number: iter(loader)


def _open_blocks(task: Task) -> Epochs:
    from concurrent.futures import ThreadPoolExecutor

    import lance
    import numpy as np
    import torch

    uri, options = _uri(task)
    table = lance.dataset(uri, **options)
    starts = np.arange(0, table.count_rows(), _BLOCK_ROWS)
    pool_blocks = _POOL_BLOCKS[task.kind]
    reader = ThreadPoolExecutor(1)

    def read(blocks: Any) -> tuple[Any, Any]:
        rows = np.concatenate([np.arange(start, min(start + _BLOCK_ROWS, task.num_rows)) for start in np.sort(blocks)])
        pool = table.take(rows, columns=_COLUMNS).combine_chunks()
        return pool["tensor"].chunk(0).to_numpy_ndarray(), pool["label"].chunk(0).to_numpy()

    def pools(generator: Any) -> Iterator[tuple[Any, Any]]:
        """Yields the tensors and labels of pools in random order; the next pool is being read meanwhile."""
        order = generator.permutation(starts)
        parts = [order[start : start + pool_blocks] for start in range(0, len(order), pool_blocks)]
        next_pool = reader.submit(read, parts[0])
        for number in range(len(parts)):
            tensors, labels = next_pool.result()
            if number + 1 < len(parts):
                next_pool = reader.submit(read, parts[number + 1])
            mixed = generator.permutation(len(labels))
            for start in range(0, len(mixed), task.batch_size):
                rows = mixed[start : start + task.batch_size]
                yield tensors[rows], labels[rows]

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        for tensors, labels in pools(np.random.default_rng([task.seed, number])):
            yield torch.from_numpy(tensors), torch.from_numpy(labels)

    return epoch


_WORKERS = (0, 1, 2)
_MODULES = ("lance", "lance.torch.data")


def _blocks_lack(path: DataPath) -> str | None:
    if path.order is Order.SEQUENTIAL:
        return "blocks are in random order; see pylance-scan"
    return "the rows are scattered; see pylance-take" if path.order is Order.SUBSET else None


def _take_lacks(path: DataPath) -> str | None:
    return "rows are taken for random order; see pylance-scan" if path.order is Order.SEQUENTIAL else None


SYSTEMS = [
    System("pylance-scan", "pylance `LanceDataset`", "pylance", _MODULES, "pylance", _write, _open_scan, _WORKERS),
    System(
        "pylance-take",
        "pylance `take`",
        "pylance",
        _MODULES,
        "pylance",
        _write,
        _open_take,
        _WORKERS,
        lacking=_take_lacks,
    ),
    System(
        "pylance-blocks",
        "pylance in blocks, by hand",
        "pylance",
        _MODULES,
        "pylance",
        _write,
        _open_blocks,
        lacking=_blocks_lack,
    ),
]
