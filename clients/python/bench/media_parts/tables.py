"""Tables of media files, which are written on their first use, and pairs that decode them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

import stoker
from harness.turns import Figure, Pair, Unit, timed

__all__ = ["ROWS", "Files", "decoding"]

#: The units of paths that decode rows.
ROWS = Unit("rows/s", "CPU ms/row", digits=1)


@dataclass
class Files:
    """A table with files in its rows.

    Attributes:
        lake: The lake.
        name: The name of the table.
        columns: The names of its columns.
        num_rows: The number of its rows.
        row: Makes the files of a row, one for each column.
        options: Further arguments of ``create_table``.
    """

    lake: stoker.Lake
    name: str
    columns: list[str]
    num_rows: int
    row: Callable[[int], Sequence[bytes]]
    options: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def query(self) -> stoker.Query:
        """The query of all files of the table, which is written unless it is there."""
        try:
            is_written = self.name in self.lake.tables()
        except stoker.NotFoundError:
            is_written = False  # the first table makes the lake
        if not is_written:
            files = zip(*(self.row(number) for number in range(self.num_rows)), strict=True)
            arrays = (pa.array(column, pa.large_binary()) for column in files)
            columns = dict(zip(self.columns, arrays, strict=True))
            self.lake.create_table(self.name, columns, **self.options)
        return self.lake.sql(f"SELECT {', '.join(self.columns)} FROM {self.name} LIMIT {self.num_rows}")

    @cached_property
    def rows(self) -> list[list[bytes]]:
        """The files of each row, in memory."""
        return [[row[column] for column in self.columns] for row in self.query.to_arrow().to_pylist()]


def decoding(
    name: str,
    files: Files,
    decoder: Any,
    beside: str,
    alone: Callable[[Sequence[bytes]], Any],
    bar: float | None,
    threads: int,
) -> Pair:
    """Returns a pair that decodes all rows: a stream, and a function of the files of a row."""

    def stream() -> int:
        # A new stream in each turn: one that stays open would read and decode ahead beside the other.
        decode = dict.fromkeys(files.columns, decoder)
        options = {"batch_size": 8, "shuffle": False, "decode": decode, "decode_threads": threads}
        with files.query.stream(evaluation=True, **options) as batches:
            return sum(batch.num_valid for batch in batches)

    def in_pool() -> Figure:
        rows = files.rows
        with ThreadPoolExecutor(threads) as pool:
            return timed(lambda: sum(1 for _ in pool.map(alone, rows)), per_unit=1e3)

    def mine() -> Figure:
        assert files.query  # the table is written before the time begins
        return timed(stream, per_unit=1e3)

    return Pair(name, mine, beside, in_pool, ROWS, bar)
