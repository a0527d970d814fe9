"""Training batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from stoker import _native
from stoker._column_shapes import ColumnShape, column_shapes
from stoker._columns import imported_batch, numpy_column
from stoker._rows import BatchRows, Cursor, Substitution

__all__ = ["Batch"]


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

    __slots__ = ("__weakref__", "_columns", "_imported", "_native", "_rows", "_shapes")

    def __init__(self, native: _native.Batch) -> None:
        self._native = native
        self._rows = BatchRows(native.place)
        self._imported: pa.RecordBatch | None = None
        self._columns: dict[str, np.ndarray[Any, Any]] = {}
        self._shapes: tuple[ColumnShape, ...] | None = None

    @property
    def _data(self) -> pa.RecordBatch:
        # Loaders of tensors do not need it, and importing it costs as much as their own work.
        if self._imported is None:
            self._imported = imported_batch(self._native)
        return self._imported

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._columns:
            schema = self._data.schema
            index = schema.get_field_index(name)
            if index < 0:
                raise KeyError(name)
            if self._shapes is None:
                self._shapes = column_shapes(schema)
            self._columns[name] = numpy_column(schema.field(index), self._shapes[index], self._data.column(index))
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
    def native(self) -> _native.Batch:
        """The batch of the engine, which this object wraps."""
        return self._native

    @property
    def rows(self) -> BatchRows:
        """What is known of the rows besides their columns, which adapters keep with the values that they make."""
        return self._rows

    @property
    def num_rows(self) -> int:
        """The number of rows, padding included."""
        return self._rows.num_rows

    @property
    def num_valid(self) -> int:
        """The number of rows that are not padding; these rows come first."""
        return self._rows.num_valid

    @property
    def valid(self) -> np.ndarray[Any, Any]:
        """A bool array of shape ``(rows,)``: False for padding, which repeats rows of the same global batch."""
        return np.arange(self.num_rows) < self.num_valid

    @property
    def step(self) -> int:
        """The number of the global batch, counted from the start of the training over all epochs."""
        return self._rows.step

    @property
    def cursor(self) -> Cursor:
        """The cursor at which a resume after this batch begins."""
        return self._rows.cursor

    @property
    def row_ids(self) -> np.ndarray[Any, Any]:
        """The row addresses (fragment id times 2^32 plus row) in the table at its snapshot, for provenance.

        A uint64 array of shape ``(rows,)``, or ``(rows, tables)`` for queries that take rows from several tables, with
        2^64 - 1 where a table does not supply a row.
        """
        return self._rows.row_ids

    @property
    def tables(self) -> list[tuple[str, int]]:
        """The tables that supply rows and their versions, in the order of the columns of :attr:`row_ids`."""
        return self._rows.tables

    @property
    def source(self) -> np.ndarray[Any, Any]:
        """The index of the mixture's query that each row comes from: an int64 array of shape ``(rows,)``."""
        return self._rows.source

    @property
    def substituted(self) -> list[Substitution]:
        """The rows that replace bad ones, in ascending order; see ``bad_rows`` of :meth:`Query.stream`."""
        return self._rows.substituted

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self._data.schema)
        return f"Batch(step={self.step}, rows={self.num_rows}, valid={self.num_valid}, {columns})"
