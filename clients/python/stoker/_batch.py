"""Training batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from stoker import _native
from stoker._columns import numpy_column

__all__ = ["Batch", "Cursor", "Substitution"]

#: The address that stands for a table that does not supply a row.
_NO_ROW = 2**64 - 1


@dataclass(frozen=True)
class Cursor:
    """A place in a stream: all that is needed to continue anywhere.

    Attributes:
        stream_id: The stream: 64 hexadecimal digits.
        epoch: The epoch, from zero.
        position: The next position of the epoch's order that was not delivered, over all ranks.
    """

    stream_id: str
    epoch: int
    position: int


@dataclass(frozen=True)
class Substitution:
    """A row that stands for a bad one.

    Attributes:
        row: Its index in the batch.
        row_ids: The address of the bad row in each of :attr:`Batch.tables`, 2**64 - 1 where a table does not supply it.
        reason: What is wrong with the bad row, and where.
    """

    row: int
    row_ids: list[int]
    reason: str


class Batch(Mapping[str, "np.ndarray[Any, Any]"]):
    """One rank's rows of one global batch: a mapping of column names to NumPy arrays.

    Tensors have the shape ``(rows, *tensor_shape)``, vectors ``(rows, size)``, scalars ``(rows,)``. Numbers are
    read-only views of the Arrow memory, which lives as long as a view does. Timestamps are ``datetime64`` in the
    column's unit; text and binary values are objects.

    Example:
        >>> stream = lake.sql("SELECT image, label FROM digits").stream(batch_size=4)
        >>> batch = next(iter(stream))
        >>> batch["image"].shape, batch["image"].dtype
        ((4, 1, 8, 8), dtype('uint8'))
        >>> batch.num_rows, batch.num_valid, batch.cursor.position
        (4, 4, 4)
    """

    __slots__ = ("__weakref__", "_columns", "_data", "_first_step", "_handle", "_native")

    def __init__(self, native: _native.Batch, handle: _native.StreamHandle, first_step: int) -> None:
        self._native = native
        self._handle = handle
        self._first_step = first_step
        self._data: pa.RecordBatch = pa.record_batch(native)
        self._columns: dict[str, np.ndarray[Any, Any]] = {}

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._columns:
            index = self._data.schema.get_field_index(name)
            if index < 0:
                raise KeyError(name)
            self._columns[name] = numpy_column(self._data.schema.field(index), self._data.column(index))
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data.schema.names)

    def __len__(self) -> int:
        return len(self._data.schema.names)

    def to_arrow(self) -> pa.RecordBatch:
        """Returns the rows as a record batch, without copying."""
        return self._data

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        return self._native.__arrow_c_array__(requested_schema)

    @property
    def num_rows(self) -> int:
        """Rows, padding included."""
        return self._native.num_rows

    @property
    def num_valid(self) -> int:
        """Rows that are not padding; they come first."""
        return self._native.num_valid

    @property
    def valid(self) -> np.ndarray[Any, Any]:
        """A bool array of shape ``(rows,)``: False for padding, which repeats rows of the same global batch."""
        return np.arange(self.num_rows) < self.num_valid

    @property
    def step(self) -> int:
        """The number of the global batch: they are counted from the start of the training, over all epochs."""
        return self._first_step + self._native.step

    @property
    def cursor(self) -> Cursor:
        """Where a resume after this batch begins."""
        return Cursor(self._handle.stream_id, self._native.epoch, self._native.position)

    @property
    def row_ids(self) -> np.ndarray[Any, Any]:
        """The row addresses (fragment id times 2^32 plus row) in the table at its snapshot, for provenance.

        A uint64 array of shape ``(rows,)``, or ``(rows, tables)`` for queries that take rows from several tables, with
        2^64 - 1 where a table does not supply a row.
        """
        addresses = [pa.array(addrs).to_numpy() for addrs in self._native.row_addrs()]
        return addresses[0] if len(addresses) == 1 else np.stack(addresses, axis=1)

    @property
    def tables(self) -> list[tuple[str, int]]:
        """The tables that supply rows and their versions, in the order of the columns of :attr:`row_ids`."""
        return [table for tables in self._handle.row_tables for table in tables]

    @property
    def source(self) -> np.ndarray[Any, Any]:
        """Which query of a mixture each row comes from, from zero: an int64 array of shape ``(rows,)``."""
        source = np.zeros(self.num_rows, dtype=np.int64)
        addresses = [pa.array(addrs).to_numpy() for addrs in self._native.row_addrs()]
        first = 0
        for index, tables in enumerate(self._handle.row_tables):
            for addrs in addresses[first : first + len(tables)]:
                source[addrs != _NO_ROW] = index
            first += len(tables)
        return source

    @property
    def substituted(self) -> list[Substitution]:
        """The rows that stand for bad ones, ascending; see ``bad_rows`` of :meth:`Query.stream`."""
        return [Substitution(*found) for found in self._native.substituted]

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self._data.schema)
        return f"Batch(step={self.step}, rows={self.num_rows}, valid={self.num_valid}, {columns})"
