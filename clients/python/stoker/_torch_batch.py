"""Batches of PyTorch tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.utils.dlpack import from_dlpack

from stoker._batch import Batch
from stoker._columns import PlainColumn, flags, numbers, plain_column, with_nulls
from stoker._errors import InvalidRequestError
from stoker._rows import BatchRows, Cursor, Substitution

__all__ = ["TorchBatch", "mask", "tensors"]


class TorchBatch(dict[str, Any]):
    """A dict of tensors and lists that also has the cursor and the mask of its batch.

    Trainers rebuild batches as ``type(batch)({...})``. Such a copy is a dict of the same columns without cursor and
    mask; :meth:`to` and :meth:`pin_memory` keep them.
    """

    _rows: BatchRows | None = None
    _device: torch.device | None = None

    @classmethod
    def _of(cls, values: Mapping[str, Any], rows: BatchRows | None, device: torch.device | None) -> TorchBatch:
        batch = cls(values)
        batch._rows, batch._device = rows, device
        return batch

    @property
    def cursor(self) -> Cursor:
        """The cursor at which a resume after this batch begins."""
        return self._known().cursor

    @property
    def step(self) -> int:
        """The number of the global batch, counted from the start of the training over all epochs."""
        return self._known().step

    @property
    def num_rows(self) -> int:
        """The number of rows, padding included."""
        return self._known().num_rows

    @property
    def num_valid(self) -> int:
        """The number of rows that are not padding; these rows come first."""
        return self._known().num_valid

    @property
    def valid(self) -> torch.Tensor:
        """A bool tensor of shape ``(rows,)`` on the batch's device: False for padding."""
        rows = self._known()
        return mask(rows.num_rows, rows.num_valid, self._device)

    @property
    def row_ids(self) -> np.ndarray[Any, Any]:
        """A uint64 NumPy array of row addresses; see :attr:`Batch.row_ids`."""
        return self._known().row_ids

    @property
    def tables(self) -> list[tuple[str, int]]:
        """The tables that supply rows and their versions; see :attr:`Batch.tables`."""
        return self._known().tables

    @property
    def source(self) -> np.ndarray[Any, Any]:
        """The index of the mixture's query that each row comes from; see :attr:`Batch.source`."""
        return self._known().source

    @property
    def substituted(self) -> list[Substitution]:
        """The rows that replace bad ones."""
        return self._known().substituted

    def to(self, device: Any, non_blocking: bool = False) -> TorchBatch:
        """Returns the batch with its tensors on a device; cursor and mask are kept."""
        values = {
            name: value.to(device, non_blocking=non_blocking) if isinstance(value, torch.Tensor) else value
            for name, value in self.items()
        }
        return TorchBatch._of(values, self._rows, torch.device(device))

    def pin_memory(self) -> TorchBatch:
        """Returns the batch with its tensors in pinned memory; cursor and mask are kept."""
        values = {
            name: value.pin_memory() if isinstance(value, torch.Tensor) else value for name, value in self.items()
        }
        return TorchBatch._of(values, self._rows, self._device)

    def _known(self) -> BatchRows:
        if self._rows is None:
            raise InvalidRequestError(
                "this batch was rebuilt from its columns, for example by a trainer, so its cursor and mask are lost: "
                "use those of the batch that the loader returned, or get the mask as a column: torch(valid_key='valid')"
            )
        return self._rows


def mask(num_rows: int, num_valid: int, device: torch.device | None = None) -> torch.Tensor:
    """Returns a bool tensor of shape ``(num_rows,)`` whose first ``num_valid`` values are True."""
    return torch.arange(num_rows, device=device) < num_valid


def tensors(batch: Batch, int64_columns: Collection[str] = ()) -> dict[str, Any]:
    """Returns the columns of a batch as tensors and lists; the integers of ``int64_columns`` become int64."""
    data = batch.to_arrow()
    values = {field.name: _column(field, column) for field, column in zip(data.schema, data.columns, strict=True)}
    for name in int64_columns:
        values[name] = values[name].long()
    return values


def _column(field: pa.Field, array: pa.Array) -> Any:
    plain = plain_column(field, array)
    if plain is not None:
        return _tensor(plain, len(array))
    kind = array.type
    if pa.types.is_boolean(kind) and not array.null_count:
        return torch.from_numpy(flags(array))
    if pa.types.is_floating(kind):  # floats with nulls, which become NaN
        return torch.from_numpy(with_nulls(numbers(array), array, np.nan))
    if pa.types.is_temporal(kind) and not array.null_count and kind.bit_width in (32, 64):
        integers = array.view(pa.int64() if kind.bit_width == 64 else pa.int32())
        return _tensor(PlainColumn(integers, (), False), len(array))
    return array.to_pylist()


def _tensor(plain: PlainColumn, num_rows: int) -> torch.Tensor:
    """Returns a tensor over the Arrow memory, which lives as long as the tensor: DLPack transfers the ownership."""
    values = from_dlpack(plain.values)
    if plain.bfloat16:
        values = values.view(torch.bfloat16)
    return values.view(num_rows, *plain.shape)
