"""The peak memory of a stream does not grow with the size of the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import stoker

WIDTH = 2_048
MIB = 2**20


def table_of(num_rows: int) -> pa.RecordBatchReader:
    """Returns a table with rows of 2 KiB each, as a reader of record batches of about 8 MB."""
    field = pa.field("x", pa.list_(pa.uint8(), WIDTH))
    schema = pa.schema([pa.field("id", pa.int64()), field])

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, num_rows, 4_000):
            ids = np.arange(start, min(start + 4_000, num_rows))
            values = pa.array(np.resize(np.arange(251, dtype=np.uint8), len(ids) * WIDTH))
            yield pa.record_batch([ids, pa.FixedSizeListArray.from_arrays(values, WIDTH)], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


@pytest.mark.parametrize(("columns", "shuffle"), [("id, x", "none"), ("x", "block")])
def test_memory_does_not_grow_with_the_table(tmp_path: Path, columns: str, shuffle: str) -> None:
    lake = stoker.connect(str(tmp_path))
    peaks = {}
    for num_rows in (4_000, 400_000):
        name = f"rows_{num_rows}"
        lake.create_table(name, table_of(num_rows))
        options = ["--batch-size", "64", "--memory-budget-mib", "4", "--shuffle", shuffle, "--json"]
        query = f"SELECT {columns} FROM {name}"
        command = [os.environ["STOKER_BIN"], "stream", query, *options, "--lake", str(tmp_path)]
        report = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout)
        assert report["rows_in_epoch"] == num_rows
        assert report["bytes"] >= num_rows * WIDTH
        peaks[num_rows] = report["peak_memory_bytes"]
    assert peaks[400_000] <= peaks[4_000] + 32 * MIB, {rows: f"{peak / MIB:.0f} MiB" for rows, peak in peaks.items()}


#: Opens lakes, one after another, and prints after each how many files the process has open.
OPENING = """
import gc, os, sys, time
import stoker

def num_open():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))

for number in range(24):
    lake = stoker.connect(sys.argv[1])
    query = lake.sql("SELECT id, x FROM t WHERE id < 100")
    if number % 2:
        query.to_arrow()
    for batch in query.stream(batch_size=50):
        pass
    lake.execute("DELETE FROM t WHERE id = 50")
    del lake, query, batch
    print(num_open(), flush=True)

# A plan of a query that did not run is kept for a moment.
end = time.monotonic() + 60
while num_open() > int(sys.argv[2]) and time.monotonic() < end:
    time.sleep(0.05)
print(num_open())
"""


def test_lakes_that_are_dropped_hold_no_files(tmp_path: Path) -> None:
    stoker.connect(str(tmp_path)).create_table("t", table_of(4_000))
    spare = 40
    command = [sys.executable, "-c", OPENING, str(tmp_path), str(spare)]
    counts = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout.split()
    assert int(counts[-1]) <= spare, counts
