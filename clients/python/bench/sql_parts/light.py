"""Queries of light rows beside DuckDB, point look-ups beside pylance, and row sets."""

from __future__ import annotations

import math
import secrets
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from sql_parts.context import Context, Measure, num_processors
from sql_parts.data import NUM_PARTS, code_of, parquet_file
from sql_parts.line import Line, alternate, median_secs, secs

__all__ = ["lookups", "queries", "row_sets"]

_SEED = 13
#: For each query: its name, and its text with ``{rows}`` for the table. All results are exact, so that they compare.
_QUERIES = {
    "count": "SELECT count(*) AS n FROM {rows}",
    "filter": "SELECT count(*) AS n, max(x) AS most FROM {rows} WHERE part < 50000",
    "GROUP BY int": "SELECT small, count(*) AS n, max(x) AS most FROM {rows} GROUP BY small",
    "GROUP BY text": "SELECT name, count(*) AS n, max(x) AS most FROM {rows} GROUP BY name",
    "top 10": "SELECT id, x FROM {rows} ORDER BY x DESC LIMIT 10",
}
#: For each row set: the column of its condition, what it is called, and its bar in milliseconds.
_ROW_SETS = (("part", "no index", 1_000.0), ("indexed_part", "btree", 100.0))
#: The share of the rows in a row set.
_SHARE = 0.05


def queries() -> list[Measure]:
    """Queries of all rows."""
    return [Measure(f"light rows, {name}", partial(_query, name, text)) for name, text in _QUERIES.items()]


def lookups() -> list[Measure]:
    """Single rows by a code that no two rows have."""
    return [Measure("point look-up, btree", _lookup)]


def row_sets() -> list[Measure]:
    """The rows of a stream, which are found when it is planned."""
    return [
        Measure(f"row set of 5 % of the rows, {name}", partial(_row_set, column, name, bar))
        for column, name, bar in _ROW_SETS
    ]


def _query(name: str, text: str, context: Context) -> list[Line]:
    table = context.table("light")
    own = text.format(rows=table)
    with duckdb.connect() as duck:
        duck.execute(f"SET threads = {num_processors()}")
        other = text.format(rows=f"read_parquet('{parquet_file(context.folder, table)}')")

        def theirs() -> pa.Table:
            return duck.execute(other).to_arrow_table()

        _check_equal(context.sql(own), theirs())
        found = alternate(context.repeat, lambda: secs(lambda: context.sql(own)) * 1e3, lambda: secs(theirs) * 1e3)
    what = f"light rows, {name}"
    return [Line(what, 1.2, *found, f"DuckDB {duckdb.__version__} on Parquet, {num_processors()} threads")]


def _check_equal(ours: pa.Table, theirs: pa.Table) -> None:
    """Compares two results, in any order of the rows."""

    def rows(table: pa.Table) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in table.to_pylist())

    if rows(ours) != rows(theirs):
        raise RuntimeError(f"the results differ: {rows(ours)[:3]} and {rows(theirs)[:3]}, …")


def _lookup(context: Context) -> list[Line]:
    table = context.table("light")
    dataset = context.dataset(table)
    random = np.random.default_rng(_SEED)
    rows = [int(row) for row in random.integers(0, context.light_rows, context.num_queries)]

    def ours(row: int) -> pa.Table:
        return context.sql(f"SELECT id, x FROM {table} WHERE code = $1", [code_of(row)])

    def theirs(row: int) -> pa.Table:
        return dataset.to_table(columns=["id", "x"], filter=f"code = {code_of(row)}")

    for row in rows:
        if not ours(row)["id"].to_pylist() == theirs(row)["id"].to_pylist() == [row]:
            raise RuntimeError(f"the row with code {code_of(row)} was not found alone")
    found = alternate(
        context.repeat,
        lambda: median_secs([partial(ours, row) for row in rows]) * 1e3,
        lambda: median_secs([partial(theirs, row) for row in rows]) * 1e3,
    )
    remark = "Stoker looks for a newer version of the table each time, pylance stays at one"
    return [Line("point look-up, btree", 1.0, *found, remark=remark)]


def _row_set(column: str, name: str, bar: float, context: Context) -> list[Line]:
    table = context.table("light")
    width = int(NUM_PARTS * _SHARE)
    expected = context.light_rows * _SHARE

    def planned() -> float:
        # Row sets are stored: each turn asks for other rows than all turns before, also those of earlier runs.
        start = secrets.randbelow(NUM_PARTS - width)
        query = context.lake.sql(f"SELECT x FROM {table} WHERE {column} >= {start} AND {column} < {start + width}")
        streams = []
        took = secs(lambda: streams.append(query.stream(batch_size=1_024, allow_nulls=True)))
        (stream,) = streams
        found = stream.num_rows
        stream.close()
        if abs(found - expected) > 6 * math.sqrt(expected):
            raise RuntimeError(f"the row set has {found} rows, not about {expected:.0f}")
        return took * 1e3

    planned()
    what = f"row set of 5 % of {context.light_rows:,} rows, {name}"
    return [Line(what, bar, [planned() for _ in range(context.repeat)], judged="value")]
