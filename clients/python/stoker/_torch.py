"""The PyTorch loader. Imported on use: PyTorch is optional."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.dlpack import from_dlpack

from stoker._batch import Batch, Cursor, Substitution
from stoker._columns import PlainColumn, plain_column
from stoker._device import DeviceCopier
from stoker._errors import InvalidRequestError
from stoker._stats import StreamStats
from stoker._stream import Stream

__all__ = ["VALID_KEY", "TorchBatch", "TorchLoader"]

#: The key of the validity mask in a batch.
VALID_KEY = "_valid"


class TorchBatch(dict[str, Any]):
    """A dict of tensors and lists that also knows its place.

    Attributes:
        cursor: Where a resume after this batch begins.
        step: The number of the global batch: they are counted from the start of the training, over all epochs.
        num_valid: Rows that are not padding; they come first.
        row_ids: A uint64 NumPy array of row addresses; see :attr:`Batch.row_ids`.
        substituted: The rows that stand for bad ones.
    """

    def __init__(self, values: Mapping[str, Any], batch: Batch) -> None:
        super().__init__(values)
        self.cursor: Cursor = batch.cursor
        self.step: int = batch.step
        self.num_valid: int = batch.num_valid
        self.row_ids: np.ndarray[Any, Any] = batch.row_ids
        self.substituted: list[Substitution] = batch.substituted

    @property
    def valid(self) -> torch.Tensor:
        """A bool tensor of shape ``(rows,)``: False for padding."""
        mask: torch.Tensor = self[VALID_KEY]
        return mask


class TorchLoader(IterableDataset[TorchBatch]):
    """An iterable of dicts of tensors. Made by :meth:`Query.torch`.

    Needs no worker processes and no ``DataLoader``: native threads fetch ahead without Python's lock. Passes, breaks
    and epochs work as for :class:`Stream`.

    A batch maps each column to

    - a tensor of shape ``(rows, *tensor_shape)`` for tensors, ``(rows, size)`` for vectors, ``(rows,)`` for numbers and
      booleans, all without copying the Arrow memory except for booleans; a tensor may be changed in place;
    - an int64 tensor of shape ``(rows,)`` for timestamps and durations, in the column's unit, and int32 days for dates;
    - a list of ``str``, ``bytes`` or other Python values for other types;

    and ``"_valid"`` to a bool tensor of shape ``(rows,)``, which is False for padding; it is there in every batch,
    which is a :class:`TorchBatch`.

    In a ``DataLoader``, use ``DataLoader(loader, batch_size=None)``. With several workers each global batch is split
    once more, so that a worker's batches are smaller and no row comes twice. The place then advances in the workers
    only, so that checkpoints need ``num_workers=0``, and each pass needs :meth:`set_epoch` before it.

    A loader may be pickled (for ``spawn``) and used after ``fork``.
    """

    def __init__(self, stream: Stream, device: Any = None) -> None:
        super().__init__()
        names = stream.schema.names
        if VALID_KEY in names:
            raise InvalidRequestError(f"column {VALID_KEY} has the name of the validity mask; give it another with AS")
        self._stream = stream
        self._device = None if device is None else torch.device(device)
        self._narrowed = False

    @property
    def stream(self) -> Stream:
        """The stream below: stream id, snapshots, schema, rank."""
        return self._stream

    @property
    def epoch(self) -> int:
        """The epoch that iterating delivers, from zero; the next one once a pass has ended."""
        return self._stream.epoch

    def __iter__(self) -> Iterator[TorchBatch]:
        stream = self._stream
        worker = get_worker_info()
        if worker is not None and not self._narrowed:  # in a worker process, whose copy of the loader is its own
            stream._for_worker(worker.id, worker.num_workers)
            self._narrowed = True
        ended = False
        try:
            while True:
                place = stream._place_changes
                for batch, values in self._pairs():
                    stream._handed(batch)
                    yield TorchBatch(values, batch)
                    if stream._place_changes != place:
                        break
                else:
                    stream._end_epoch()
                    ended = True
                    return
        finally:
            if ended:  # what was opened of the next epoch stays
                stream._close_running()
            else:
                stream.close()

    def _pairs(self) -> Iterator[tuple[Batch, dict[str, Any]]]:
        pairs = ((batch, tensors(batch)) for batch in self._stream._batches())
        if self._device is not None and self._device.type != "cpu":
            return DeviceCopier(self._device).copied(pairs)
        return pairs

    def __len__(self) -> int:
        """Batches from where the epoch or the last resume began to the end of the epoch; equal on all ranks."""
        return len(self._stream)

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
        """Starts an epoch from its beginning, unless it is the current one; see :meth:`Stream.set_epoch`."""
        self._stream.set_epoch(epoch)

    def skip(self, steps: int) -> int:
        """Leaves out the next global batches of this epoch; see :meth:`Stream.skip`."""
        return self._stream.skip(steps)

    def set_weights(self, weights: Sequence[float]) -> None:
        """Changes the shares of a mixture's queries from the next step on; see :meth:`Stream.set_weights`."""
        self._stream.set_weights(weights)

    def stats(self) -> StreamStats:
        """Returns the counters of the running or else the last pass."""
        return self._stream.stats()

    def close(self) -> None:
        """Stops the running pass, if there is one, and drops what was read ahead."""
        self._stream.close()

    def __repr__(self) -> str:
        return f"TorchLoader({self._stream!r})"


def tensors(batch: Batch) -> dict[str, Any]:
    """Returns the columns of a batch as tensors and lists, with the validity mask."""
    data = batch.to_arrow()
    values = {field.name: _column(field, column) for field, column in zip(data.schema, data.columns, strict=True)}
    values[VALID_KEY] = torch.from_numpy(batch.valid)
    return values


def _column(field: pa.Field, array: pa.Array) -> Any:
    plain = plain_column(field, array)
    if plain is not None:
        return _tensor(plain, len(array))
    kind = array.type
    if pa.types.is_boolean(kind) and not array.null_count:
        return torch.from_numpy(array.to_numpy(zero_copy_only=False))
    if pa.types.is_floating(kind):  # has nulls: NaN
        return torch.from_numpy(array.to_numpy(zero_copy_only=False).copy())
    if pa.types.is_temporal(kind) and not array.null_count and kind.bit_width in (32, 64):
        integers = array.view(pa.int64() if kind.bit_width == 64 else pa.int32())
        return _tensor(PlainColumn(integers, (), False), len(array))
    return array.to_pylist()


def _tensor(plain: PlainColumn, num_rows: int) -> torch.Tensor:
    """A tensor over the Arrow memory, which lives as long as the tensor: DLPack hands the ownership over."""
    values = from_dlpack(plain.values)
    if plain.bfloat16:
        values = values.view(torch.bfloat16)
    return values.view(num_rows, *plain.shape)
