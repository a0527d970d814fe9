"""Batches of PyTorch tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.utils.dlpack import from_dlpack

from stoker._batch import Batch
from stoker._column_shapes import ColumnShape, column_shapes
from stoker._columns import flags, numbers, plain_column, with_nulls
from stoker._loader_batch import LoaderBatch
from stoker._rows import BatchRows

__all__ = ["TorchBatch", "mask", "tensors"]


class TorchBatch(LoaderBatch):
    """A dict of tensors and lists that also has the cursor and the mask of its batch.

    Trainers rebuild batches as ``type(batch)({...})``. Such a copy is a dict of the same columns without cursor and
    mask; :meth:`to` and :meth:`pin_memory` keep them.
    """

    _made_by = "torch"

    _device: torch.device | None = None

    @classmethod
    def on(cls, device: torch.device | None, values: Mapping[str, Any], rows: BatchRows | None) -> TorchBatch:
        """Returns a batch of values on a device, with the rows that :attr:`Batch.rows` tells."""
        batch = cls.of(values, rows)
        batch._device = device
        return batch

    @property
    def valid(self) -> torch.Tensor:
        """A bool tensor of shape ``(rows,)`` on the batch's device: False for padding."""
        rows = self.rows
        return mask(rows.num_rows, rows.num_valid, self._device)

    def to(self, device: Any, non_blocking: bool = False) -> TorchBatch:
        """Returns the batch with its tensors on a device; cursor and mask are kept."""
        values = {
            name: value.to(device, non_blocking=non_blocking) if isinstance(value, torch.Tensor) else value
            for name, value in self.items()
        }
        return TorchBatch.on(torch.device(device), values, self._rows)

    def pin_memory(self) -> TorchBatch:
        """Returns the batch with its tensors in pinned memory; cursor and mask are kept."""
        values = {
            name: value.pin_memory() if isinstance(value, torch.Tensor) else value for name, value in self.items()
        }
        return TorchBatch.on(self._device, values, self._rows)


def mask(num_rows: int, num_valid: int, device: torch.device | None = None) -> torch.Tensor:
    """Returns a bool tensor of shape ``(num_rows,)`` whose first ``num_valid`` values are True."""
    return torch.arange(num_rows, device=device) < num_valid


def tensors(batch: Batch, int64_columns: Collection[str] = ()) -> dict[str, Any]:
    """Returns the columns of a batch as tensors and lists; the integers of ``int64_columns`` become int64."""
    values = {
        # DLPack transfers the ownership: the memory lives as long as the tensor.
        name: _other_column(batch, index) if capsule is None else from_dlpack(capsule)
        for index, (name, capsule) in enumerate(batch.native.tensors())
    }
    for name in int64_columns:
        values[name] = values[name].long()
    return values


def _other_column(batch: Batch, index: int) -> Any:
    """Returns a column that is no tensor of numbers without nulls."""
    data = batch.to_arrow()
    return _converted(data.schema.field(index), column_shapes(data.schema)[index], data.column(index))


def _converted(field: pa.Field, shape: ColumnShape, array: pa.Array) -> Any:
    """Returns a column as a tensor or a list, with the means of pyarrow."""
    plain = plain_column(field, shape, array)  # raises for nulls that the column cannot hold
    if plain is not None:  # the engine makes this tensor itself, unless the values do not fit the shape: `view` raises
        return from_dlpack(plain.values).view(len(array), *plain.shape)
    if isinstance(array, pa.ExtensionArray):
        return array.to_pylist()
    if shape.nulls == "nan" and shape.dtype is not None:  # floats with nulls
        return torch.from_numpy(with_nulls(numbers(array, shape.dtype), array, np.nan))
    if array.null_count:
        return array.to_pylist()
    if shape.dtype is not None and shape.dtype.kind == "b":
        return torch.from_numpy(flags(array))
    if shape.nulls == "nat" or pa.types.is_time(array.type):  # times of day are objects for NumPy alone
        bits = array.type.bit_width
        return from_dlpack(array.view(pa.int64() if bits == 64 else pa.int32()))
    return array.to_pylist()
