"""The PyTorch loader. It is imported on its first use, because PyTorch is optional."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from stoker import _embedding
from stoker._batch import Batch
from stoker._converted import Transform, check_threads, converted, transformed
from stoker._device import DeviceCopier, device_of
from stoker._loader import LoaderRows, StreamLoader
from stoker._loader_options import check_functions, check_int64_columns, check_keys, columns_to_mask
from stoker._masked import mask_key
from stoker._per_row import PerRow, samples
from stoker._ragged import Layouts
from stoker._stream import Stream
from stoker._torch_batch import TorchBatch, mask, stacked_tensors, tensors
from stoker._torch_ragged import torch_layouts

__all__ = ["TorchLoader", "TorchOptions"]


@dataclass(frozen=True, kw_only=True)
class TorchOptions:
    """The options that convert the columns of a batch; see :meth:`Query.torch`."""

    device: Any = None
    transform: Transform | None = None
    transform_threads: int = 0
    collate_fn: Callable[[list[dict[str, Any]]], Any] | None = None
    valid_key: str | None = None
    int64_columns: Sequence[str] = ()
    ragged: Layouts = None
    null_masks: Sequence[str] | bool = ()


class TorchLoader(StreamLoader, IterableDataset[Any]):
    """An iterable of dicts of tensors, which :meth:`Query.torch` makes.

    It needs no worker processes and no ``DataLoader``: native threads prefetch batches without Python's global lock.
    Passes, breaks and epochs work as for :class:`Stream`.

    A batch is a :class:`TorchBatch`, a dict that maps each column to

    - a tensor of shape ``(rows, *tensor_shape)`` for tensors, ``(rows, size)`` for vectors, ``(rows,)`` for numbers and
      booleans, all of them, except booleans and columns with nulls, without copying the Arrow memory; a tensor may be
      changed in place; a null is zero or false, and NaN among floats;
    - an int64 tensor of shape ``(rows,)`` for timestamps and durations, in the column's unit, and int32 days for dates;
    - for rows of different lengths (lists of numbers, tensors of which each has its own shape), what ``ragged`` says;
    - a list of ``str``, ``bytes`` or other Python values for other types.

    ``batch.valid`` is a bool tensor of shape ``(rows,)``, which is False for padding, and ``batch.is_valid(column)``
    one that is False for nulls.

    ``DataLoader(loader, batch_size=None)`` passes batches on unchanged. With worker processes, each global batch is
    divided among the workers too, so that their batches are smaller and no row comes twice. The position then advances
    only in the workers, so that checkpoints need ``num_workers=0``, and :meth:`set_epoch` must be called before each
    pass.

    A loader may be pickled (for ``spawn``) and used after ``fork``.
    """

    def __init__(self, stream: Stream, options: TorchOptions) -> None:
        super().__init__(stream)
        check_functions(transform=options.transform, collate_fn=options.collate_fn)
        check_int64_columns(stream.schema, options.int64_columns)
        self._options, self._num_threads = options, check_threads(options.transform_threads)
        self._layouts = torch_layouts(stream.schema, options.ragged)
        self._masked = columns_to_mask(stream.schema, options.null_masks)
        check_keys(stream.schema, options.valid_key, self._masked, self._layouts)
        self._device = device_of(options.device)
        self._narrowed = False

    @property
    def dataset(self) -> LoaderRows:
        """An object whose length is :attr:`num_rows`, from which trainers take the number of samples."""
        return LoaderRows(self.num_rows)

    def __getattr__(self, name: str) -> Any:
        if name in ("sampler", "batch_sampler"):
            raise AttributeError(
                f"a loader has no {name}: its order is that of the stream, and load_state_dict goes to any place of it "
                "(with the Trainer of Transformers: TrainingArguments(ignore_data_skip=True))"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __iter__(self) -> Iterator[Any]:
        caller, stream = _embedding.caller(), self.stream
        _embedding.refuse_second_batching(caller)
        _embedding.refuse_second_sharding(caller, stream.world_size)
        worker = get_worker_info()
        if worker is not None and not self._narrowed:  # a worker process has its own copy of the loader
            if worker.id == 0:
                _embedding.warn_of_workers(worker.num_workers)
            stream.for_worker(worker.id, worker.num_workers)
            self._narrowed = True
        return stream.passes(self._pairs)

    def __len__(self) -> int:
        """The number of batches of this epoch, equal on all ranks; for a ``DataLoader``, those of all its workers."""
        num_workers = _embedding.num_workers_of(_embedding.caller())
        if num_workers > 0:
            _embedding.warn_of_workers(num_workers)
        return len(self.stream) * max(num_workers, 1)

    def _pairs(self, batches: Iterable[Batch]) -> Iterable[tuple[Batch, Any]]:
        pairs: Iterable[tuple[Batch, Any]] = converted(batches, self._values, self._num_threads)
        if self._device is not None and self._device.type != "cpu":
            pairs = DeviceCopier(self._device).copied(pairs)
        return ((batch, self._placed(values, batch)) for batch, values in pairs)

    def _values(self, batch: Batch) -> Any:
        options = self._options
        masks: Any = {mask_key(column): torch.from_numpy(batch.is_valid(column)) for column in self._masked}
        values: Any = tensors(batch, options.int64_columns, self._layouts) | masks
        if options.valid_key is not None:
            values[options.valid_key] = mask(batch.num_rows, batch.num_valid)
        if options.collate_fn is not None and isinstance(options.transform, PerRow):
            return options.collate_fn(options.transform.rows(values, batch))
        values = transformed(options.transform, values, batch, stacked_tensors)
        return values if options.collate_fn is None else options.collate_fn(list(samples(values, batch.num_rows)))

    def _placed(self, values: Any, batch: Batch) -> Any:
        return TorchBatch.on(self._device, values, batch.rows) if isinstance(values, Mapping) else values
