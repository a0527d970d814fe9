"""A process that reads damaged lakes: for each line of input, a path, it prints a line with the rows or errors."""

from __future__ import annotations

import hashlib
import json
import resource
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import stoker

#: The limit of the process's address space: a damaged length must not exhaust the machine's memory.
ADDRESS_SPACE_BYTES = 6 << 30
#: The retry budget of a stream, in seconds.
RETRY_SECS = 1

#: The columns that are read: the id, and columns whose values checksums cover if Stoker wrote the table.
COLUMNS = "id, x, y, z, payload"


def by_sql(root: str) -> list[list[Any]]:
    return _digests(stoker.connect(root).sql(f"SELECT row_id, {COLUMNS} FROM row_ids(t)").to_arrow())


def by_stream(root: str) -> list[list[Any]]:
    query = stoker.connect(root).sql(f"SELECT {COLUMNS} FROM t")
    found = []
    for batch in query.stream(batch_size=7, seed=1, block_bytes=10_000, retry_budget_secs=RETRY_SECS, allow_nulls=True):
        rows = pa.Table.from_batches([batch.to_arrow()]).append_column("row_id", pa.array(batch.row_ids))
        found += _digests(rows.slice(0, batch.num_valid))
    return found


def _digests(rows: pa.Table) -> list[list[Any]]:
    """Returns for each row its address, its id and the digests of its other columns."""
    names = COLUMNS.split(", ")[1:]
    digests = [[_digest(value) for value in rows[name]] for name in names]
    return [list(row) for row in zip(rows["row_id"].to_pylist(), rows["id"].to_pylist(), *digests, strict=True)]


def _digest(value: pa.Scalar) -> str | None:
    if not value.is_valid:
        return None
    if not isinstance(value, pa.FixedSizeListScalar):
        return hashlib.blake2b(value.as_buffer(), digest_size=8).hexdigest()
    items = value.values
    width = items.type.byte_width
    stored = items.buffers()[1][items.offset * width :][: len(items) * width]
    return f"{hashlib.blake2b(stored, digest_size=8).hexdigest()} with {items.null_count} nulls"


def _answer(read: Callable[[str], list[list[Any]]], root: str) -> dict[str, Any]:
    try:
        return {"rows": read(root)}
    except BaseException as failed:
        is_stoker = isinstance(failed, stoker.StokerError)
        return {"error": type(failed).__name__, "is_stoker": is_stoker, "message": str(failed)}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    print("ready", flush=True)
    for line in sys.stdin:
        root = line.strip()
        print(json.dumps({"sql": _answer(by_sql, root), "stream": _answer(by_stream, root)}), flush=True)


if __name__ == "__main__":
    main()
