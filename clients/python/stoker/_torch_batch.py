"""Batches of PyTorch tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import torch
from torch.utils.dlpack import from_dlpack

from stoker._batch import Batch
from stoker._column_shapes import ColumnShape, column_shapes
from stoker._device import with_tensors
from stoker._loader_batch import LoaderBatch
from stoker._nulls import NULL_ROW, warn_of_nulls
from stoker._per_row import stacked
from stoker._ragged import Layout
from stoker._rows import BatchRows
from stoker._torch_ragged import ragged_values

__all__ = ["TorchBatch", "mask", "stacked_tensors", "tensors"]


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

    def is_valid(self, column: str) -> torch.Tensor:
        """Returns which rows have a value in a column: a bool tensor of shape ``(rows,)`` on the batch's device."""
        return torch.from_numpy(super().is_valid(column)).to(self._device or "cpu")

    def to(self, device: Any, non_blocking: bool = False) -> TorchBatch:
        """Returns the batch with its tensors on a device; cursor and mask are kept."""
        values = with_tensors(dict(self), lambda _, tensor: tensor.to(device, non_blocking=non_blocking))
        return TorchBatch.on(torch.device(device), values, self._rows)

    def pin_memory(self) -> TorchBatch:
        """Returns the batch with its tensors in pinned memory; cursor and mask are kept."""
        values = with_tensors(dict(self), lambda _, tensor: tensor.pin_memory())
        return TorchBatch.on(self._device, values, self._rows)


def mask(num_rows: int, num_valid: int, device: torch.device | None = None) -> torch.Tensor:
    """Returns a bool tensor of shape ``(num_rows,)`` whose first ``num_valid`` values are True."""
    return torch.arange(num_rows, device=device) < num_valid


def stacked_tensors(parts: list[Any]) -> Any:
    """Returns the values of rows as one tensor, if they are tensors, arrays or numbers of one shape; or as they are."""
    if parts and all(isinstance(part, torch.Tensor) for part in parts):
        return torch.stack(parts) if len({part.shape for part in parts}) == 1 else parts
    found = stacked(parts)
    return torch.from_numpy(found) if found.dtype.kind in "biuf" else parts


def tensors(
    batch: Batch, int64_columns: Collection[str] = (), layouts: Mapping[str, Layout] | None = None
) -> dict[str, Any]:
    """Returns the columns of a batch as tensors and lists.

    Args:
        batch: The batch.
        int64_columns: Columns of integers that become int64.
        layouts: For columns of rows of different lengths: what ``ragged`` of :meth:`Query.torch` may be. Default:
            lists.
    """
    values: dict[str, Any] = {}
    for index, (name, capsule, view) in enumerate(batch.native.tensors()):
        if capsule is None:
            values.update(_other_column(batch, index, name, (layouts or {}).get(name, "list")))
            continue
        # DLPack transfers the ownership: the memory lives as long as the tensor.
        tensor = from_dlpack(capsule)
        values[name] = tensor if view is None else tensor.view(getattr(torch, view))
    for name in batch.rows.masks:
        _warn_of_nulls(batch, name)
    for name in int64_columns:
        values[name] = values[name].long()
    return values


def _warn_of_nulls(batch: Batch, name: str) -> None:
    schema = batch.to_arrow().schema
    shape = column_shapes(schema)[schema.get_field_index(name)]
    if shape.nulls == "zero":
        warn_of_nulls(batch.rows, name, NULL_ROW if shape.is_ragged else "0")


def _other_column(batch: Batch, index: int, name: str, layout: Layout) -> dict[str, Any]:
    """Returns a column whose rows are no numbers of one shape, with the keys of its padding."""
    data = batch.to_arrow()
    shape = column_shapes(data.schema)[index]
    if shape.is_ragged:
        return ragged_values(batch.native, index, name, shape, layout)
    return {name: _objects(shape, data.column(index))}


def _objects(shape: ColumnShape, array: pa.Array) -> Any:
    """Returns a column of times as integers, unless it has nulls, and other columns as a list of Python values."""
    if isinstance(array, pa.ExtensionArray) or array.null_count:
        return array.to_pylist()
    if shape.nulls == "nat" or pa.types.is_time(array.type):  # times of day are objects for NumPy alone
        bits = array.type.bit_width
        return from_dlpack(array.view(pa.int64() if bits == 64 else pa.int32()))
    return array.to_pylist()
