"""Index builds beside pylance, with the same parameters, of the same rows.

Stoker executes ``CREATE INDEX``. For vectors that also estimates the recall of the index, which is part of its time.
Each side has a copy of the table without indexes, so that other measurements meet the indexes that they expect, and its
index is dropped after each turn.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import lance

from sql_parts.context import Context, Measure
from sql_parts.copies import copied
from sql_parts.data import SUB_VECTORS, TEXT_INDEX, num_graphs, num_partitions, table_file
from sql_parts.line import Line, alternate, secs

__all__ = ["builds"]

_NAME = "built"
#: The most rows of an index whose build would take many minutes otherwise.
_SLOW_ROWS = 200_000


def _no_options(_: int) -> dict[str, int]:
    return {}


@dataclass(frozen=True)
class _Build:
    """An index, as both sides build it.

    Attributes:
        kind: The kind as Stoker names it; pylance has the same names in capitals.
        table: The kind of the table.
        column: The column.
        options: Returns for a number of rows the parameters that both sides get by the same names.
        theirs: Further parameters of pylance, where its defaults are not those of Stoker.
        rows_max: The most rows.
        remark: What the names do not tell.
    """

    kind: str
    table: str
    column: str
    options: Callable[[int], dict[str, int]] = _no_options
    theirs: dict[str, Any] = field(default_factory=dict)
    rows_max: int | None = None
    remark: str = ""

    @property
    def is_of_vectors(self) -> bool:
        """Whether the index is for searches of vectors."""
        return self.kind.startswith("ivf_")

    def sql(self, table: str, num_rows: int) -> str:
        """Returns Stoker's statement."""
        given = ", ".join(f"{name} = {value}" for name, value in self.options(num_rows).items())
        options = f" WITH ({given})" if given else ""
        return f"CREATE INDEX {_NAME} ON {table} USING {self.kind} ({self.column}){options}"

    def build(self, dataset: lance.LanceDataset, num_rows: int) -> None:
        """Builds the index by pylance."""
        options = {**self.options(num_rows), **self.theirs}
        if self.is_of_vectors:
            dataset.create_index(self.column, self.kind.upper(), name=_NAME, metric="L2", **options)
        else:
            dataset.create_scalar_index(self.column, self.kind.upper(), name=_NAME, replace=False, **options)


def _pq_options(num_rows: int) -> dict[str, int]:
    return {"num_partitions": num_partitions(num_rows), "num_sub_vectors": SUB_VECTORS}


def _graph_options(num_rows: int) -> dict[str, int]:
    return {"num_partitions": num_graphs(num_rows), "m": 20, "ef_construction": 150}


_BUILDS = (
    _Build("ivf_pq", "clustered", "v", _pq_options),
    _Build("ivf_hnsw_sq", "clustered", "v", _graph_options, rows_max=_SLOW_ROWS),
    _Build("btree", "light", "code"),
    _Build("bitmap", "light", "small", remark="1,000 distinct numbers"),
    _Build("inverted", "texts", "body", theirs=TEXT_INDEX, remark="words as they are written, with positions"),
    _Build("label_list", "lists", "labels", remark="1 to 8 of 1,000 labels"),
    _Build("ngram", "texts", "body", rows_max=_SLOW_ROWS, remark="texts of 10 to 50 words"),
)


def builds() -> list[Measure]:
    """Builds of each kind of index."""
    return [Measure(f"build, {build.kind}", partial(_built, build)) for build in _BUILDS]


def _built(build: _Build, context: Context) -> list[Line]:
    table = context.table(build.table, build.rows_max)
    num_rows = context.num_rows(build.table, build.rows_max)
    name, other_name = (f"copy_{secrets.token_hex(8)}" for _ in range(2))
    with ExitStack() as stack:
        source = table_file(context.folder, table)
        own, other = (
            stack.enter_context(copied(source, table_file(context.folder, copy))) for copy in (name, other_name)
        )
        for copy in (own, other):
            _drop_all(copy)
        context.lake.table(name)  # pylance opens its table before the time counts, too
        sql = build.sql(name, num_rows)
        kinds: set[str] = set()

        def ours() -> float:
            took = secs(lambda: context.lake.execute(sql))
            kinds.add(_checked(own, num_rows))
            context.lake.execute(f"DROP INDEX {_NAME} ON {name}")
            return took

        def theirs() -> float:
            dataset = lance.dataset(other)
            took = secs(lambda: build.build(dataset, num_rows))
            kinds.add(_checked(other, num_rows))
            lance.dataset(other).drop_index(_NAME)
            return took

        found = alternate(context.build_repeat, ours, theirs, warm_up=False)
    if len(kinds) != 1:
        raise RuntimeError(f"the indexes are of different kinds: {', '.join(sorted(kinds))}")
    told = [", ".join(f"{option} {value}" for option, value in build.options(num_rows).items()), build.remark]
    if build.is_of_vectors:
        told.append("Stoker's time includes the estimate of the recall")
    remark = "; ".join(filter(None, told))
    return [Line(f"build, {build.kind}, {num_rows:,} rows", 1.2, *found, unit="s", remark=remark)]


def _drop_all(table: str) -> None:
    for index in lance.dataset(table).describe_indices():
        lance.dataset(table).drop_index(index.name)


def _checked(table: str, num_rows: int) -> str:
    """Checks that the table has the index, over all rows, and returns its kind as Lance names it."""
    (index,) = lance.dataset(table).describe_indices()
    if index.name != _NAME or index.num_rows_indexed != num_rows:
        raise RuntimeError(f"index {index.name} covers {index.num_rows_indexed} rows, not {num_rows}")
    return str(index.index_type)
