"""Columns whose values a function computes, over a stream of other columns."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from stoker import _native
from stoker._column_progress import ColumnProgress
from stoker._columns import imported, numbers
from stoker._data import named_column
from stoker._decode import ColumnDecoder
from stoker._errors import InvalidRequestError
from stoker._function_key import function_key
from stoker._names import column_name, quoted
from stoker._rows import BatchRows
from stoker._statement import ProgressCallback

if TYPE_CHECKING:
    from stoker._lake import Lake
    from stoker._query import Query
    from stoker._stream import Stream

__all__ = [
    "BatchFormat",
    "ColumnFunction",
    "ComputedColumn",
    "batch_format_of",
    "compute",
    "decoders_of",
    "function_of",
    "input_columns",
]

#: Gets a batch of rows, and returns one value for each of them.
ColumnFunction = Callable[[Any], Any]

#: What a function gets.
BatchFormat = Literal["numpy", "arrow", "torch"]

#: The column of the row addresses beside the values.
_ADDRESS = "__stoker_row_address"


@dataclass(frozen=True, kw_only=True)
class ComputedColumn:
    """A column to be computed; see :meth:`stoker.Table.add_column`."""

    table: str
    name: str
    function: ColumnFunction
    columns: Sequence[str]
    where: str | None
    params: Sequence[Any]
    data_type: str | None
    replace: bool
    batch_size: int
    batch_format: BatchFormat
    decode: Mapping[str, ColumnDecoder] | None
    resume_key: str | None
    resume: bool
    checkpoint_secs: float
    page_bytes: int | None
    progress: ProgressCallback | bool | None

    def key(self) -> str:
        """Returns what makes the call another one than those with the same table and columns."""
        key = function_key(self.function) if self.resume_key is None else self.resume_key
        decoders = {name: function_key(decoder) for name, decoder in (self.decode or {}).items()}
        params = _native.params_json(self.params)
        return json.dumps([key, self.where, params, decoders, self.batch_format], sort_keys=True)

    def request(self) -> _native.ColumnRequest:
        """Returns what the engine needs to know."""
        mode = "add" if not self.replace else "replace" if self.where is None else "fill"
        return {
            "table": self.table,
            "name": column_name("name", self.name),
            "mode": mode,
            "inputs": list(self.columns),
            "has_predicate": self.where is not None,
            "data_type": self.data_type,
            "key": self.key(),
            "page_bytes": self.page_bytes,
            "checkpoint_secs": self.checkpoint_secs,
        }

    def query(self, version: int) -> str:
        """Returns the query of the rows whose values are computed."""
        names = ", ".join(quoted(name) for name in self.columns)
        where = "" if self.where is None else f" WHERE ({self.where})"
        return f"SELECT {names} FROM {quoted(self.table)} AT (VERSION => {version}){where}"


def function_of(function: object, sql: str | None) -> ColumnFunction:
    """Returns the function of a column.

    Raises:
        InvalidRequestError: This is no function, or there is an expression of SQL, too.
    """
    if sql is not None:
        raise InvalidRequestError("a function and sql are given; the values come from one of them")
    if not callable(function):
        raise InvalidRequestError(f"function is a {type(function).__name__}; it must be a function, or a type in SQL")
    found: ColumnFunction = function
    return found


def input_columns(columns: str | Sequence[str] | None) -> list[str]:
    """Returns the names of the columns that a function gets.

    Raises:
        InvalidRequestError: There are none, or they are no names.
    """
    names = [columns] if isinstance(columns, str) else [] if columns is None else list(columns)
    if not names:
        raise InvalidRequestError("columns is missing; it must name the column or columns that the function gets")
    return [column_name("columns", name) for name in names]


def decoders_of(decode: object) -> Mapping[str, ColumnDecoder] | None:
    """Returns the decoders of columns.

    Raises:
        InvalidRequestError: They are no dict.
    """
    if decode is not None and not isinstance(decode, Mapping):
        raise InvalidRequestError(f"decode is a {type(decode).__name__}; it must be a dict by name of column")
    return decode


def batch_format_of(batch_format: object) -> BatchFormat:
    """Returns what a function gets.

    Raises:
        InvalidRequestError: There is no such format.
    """
    if batch_format not in ("numpy", "arrow", "torch"):
        raise InvalidRequestError(f"batch_format is {batch_format!r:.40}; it must be 'numpy', 'arrow' or 'torch'")
    known: BatchFormat = batch_format
    return known


def compute(lake: Lake, column: ComputedColumn) -> int:
    """Computes a column and commits it; returns the new version of the table.

    Raises:
        InvalidRequestError: The function raised, or returned values that do not fit; the message names the rows.
        AlreadyExistsError: The column exists.
        StokerError: As for :meth:`stoker.Lake.execute`.
    """
    if not lake._native.is_local():
        raise InvalidRequestError(
            "a function computes columns on a connection to the lake itself: connect to its URI, such as "
            "s3://bucket/lake; through a server, give sql instead of a function"
        )
    job = lake._native.begin_column(column.request())
    try:
        if not column.resume:
            job.forget()
        with ColumnProgress(column.name, column.progress) as progress:
            while True:
                plan = job.plan()
                if plan is not None:
                    version, _, _, ranges = plan
                    if ranges:
                        _write(lake, column, job, version, ranges, progress)
                committed = job.commit()
                if committed is not None:
                    return committed
    finally:
        job.close()


def _write(
    lake: Lake,
    column: ComputedColumn,
    job: _native.ColumnWriter,
    version: int,
    ranges: Sequence[tuple[int, int]],
    progress: ColumnProgress,
) -> None:
    """Computes and writes the values of the rows in ranges of addresses."""
    query = lake.sql(column.query(version), column.params)
    places = _Positions(lake, query)
    spans = [(places.of(start), places.of(end)) for start, end in ranges]
    spans = [(first, last) for first, last in spans if first < last]
    progress.begin(places.num_rows - sum(last - first for first, last in spans), places.num_rows)
    for first, last in spans:
        for values, row_ids in _batches(column, query, first, last):
            rows = _values(column, values, row_ids, version)
            try:
                job.write(rows)
            except InvalidRequestError as failed:
                raise InvalidRequestError(f"{failed}; what was computed before is kept for the next call") from None
            progress.advance(len(row_ids))


class _Positions:
    """The positions of rows in a stream in order of their addresses."""

    def __init__(self, lake: Lake, query: Query) -> None:
        # The stream pins the rows; it reads nothing.
        self._stream = query.stream(batch_size=1, shuffle=False, rank=0, world_size=1)
        self._lake = lake
        self.num_rows = self._stream.num_rows

    def _address(self, position: int) -> int:
        found = self._lake._native.row_addrs(self._stream.stream_id, 0, position, position + 1)
        return int(numbers(imported(found[0]), np.dtype(np.uint64))[0])

    def of(self, address: int) -> int:
        """Returns the position of the first row whose address is not below a number."""
        if self.num_rows == 0 or self._address(self.num_rows - 1) < address:
            return self.num_rows
        if self._address(0) >= address:
            return 0
        return bisect_left(range(self.num_rows), address, key=self._address)


def _batches(column: ComputedColumn, query: Query, first: int, last: int) -> Iterator[tuple[Any, np.ndarray[Any, Any]]]:
    """Yields the rows at positions ``first`` to ``last``, without ``last``, as batches with their row ids."""
    stream = query.stream(
        batch_size=min(column.batch_size, last - first),
        shuffle=False,
        rank=0,
        world_size=1,
        last_batch="uneven",
        decode=column.decode,
    )
    if first > 0:
        _seek(query, stream, first)
    # As the copy of a worker, the stream reads no further epoch.
    stream.for_worker(0, 1)
    position = first
    with stream:
        for batch, rows in _formatted(stream, column.batch_format):
            num_rows = min(rows.num_rows, last - position)
            row_ids = rows.row_ids[:num_rows]
            position += num_rows
            yield (batch if num_rows == rows.num_rows else _head(batch, num_rows)), row_ids
            if position >= last:
                return


def _seek(query: Query, stream: Stream, position: int) -> None:
    """Moves a stream to a position: behind one batch of as many rows."""
    before = query.stream(batch_size=position, shuffle=False, rank=0, world_size=1, last_batch="uneven")
    before.skip(1)
    stream.load_state_dict(before.state_dict())


def _formatted(stream: Stream, batch_format: BatchFormat) -> Iterable[tuple[Any, BatchRows]]:
    if batch_format == "arrow":
        return ((batch.to_arrow(), batch.rows) for batch in stream)
    loader = stream.torch() if batch_format == "torch" else stream.numpy()
    return ((batch, batch.rows) for batch in loader)


def _head(batch: Any, num_rows: int) -> Any:
    if isinstance(batch, pa.RecordBatch):
        return batch.slice(0, num_rows)
    return {name: values[:num_rows] for name, values in batch.items()}


def _values(column: ComputedColumn, batch: Any, row_ids: np.ndarray[Any, Any], version: int) -> pa.Table:
    """Calls the function; returns its values and the addresses of their rows."""
    where = f"column {column.name} of table {column.table} version {version}, row ids {row_ids[0]} to {row_ids[-1]}"
    try:
        found = column.function(batch)
    except Exception as failed:
        raise InvalidRequestError(
            f"computing {where}: the function raised {type(failed).__name__}: {failed}; "
            "what was computed before is kept for the next call"
        ) from failed
    try:
        field, array = named_column(column.name, _known(found))
    except InvalidRequestError as failed:
        raise InvalidRequestError(f"computing {where}: {failed}") from failed
    if len(array) != len(row_ids):
        raise InvalidRequestError(
            f"computing {where}: the function returned {len(array)} values for {len(row_ids)} rows; it must return one "
            "for each row"
        )
    schema = pa.schema([field.with_nullable(True), pa.field(_ADDRESS, pa.uint64(), nullable=False)])
    return pa.Table.from_arrays([array, pa.array(row_ids)], schema=schema)


def _known(values: Any) -> Any:
    """Returns values as something that is written: arrays of other libraries as arrays of NumPy."""
    if values is None or isinstance(values, str | bytes | Mapping):
        raise InvalidRequestError(
            f"the function returned {type(values).__name__}; it must return an array with one value for each row"
        )
    if isinstance(values, np.ndarray | pa.Array | pa.ChunkedArray | list):
        return values
    if type(values).__module__.partition(".")[0] == "torch":
        return values
    return np.asarray(values) if hasattr(values, "__array__") else list(values)
