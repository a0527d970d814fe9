"""The PyTorch loader. It is imported on its first use, because PyTorch is optional."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch
from torch.utils.data import IterableDataset, get_worker_info

from stoker import _embedding
from stoker._batch import Batch
from stoker._device import DeviceCopier
from stoker._errors import InvalidRequestError
from stoker._stats import StreamStats
from stoker._stream import Stream
from stoker._torch_batch import TorchBatch, mask, tensors

__all__ = ["TorchLoader", "TorchOptions"]


@dataclass(frozen=True, kw_only=True)
class TorchOptions:
    """The options that convert the columns of a batch; see :meth:`Query.torch`."""

    device: Any = None
    transform: Callable[[dict[str, Any]], Any] | None = None
    collate_fn: Callable[[list[dict[str, Any]]], Any] | None = None
    valid_key: str | None = None
    int64_columns: Sequence[str] = ()


class TorchLoader(IterableDataset[Any]):
    """An iterable of dicts of tensors, which :meth:`Query.torch` makes.

    It needs no worker processes and no ``DataLoader``: native threads prefetch batches without Python's global lock.
    Passes, breaks and epochs work as for :class:`Stream`.

    A batch is a :class:`TorchBatch`, a dict that maps each column to

    - a tensor of shape ``(rows, *tensor_shape)`` for tensors, ``(rows, size)`` for vectors, ``(rows,)`` for numbers and
      booleans, all of them, except booleans, without copying the Arrow memory; a tensor may be changed in place;
    - an int64 tensor of shape ``(rows,)`` for timestamps and durations, in the column's unit, and int32 days for dates;
    - a list of ``str``, ``bytes`` or other Python values for other types.

    ``batch.valid`` is a bool tensor of shape ``(rows,)``, which is False for padding.

    ``DataLoader(loader, batch_size=None)`` passes batches on unchanged. With worker processes, each global batch is
    divided among the workers too, so that their batches are smaller and no row comes twice. The position then advances
    only in the workers, so that checkpoints need ``num_workers=0``, and :meth:`set_epoch` must be called before each
    pass.

    A loader may be pickled (for ``spawn``) and used after ``fork``.
    """

    def __init__(self, stream: Stream, options: TorchOptions) -> None:
        super().__init__()
        _check_columns(stream.schema, options)
        self._stream = stream
        self._options = options
        self._device = _device(options.device)
        self._narrowed = False

    @property
    def stream(self) -> Stream:
        """The stream that this loader reads, with its id, snapshots, schema and rank."""
        return self._stream

    @property
    def epoch(self) -> int:
        """The epoch that iterating delivers, zero-based; after a pass has ended, the next epoch."""
        return self._stream.epoch

    @property
    def num_rows(self) -> int:
        """The number of rows of an epoch over all ranks."""
        return self._stream.num_rows

    @property
    def dataset(self) -> LoaderRows:
        """An object whose length is :attr:`num_rows`, from which trainers take the number of samples."""
        return LoaderRows(self.num_rows)

    @property
    def batch_size(self) -> int:
        """The maximum number of rows of this rank's batches."""
        return self._stream._config.rank_batch

    @property
    def drop_last(self) -> bool:
        """Whether the last global batch is left out if it is not full."""
        return self._stream._config.last_batch == "drop"

    @property
    def remaining(self) -> int:
        """The number of batches that are left in this epoch, equal on all ranks."""
        return self._stream.remaining

    def __getattr__(self, name: str) -> Any:
        if name in ("sampler", "batch_sampler"):
            raise AttributeError(
                f"a loader has no {name}: its order is that of the stream, and load_state_dict goes to any place of it "
                "(with the Trainer of Transformers: TrainingArguments(ignore_data_skip=True))"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __iter__(self) -> Iterator[Any]:
        caller, stream = sys._getframe(1), self._stream
        _embedding.refuse_second_batching(caller)
        _embedding.refuse_second_sharding(caller, stream.world_size)
        worker = get_worker_info()
        if worker is not None and not self._narrowed:  # a worker process has its own copy of the loader
            if worker.id == 0:
                _embedding.warn_of_workers(worker.num_workers)
            stream._for_worker(worker.id, worker.num_workers)
            self._narrowed = True
        return stream._iterate(self._pairs)

    def _pairs(self, batches: Iterable[Batch]) -> Iterable[tuple[Batch, Any]]:
        pairs: Iterable[tuple[Batch, Any]] = ((batch, self._values(batch)) for batch in batches)
        if self._device is not None and self._device.type != "cpu":
            pairs = DeviceCopier(self._device).copied(pairs)
        return ((batch, self._placed(values, batch)) for batch, values in pairs)

    def _values(self, batch: Batch) -> Any:
        options = self._options
        values: Any = tensors(batch, options.int64_columns)
        if options.valid_key is not None:
            values[options.valid_key] = mask(batch.num_rows, batch.num_valid)
        if options.transform is not None:
            values = options.transform(values)
        return values if options.collate_fn is None else options.collate_fn(_samples(values, batch.num_rows))

    def _placed(self, values: Any, batch: Batch) -> Any:
        return TorchBatch._of(values, batch._rows, self._device) if isinstance(values, Mapping) else values

    def __len__(self) -> int:
        """The number of batches of this epoch, equal on all ranks; for a ``DataLoader``, those of all its workers."""
        num_workers = _embedding.num_workers_of(sys._getframe(1))
        if num_workers > 0:
            _embedding.warn_of_workers(num_workers)
        return len(self._stream) * max(num_workers, 1)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the last batch that the loop got; see :meth:`Stream.state_dict`."""
        return self._stream.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | str) -> None:
        """Continues after the state's position; see :meth:`Stream.load_state_dict`.

        Raises:
            StateMismatchError: The state belongs to another stream.
        """
        self._stream.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """Starts an epoch from its beginning, unless it is the current epoch; see :meth:`Stream.set_epoch`."""
        self._stream.set_epoch(epoch)

    def restart(self) -> None:
        """Returns to the start of the epoch that iterating delivers; see :meth:`Stream.restart`."""
        self._stream.restart()

    def skip(self, steps: int) -> int:
        """Skips the next global batches of this epoch; see :meth:`Stream.skip`."""
        return self._stream.skip(steps)

    def set_weights(self, weights: Sequence[float]) -> None:
        """Changes the shares of a mixture's queries from the next step on; see :meth:`Stream.set_weights`."""
        self._stream.set_weights(weights)

    def stats(self) -> StreamStats:
        """Returns the counters of the running pass or, if none is running, of the last pass."""
        return self._stream.stats()

    def receipt(self) -> dict[str, Any]:
        """Returns the receipt of the loops over this loader; see :meth:`Stream.receipt`."""
        return self._stream.receipt()

    def substituted(self) -> list[dict[str, Any]]:
        """Returns the bad rows that another row replaced; see :meth:`Stream.substituted`."""
        return self._stream.substituted()

    def close(self) -> None:
        """Ends the running pass, if there is one, and drops the prefetched batches."""
        self._stream.close()

    def __repr__(self) -> str:
        return f"TorchLoader({self._stream!r})"


class LoaderRows:
    """The rows of an epoch, of which only the number is known."""

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows

    def __len__(self) -> int:
        return self._num_rows


def _device(device: Any) -> torch.device | None:
    if device is None:
        return None
    try:
        chosen = torch.device(device)
    except (RuntimeError, ValueError) as unknown:
        raise InvalidRequestError(f"device is {device!r}: {unknown}") from None
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise InvalidRequestError(f"device is {device!r}; PyTorch finds {torch.cuda.device_count()} CUDA devices here")
    return chosen


def _check_columns(schema: pa.Schema, options: TorchOptions) -> None:
    key = options.valid_key
    if key is not None and key in schema.names:
        raise InvalidRequestError(f"valid_key is {key!r}, which a column has as its name; choose another")
    for name, call in (("transform", options.transform), ("collate_fn", options.collate_fn)):
        if call is not None and not callable(call):
            raise InvalidRequestError(f"{name} is {call!r}; it must be a function")
    if isinstance(options.int64_columns, str):
        raise InvalidRequestError(f"int64_columns is {options.int64_columns!r}; it must be a list of names of columns")
    for name in options.int64_columns:
        if name not in schema.names:
            raise InvalidRequestError(f"int64_columns names {name!r}; the columns are {', '.join(schema.names)}")
        if not pa.types.is_integer(schema.field(name).type):
            raise InvalidRequestError(
                f"int64_columns names {name!r}, which holds {schema.field(name).type}, no integers"
            )


def _samples(values: Mapping[str, Any], num_rows: int) -> list[dict[str, Any]]:
    """Returns the rows of a batch, one dict each, for a collate function."""
    return [{name: column[row] for name, column in values.items()} for row in range(num_rows)]
