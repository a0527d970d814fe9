"""Record batches of rows and of batches that come one after the other, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stoker._arrays import is_array
from stoker._errors import InvalidRequestError, StokerError
from stoker._refused import shown
from stoker._row_values import Column, column_of

__all__ = ["known_names", "noting", "row_batches"]

#: The maximum number of rows of a record batch, and of the first rows, which decide the types of columns.
BATCH_ROWS = 1_024
#: The bytes after which a record batch ends, as far as the values tell their sizes.
BATCH_BYTES = 32 << 20
#: What comes after the last item.
_END: Any = object()


def column_names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the keys of rows, in the order in which they occur.

    Raises:
        InvalidRequestError: A row is no dict, or a key is no text.
    """
    names: dict[str, None] = {}
    for number, row in enumerate(rows):
        _check_row(row, number)
        names.update(dict.fromkeys(row))
    return list(names)


def known_names(rows: Iterable[Mapping[str, Any]], hints: Iterable[str]) -> list[str]:
    """Returns the names of ``hints``, which rows may lack, and the other keys of rows.

    Raises:
        InvalidRequestError: As for :func:`column_names`.
    """
    return list(dict.fromkeys([*hints, *column_names(rows)]))


def _check_row(row: object, number: int) -> None:
    if not isinstance(row, Mapping):
        raise InvalidRequestError(f"row {number}: expected a dict, found {shown(row)}")
    wrong = next((key for key in row if not isinstance(key, str)), None)
    if wrong is not None:
        raise InvalidRequestError(f"row {number}: expected names of columns as keys, found {shown(wrong)}")


def noting(batches: Iterator[pa.RecordBatch], failures: list[BaseException]) -> Iterator[pa.RecordBatch]:
    """Yields batches, and adds what they raise to ``failures``: Arrow's readers keep only the text."""
    try:
        yield from batches
    except GeneratorExit:
        raise
    except BaseException as failed:
        failures.append(failed)
        raise


def row_batches(items: Iterator[Any], hints: pa.Schema | None, failures: list[BaseException]) -> pa.RecordBatchReader:
    """Returns a reader of what an iterator gives: rows, which are dicts, or batches, which are anything like a table.

    The first item is taken at once, and for rows the first 1,024: they decide the columns and their types, unless
    ``hints`` has them.

    Raises:
        InvalidRequestError: The iterator gives nothing, or something else, or raises.
    """
    items = _told(items)
    first = next(items, _END)
    if first is _END:
        if hints is None:
            raise InvalidRequestError("there are no rows, so that their columns are not known: give schema=")
        return pa.RecordBatchReader.from_batches(hints, iter(()))
    if isinstance(first, Mapping):
        return _Rows(_chain(first, items), hints).reader(failures)
    if as_batches(first) is not None:
        return _batches(_chain(first, items), failures)
    raise InvalidRequestError(
        f"item 0 of the iterator: expected a dict, which is a row, or a record batch, found {shown(first)}"
    )


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _told(items: Iterator[Any]) -> Iterator[Any]:
    """Yields the items. What the iterator raises becomes an error that names the row."""
    number = 0
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        except StokerError:
            raise
        except Exception as failed:
            kind = type(failed).__name__
            raise InvalidRequestError(f"item {number} of the iterator: it raised {kind}: {failed}") from failed
        yield item
        number += 1


def as_batches(value: Any) -> list[pa.RecordBatch] | None:
    """Returns the record batches of a value that is like a table; ``None`` for other values."""
    if isinstance(value, pa.RecordBatch):
        return [value]
    if type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "columns"):
        return pa.Table.from_pandas(value, preserve_index=False).to_batches() or [_empty(value)]
    if hasattr(value, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(value)
        return list(reader) or [pa.RecordBatch.from_pylist([], reader.schema)]
    if hasattr(value, "__arrow_c_array__") and not isinstance(value, pa.Array):
        return [pa.record_batch(value)]
    return None


def _empty(frame: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], pa.Schema.from_pandas(frame, preserve_index=False))


def _batches(items: Iterator[Any], failures: list[BaseException]) -> pa.RecordBatchReader:
    """Returns a reader of batches that have the columns of the first one."""
    first = as_batches(next(items)) or []
    schema = first[0].schema.remove_metadata() if first[0].schema.metadata else first[0].schema

    def batches() -> Iterator[pa.RecordBatch]:
        yield from (batch.cast(schema) for batch in first)
        for number, item in enumerate(items, start=1):
            found = as_batches(item)
            if found is None:
                raise InvalidRequestError(
                    f"item {number} of the iterator: expected a record batch, found {shown(item)}"
                )
            yield from (_like(batch, schema, number) for batch in found)

    return pa.RecordBatchReader.from_batches(schema, noting(batches(), failures))


def _like(batch: pa.RecordBatch, schema: pa.Schema, number: int) -> pa.RecordBatch:
    """Returns a batch with the columns of the first one, in their order.

    Raises:
        InvalidRequestError: It has other columns, or columns of other types.
    """
    if sorted(batch.schema.names) != sorted(schema.names):
        raise InvalidRequestError(
            f"item {number} of the iterator: expected the columns {schema.names} of the first batch, "
            f"found {batch.schema.names}"
        )
    columns = []
    for field in schema:
        column = batch.column(field.name)
        if pa.types.is_null(column.type):
            column = pa.nulls(len(column), field.type)
        if column.type != field.type:
            raise InvalidRequestError(
                f"column {field.name}, item {number} of the iterator: expected {field.type}, as in the first batch, "
                f"found {column.type}"
            )
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Rows:
    """Rows that come one after the other, as record batches of bounded size."""

    def __init__(self, rows: Iterator[Any], hints: pa.Schema | None) -> None:
        self._rows = rows
        self._hints = {} if hints is None else {field.name: field for field in hints}
        self._number = 0

    def reader(self, failures: list[BaseException]) -> pa.RecordBatchReader:
        """Reads the first rows, and returns a reader of them and all others."""
        first = self._take()
        names = known_names(first, self._hints)
        columns = [self._column(name, first) for name in names]
        schema = pa.schema([column.field for column in columns])

        def batches() -> Iterator[pa.RecordBatch]:
            rows, number = first, 0
            while rows:
                yield _batch(columns, schema, rows, number)
                number = self._number
                rows = self._take()
                self._check_keys(rows, set(names), number)

        return pa.RecordBatchReader.from_batches(schema, noting(batches(), failures))

    def _column(self, name: str, first: Sequence[Mapping[str, Any]]) -> Column:
        values = [row.get(name) for row in first]
        if name not in self._hints and all(value is None for value in values) and len(first) == BATCH_ROWS:
            raise InvalidRequestError(
                f"column {name}: expected a value in the first {len(first)} rows, found only nulls; "
                "give the types of columns with schema="
            )
        return column_of(name, values, self._hints.get(name))

    def _take(self) -> list[Mapping[str, Any]]:
        """Takes the rows of the next batch."""
        taken: list[Mapping[str, Any]] = []
        num_bytes = 0
        while len(taken) < BATCH_ROWS and num_bytes < BATCH_BYTES:
            row = next(self._rows, _END)
            if row is _END:
                break
            _check_row(row, self._number)
            taken.append(row)
            self._number += 1
            num_bytes += sum(map(_size, row.values()))
        return taken

    def _check_keys(self, rows: Sequence[Mapping[str, Any]], names: set[str], number: int) -> None:
        for row_number, row in enumerate(rows, start=number):
            other = next((key for key in row if key not in names), None)
            if other is not None:
                raise InvalidRequestError(
                    f"column {other} row {row_number}: expected the keys of the first rows, found a new one; give all "
                    "columns with schema="
                )


def _batch(
    columns: Sequence[Column], schema: pa.Schema, rows: Sequence[Mapping[str, Any]], number: int
) -> pa.RecordBatch:
    arrays = []
    for column in columns:
        array = column.array([row.get(column.field.name) for row in rows], number)
        arrays.append(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _size(value: Any) -> int:
    """Returns the bytes of a value, as far as it tells them."""
    if isinstance(value, bytes | bytearray | str):
        return len(value)
    if isinstance(value, np.ndarray) or is_array(value):
        return int(getattr(value, "nbytes", 0))
    if isinstance(value, list | tuple):
        return 8 * len(value)
    size = getattr(value, "size", None)
    # An image of Pillow tells its width and height.
    return 4 * int(size[0]) * int(size[1]) if isinstance(size, tuple) and len(size) == 2 else 8
