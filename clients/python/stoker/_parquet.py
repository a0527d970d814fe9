"""Writes the rows of a query to a Parquet file."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from stoker._errors import InvalidRequestError
from stoker._names import quoted_column
from stoker._numbers import whole_or_none
from stoker._results import batches

if TYPE_CHECKING:
    from stoker._query import Query

__all__ = ["ParquetCompression", "write_parquet"]

ParquetCompression = Literal["zstd", "snappy", "gzip", "lz4", "brotli", "none"]

#: The codecs.
_COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
#: The number of rows of a row group, if none is given, and the maximum.
_ROW_GROUP_ROWS = 122_880
_ROW_GROUP_ROWS_MAX = 2**26
#: The bytes after which a row group ends in any case: its rows are in memory until it is written.
_ROW_GROUP_BYTES_MAX = 128 << 20


def write_parquet(query: Query, path: str | os.PathLike[str], compression: str, row_group_rows: int | None) -> int:
    """Writes the rows of a query to a file; see :meth:`Query.to_parquet`."""
    target = _target(path)
    if compression not in _COMPRESSIONS:
        raise InvalidRequestError(f"compression is {compression!r:.40}; it must be one of {', '.join(_COMPRESSIONS)}")
    rows_max = whole_or_none("row_group_rows", row_group_rows, 1, _ROW_GROUP_ROWS_MAX) or _ROW_GROUP_ROWS
    result = query._run()
    # A pipe or a device is written directly.
    is_direct = os.path.exists(target) and not os.path.isfile(target)
    written = target if is_direct else os.path.join(os.path.dirname(target), f".{uuid.uuid4().hex}.parquet.part")
    try:
        with open(written, "wb" if is_direct else "xb") as out:
            schema = pa.schema(result.schema)
            num_rows = _write(out, schema, _row_groups(batches(result), rows_max), compression)
            if not is_direct:
                out.flush()
                os.fsync(out.fileno())
        if not is_direct:
            os.replace(written, target)
    except BaseException:
        if not is_direct:
            with suppress(OSError):
                os.remove(written)
        raise
    finally:
        result.close()
    return num_rows


def _target(path: str | os.PathLike[str]) -> str:
    """Returns the path of the file; a symbolic link stays, and the file that it names is written."""
    text = os.fspath(path)
    if not isinstance(text, str) or not text:
        raise InvalidRequestError(f"path is {text!r:.40}; it must be the path of a file, as text")
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.stat(text)
        target = os.path.realpath(text)
    except (OSError, ValueError) as failed:
        # A name that no file can have.
        if isinstance(failed, OSError) and failed.errno != errno.ENAMETOOLONG:
            raise
        reason = failed.strerror if isinstance(failed, OSError) else failed
        raise InvalidRequestError(f"path is {text!r:.40}; no file can have this name: {reason}") from None
    if os.path.isdir(target):
        raise InvalidRequestError(f"{text} is a folder; give the path of a file in it")
    return target


def _write(out: Any, schema: pa.Schema, row_groups: Iterable[pa.Table], compression: str) -> int:
    import pyarrow.parquet as pq

    num_rows = 0
    try:
        with pq.ParquetWriter(out, schema, compression=compression) as writer:  # type: ignore[no-untyped-call]
            for rows in row_groups:
                writer.write_table(rows, row_group_size=rows.num_rows)
                num_rows += rows.num_rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as failed:
        raise InvalidRequestError(f"cannot write the rows as Parquet: {failed}") from failed
    return num_rows


def _row_groups(read: Iterable[pa.RecordBatch], rows_max: int) -> Iterator[pa.Table]:
    """Collects batches until they fill a row group."""
    held: list[pa.RecordBatch] = []
    num_rows = num_bytes = 0
    for batch in map(_writable, read):
        start = 0
        while start < batch.num_rows:
            held.append(batch.slice(start, rows_max - num_rows))
            start += held[-1].num_rows
            num_rows += held[-1].num_rows
            num_bytes += held[-1].nbytes
            if num_rows >= rows_max or num_bytes >= _ROW_GROUP_BYTES_MAX:
                yield pa.Table.from_batches(held)
                held, num_rows, num_bytes = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _writable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a batch that pyarrow can write to Parquet and read from there.

    Raises:
        InvalidRequestError: A tensor or a vector is null.
    """
    columns = [_writable_column(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _writable_column(field: pa.Field, column: pa.Array) -> pa.Array:
    if not column.null_count:
        return column
    stored = column.storage if isinstance(column, pa.ExtensionArray) else column
    if pa.types.is_fixed_size_list(stored.type):
        name = quoted_column("column", field.name)
        raise InvalidRequestError(
            f"column {field.name} has nulls, and pyarrow cannot read lists of a fixed size that are null from Parquet: "
            f"leave these rows out with WHERE {name} IS NOT NULL, or cast the column to lists of any size, as "
            f"{name}::FLOAT[] does"
        )
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        # A null list may have elements, which pyarrow does not write. What `take` returns has none.
        return column.take(pa.array(np.arange(len(column))))
    return column
