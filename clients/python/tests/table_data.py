"""Rows of random bytes, and tables with such rows that pylance or Stoker writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import stoker

#: The writers of data files: pylance, by the version of its files, and Stoker.
PYLANCE = ("2.1", "2.2")
WRITERS = (*PYLANCE, "stoker")


def numbers(kind: pa.DataType, num: int, seed: int = 0) -> pa.Array:
    """Returns `num` numbers of random bytes; among floats, these include NaNs of many bit patterns."""
    if pa.types.is_boolean(kind):
        return pa.array(np.random.default_rng(seed).integers(0, 2, num).astype(bool))
    stored = np.random.default_rng(seed).bytes(num * kind.byte_width)
    return pa.Array.from_buffers(kind, num, [None, pa.py_buffer(stored)])


def lists(kind: pa.DataType, row_bytes: int, ids: Iterable[int], null_rows: Sequence[int] = ()) -> pa.Array:
    """Returns a fixed-size list of about `row_bytes` bytes for each id.

    The number of elements is odd. The rows at the indices `null_rows` are null.
    """
    length = max(row_bytes // max(kind.bit_width // 8, 1), 1) | 1
    values = pa.concat_arrays([numbers(kind, length, seed) for seed in ids])
    mask = pa.array([row in null_rows for row in range(len(values) // length)]) if null_rows else None
    return pa.FixedSizeListArray.from_arrays(values, length, mask=mask)


def rows(ids: Sequence[int], **columns: pa.Array) -> pa.Table:
    """Returns a table with the columns `id` and `name` and the given columns between them."""
    names = pa.array([None if i % 5 == 4 else f"row {i}" * (i % 4) for i in ids], pa.string())
    return pa.table({"id": pa.array(ids, pa.int64()), **columns, "name": names})


def plain(ids: Sequence[int]) -> pa.Table:
    """Returns rows with two heavy columns of one type, `x` and `y`, and a light one, `z`, that is stored plain too."""
    return rows(
        ids,
        x=lists(pa.uint8(), 3_000, ids),
        y=lists(pa.uint8(), 3_000, [1_000 + i for i in ids]),
        z=lists(pa.float32(), 300, ids),
    )


def write(root: str, writer: str, table: pa.Table, rows_per_file: int = 9, **options: Any) -> lance.LanceDataset:
    """Creates the table `t` with these rows, or appends them to it, in record batches of five rows."""
    batches = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=5))
    if writer != "stoker":
        options = {"max_rows_per_file": rows_per_file, "data_storage_version": writer, **options}
        return lance.write_dataset(batches, f"{root}/t.lance", **options)
    lake = stoker.connect(root)
    if options.get("mode") == "append":
        lake.table("t").append(batches, rows_per_fragment=rows_per_file)
    else:
        lake.create_table("t", batches, rows_per_fragment=rows_per_file)
    return lance.dataset(f"{root}/t.lance")
