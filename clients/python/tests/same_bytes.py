"""Reads a table by pylance, by SQL and by a stream, and compares tables byte for byte."""

from __future__ import annotations

from typing import Any

import lance
import numpy as np
import pyarrow as pa

import stoker

#: Rows of a batch.
BATCH_SIZE = 5

#: Options of streams in different orders; each stream delivers each row once.
STREAMS: dict[str, dict[str, Any]] = {
    "sequential": {"shuffle": False, "last_batch": "uneven"},
    "windows": {
        "shuffle": "block",
        "seed": 3,
        "block_bytes": 4096,
        "shuffle_window_bytes": 1 << 18,
        "num_lanes": 3,
        "order_version": 1,
    },
    "delay line": {
        "shuffle": "block",
        "seed": 5,
        "block_bytes": 4096,
        "shuffle_window_bytes": 1 << 20,
        "num_lanes": 3,
        "order_version": 2,
    },
    "full": {"shuffle": "full", "seed": 4},
}


def assert_same(found: pa.Table, expected: pa.Table, what: str) -> None:
    """Fails unless both tables have the same columns and types, the same nulls, and the same bytes in other values."""
    assert found.column_names == expected.column_names, what
    assert found.num_rows == expected.num_rows, what
    for name in expected.column_names:
        _assert_same_array(found[name].combine_chunks(), expected[name].combine_chunks(), f"{what}: column {name}")


def by_pylance(root: str) -> pa.Table:
    """Reads the table `t` with Lance's own reader."""
    return _in_order(lance.dataset(f"{root}/t.lance").to_table(with_row_address=True), "_rowaddr")


def by_sql(lake: stoker.Lake) -> pa.Table:
    """Reads the table `t` with a SQL query."""
    return _in_order(lake.sql("SELECT * FROM row_ids(t)").to_arrow(), "row_id")


def by_stream(lake: stoker.Lake, options: dict[str, Any]) -> tuple[pa.Table, stoker.StreamStats]:
    """Reads the table `t` with a stream; returns its rows and the stream's counters."""
    stream = lake.sql("SELECT * FROM t").stream(batch_size=BATCH_SIZE, allow_nulls=True, **options)
    batches, row_ids = [], [np.zeros(0, np.uint64)]
    for batch in stream:
        batches.append(batch.to_arrow().slice(0, batch.num_valid))
        row_ids.append(batch.row_ids[batch.valid])
    table = pa.Table.from_batches(batches, schema=stream.schema)
    return _in_order(table.append_column("row_id", pa.array(np.concatenate(row_ids))), "row_id"), stream.stats()


def _in_order(rows: pa.Table, address: str) -> pa.Table:
    """Sorts rows by their addresses, and moves the addresses to the last column."""
    addresses = rows[address].to_numpy()
    rows = rows.drop_columns([address]).append_column("address", pa.array(addresses))
    return rows.take(np.argsort(addresses))


def _assert_same_array(found: pa.Array, expected: pa.Array, what: str) -> None:
    assert found.type == expected.type, what
    if isinstance(expected, pa.ExtensionArray):
        _assert_same_array(found.storage, expected.storage, what)
        return
    assert found.is_null().equals(expected.is_null()), f"{what}: other rows are null"
    found, expected, kind = found.drop_null(), expected.drop_null(), expected.type
    if pa.types.is_struct(kind):
        for field, mine, theirs in zip(kind, found.flatten(), expected.flatten(), strict=True):
            _assert_same_array(mine, theirs, f"{what}.{field.name}")
    elif pa.types.is_nested(kind):
        assert found.value_lengths().equals(expected.value_lengths()), f"{what}: lists differ in length"
        _assert_same_array(found.flatten(), expected.flatten(), f"{what}[]")
    elif pa.types.is_primitive(kind) and not pa.types.is_boolean(kind):
        differ = np.flatnonzero((_stored(found) != _stored(expected)).any(axis=1))
        assert not len(differ), f"{what}: {len(differ)} of {len(expected)} values differ, the first at {differ[0]}"
    else:
        assert found.equals(expected), what


def _stored(values: pa.Array) -> np.ndarray[Any, Any]:
    """Returns the bytes of numbers without nulls, as an array of shape (values, width).

    A comparison of bytes also tells different NaNs apart, and zero from negative zero.
    """
    width = values.type.byte_width
    if not len(values):
        return np.zeros((0, width), np.uint8)
    stored = np.frombuffer(values.buffers()[1], np.uint8)
    return stored[values.offset * width :][: len(values) * width].reshape(-1, width)
