"""Reads the rows of running queries."""

from __future__ import annotations

from collections.abc import Generator

import pyarrow as pa

from stoker import _native

__all__ = ["batches", "first_rows"]


def batches(result: _native.QueryResult) -> Generator[pa.RecordBatch, None, None]:
    """Returns the rows as they come. The query stops when the iterator ends or is dropped."""
    try:
        while (batch := result.next()) is not None:
            yield pa.record_batch(batch)
    finally:
        result.close()


def first_rows(result: _native.QueryResult, num_rows: int | None = None) -> pa.Table:
    """Returns the first rows, or all of them, and stops the query."""
    schema = pa.schema(result.schema)
    read: list[pa.RecordBatch] = []
    room = num_rows
    rows = batches(result)
    while room is None or room > 0:
        batch = next(rows, None)
        if batch is None:
            break
        read.append(batch if room is None else batch.slice(0, room))
        room = None if room is None else room - read[-1].num_rows
    rows.close()
    return pa.Table.from_batches(read, schema=schema)
