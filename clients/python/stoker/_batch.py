"""Training batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from stoker import _native
from stoker._column_shapes import ColumnShape, column_shapes
from stoker._columns import fixed_rows, imported_batch, other_column
from stoker._errors import InvalidRequestError
from stoker._nulls import NULL_ROW, know_of_nulls, warn_of_nulls
from stoker._ragged import Jagged, Layout, Pad, PaddedRows, numpy_values, padded_rows, ragged_rows
from stoker._rows import BatchRows, Cursor, Substitution

__all__ = ["Batch"]


class Batch(Mapping[str, "np.ndarray[Any, Any]"]):
    """One rank's rows of one global batch: a mapping of column names to NumPy arrays.

    Tensors have the shape ``(rows, *tensor_shape)``, vectors ``(rows, size)``, scalars ``(rows,)``. Numbers are
    read-only views of the Arrow memory, which lives as long as a view does. Timestamps are ``datetime64`` in the
    column's unit; text and binary values are objects. Rows of different lengths (lists of numbers, and tensors of which
    each has its own shape) are an array of objects with one array for each row; :meth:`jagged` and :meth:`padded`
    return them in one array.

    A null is zero or false in tensors, vectors, integers and booleans, an empty row among rows of different lengths,
    NaN for floats, NaT for times, and ``None`` for objects; :meth:`is_valid` tells which rows have a value.

    Example:
        >>> stream = lake.sql("SELECT image, label FROM digits").stream(batch_size=4)
        >>> batch = next(iter(stream))
        >>> batch["image"].shape, batch["image"].dtype
        ((4, 1, 8, 8), dtype('uint8'))
        >>> batch.num_rows, batch.num_valid, batch.cursor.position
        (4, 4, 4)
    """

    __slots__ = ("__weakref__", "_columns", "_imported", "_known_schema", "_native", "_rows", "_shapes")

    def __init__(self, native: _native.Batch) -> None:
        self._native = native
        self._rows = BatchRows(native.place)
        self._imported: pa.RecordBatch | None = None
        self._known_schema: pa.Schema | None = None
        self._columns: dict[str, np.ndarray[Any, Any]] = {}
        self._shapes: tuple[ColumnShape, ...] | None = None

    @property
    def _data(self) -> pa.RecordBatch:
        # Loaders of tensors do not need it, and importing it costs as much as their own work.
        if self._imported is None:
            self._imported = imported_batch(self._native)
        return self._imported

    @property
    def _schema(self) -> pa.Schema:
        # Importing all columns would make those of packs that nobody asks for.
        if self._known_schema is None:
            self._known_schema = pa.schema(self._native.schema)
        return self._known_schema

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._columns:
            index, shape = self._column(name)
            if shape.nulls == "zero":
                warn_of_nulls(self._rows, name, NULL_ROW if shape.is_ragged else "0")
            if shape.is_ragged:
                column: np.ndarray[Any, Any] | None = numpy_values(self._native, index, name, shape, "list")[name]
            else:
                column = fixed_rows(self._native, index, shape)
            self._columns[name] = other_column(shape, self._data.column(index)) if column is None else column
        return self._columns[name]

    def _column(self, name: str) -> tuple[int, ColumnShape]:
        schema = self._schema
        index = schema.get_field_index(name)
        if index < 0:
            raise KeyError(name)
        if self._shapes is None:
            self._shapes = column_shapes(schema)
        return index, self._shapes[index]

    def _ragged_column(self, name: str) -> tuple[int, ColumnShape]:
        try:
            index, shape = self._column(name)
        except KeyError:
            raise InvalidRequestError(
                f"the batch has no column {name!r}; its columns are {', '.join(self._schema.names)}"
            ) from None
        if not shape.is_ragged:
            raise InvalidRequestError(f"column {name} has no rows of different lengths")
        return index, shape

    def __iter__(self) -> Iterator[str]:
        return iter(self._schema.names)

    def __len__(self) -> int:
        return len(self._schema.names)

    def is_valid(self, name: str) -> np.ndarray[Any, Any]:
        """Returns which rows have a value in a column: a bool array of shape ``(rows,)``.

        It is false for nulls and, in tensors, vectors and lists of numbers, for rows that have a null among their
        numbers. For a column that was written with ``null_masks``, the query must select the mask too. It has nothing
        to do with :attr:`valid`, which marks padding.

        Raises:
            InvalidRequestError: The batch has no such column, or lacks the column with its mask.

        Example:
            >>> _ = lake.create_table("scores", {"score": [3, None, 5]}, mode="overwrite")
            >>> batch = next(iter(lake.sql("SELECT score FROM scores").stream(batch_size=3, shuffle=False)))
            >>> batch.is_valid("score").tolist(), batch["score"].tolist()
            ([True, False, True], [3, 0, 5])
        """
        mask = self._rows.is_valid(name)
        know_of_nulls(self._rows, name)
        return mask

    def jagged(self, name: str) -> Jagged:
        """Returns a column of rows of different lengths as it lies in memory, without copying.

        Raises:
            InvalidRequestError: The batch has no such column, or its rows have one shape or are no numbers.
        """
        index, shape = self._ragged_column(name)
        return Jagged(ragged_rows(self._native, index, shape))

    def padded(self, name: str, padding: Pad | None = None) -> PaddedRows:
        """Returns a column of rows of different lengths in one array, with the lengths of the rows.

        Args:
            name: The column.
            padding: How rows are padded. Default: with zeros, to the length of the longest row. The result has a mask
                if the padding names one.

        Raises:
            InvalidRequestError: The batch has no such column, its rows have one shape or are no numbers, or the padding
                does not fit them.
        """
        index, shape = self._ragged_column(name)
        return padded_rows(self._native, index, name, shape, padding or Pad())

    def arrays(self, layouts: Mapping[str, Layout]) -> dict[str, Any]:
        """Returns all columns, those of rows of different lengths in the layouts that are given for them.

        Args:
            layouts: For each such column, what ``ragged`` of :meth:`Query.numpy` may be for it.
        """
        values: dict[str, Any] = {}
        for name in self:
            layout = layouts.get(name, "list")
            if layout == "list":
                values[name] = self[name]
                continue
            index, shape = self._column(name)
            warn_of_nulls(self._rows, name, NULL_ROW)
            values.update(numpy_values(self._native, index, name, shape, layout))
        return values

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
        columns = ", ".join(f"{field.name}: {field.type}" for field in self._schema)
        return f"Batch(step={self.step}, rows={self.num_rows}, valid={self.num_valid}, {columns})"
