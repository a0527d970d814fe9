"""What all measurements share: the lake, pylance's view of the same tables, and the options."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import stoker
from sql_parts.data import prepare, table_file
from sql_parts.line import Line, SkippedError

__all__ = ["Context", "Measure", "num_processors"]


@dataclass
class Context:
    """The lake and the options of a run."""

    folder: Path
    #: The ``stoker`` binary.
    binary: str | None
    repeat: int
    build_repeat: int
    #: The number of queries of a turn, where single queries are measured.
    num_queries: int
    vector_rows: int
    light_rows: int
    text_rows: int
    result_rows: int
    lake: stoker.Lake = field(init=False)
    _datasets: dict[str, lance.LanceDataset] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        # Without tags that hold versions, so that the files of replaced indexes can be removed.
        self.lake = stoker.connect(str(self.folder / "lake"), hold_days=0)

    def num_rows(self, kind: str, most: int | None = None) -> int:
        """Returns the number of rows of a table, which is at most ``most``."""
        light, texts, results = self.light_rows, self.text_rows, self.result_rows
        known = {"light": light, "plain": light, "texts": texts, "pairs": texts, "lists": texts, "results": results}
        rows = known.get(kind, self.vector_rows)
        return rows if most is None else min(rows, most)

    def table(self, kind: str, most: int | None = None) -> str:
        """Returns the name of a table of at most ``most`` rows, which is written if it is not there."""
        name = f"{kind}_{self.num_rows(kind, most)}"
        prepare(self.lake, self.folder, name)
        return name

    def needed_binary(self) -> str:
        """Returns the path of the ``stoker`` binary.

        Raises:
            SkippedError: There is none.
        """
        if self.binary is None or not Path(self.binary).exists():
            raise SkippedError(f"skipped: the stoker binary is needed; found {self.binary}; give --stoker")
        return self.binary

    def dataset(self, table: str) -> lance.LanceDataset:
        """Returns pylance's view of a table, which keeps its caches and stays at its version until ``forget``."""
        if table not in self._datasets:
            self._datasets[table] = self.open(table)
        return self._datasets[table]

    def open(self, table: str) -> lance.LanceDataset:
        """Returns a new view of the newest version of a table."""
        return lance.dataset(table_file(self.folder, table))

    def forget(self, table: str) -> None:
        """Drops pylance's view of a table, which has a newer version."""
        self._datasets.pop(table, None)

    def sql(self, text: str, params: Sequence[Any] | None = None) -> pa.Table:
        """Runs a query of Stoker in this process."""
        return self.lake.sql(text, params=params).to_arrow()


@dataclass(frozen=True)
class Measure:
    """A measurement, which gives one or more lines of the table."""

    name: str
    run: Callable[[Context], list[Line]]


def num_processors() -> int:
    """Returns the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
