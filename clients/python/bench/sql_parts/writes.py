"""UPDATE and DELETE of 1 % of the light rows beside pylance.

Each side changes a table that it wrote itself, without indexes, and the rows of both are the same. Each figure is that
of a fresh copy of the table, so that no change meets the versions or deletion files of one before.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import lance

from sql_parts.context import Context, Measure
from sql_parts.copies import copied
from sql_parts.data import pylance_file, table_file
from sql_parts.line import Line, alternate, secs

__all__ = ["writes"]

#: The condition on the rows that change: they lie in all files, and in almost all pages.
_WHERE = "id % 100 = 7"


@dataclass(frozen=True)
class _Change:
    """One change, as both sides execute it.

    Attributes:
        name: The name of the statement.
        sql: The statement, with ``{table}`` for the table.
        theirs: The same change by pylance.
        changed: A condition that only the changed rows meet afterwards; without it, they are gone.
    """

    name: str
    sql: str
    theirs: Callable[[lance.LanceDataset], object]
    changed: str | None


_CHANGES = (
    # All numbers were below 1 before.
    _Change(
        "UPDATE",
        f"UPDATE {{table}} SET x = x + 1 WHERE {_WHERE}",
        lambda dataset: dataset.update({"x": "x + 1"}, where=_WHERE),
        "x >= 1",
    ),
    _Change("DELETE", f"DELETE FROM {{table}} WHERE {_WHERE}", lambda dataset: dataset.delete(_WHERE), None),
)


def writes() -> list[Measure]:
    """Changes of rows that are scattered over the table."""
    return [Measure(f"{change.name} of 1 % of the rows", partial(_changed, change)) for change in _CHANGES]


def _changed(change: _Change, context: Context) -> list[Line]:
    table = context.table("plain")
    num_changed = len(range(7, context.light_rows, 100))

    def ours() -> float:
        name = f"copy_{secrets.token_hex(8)}"  # new each time, so that nothing of the copy is cached
        with copied(table_file(context.folder, table), table_file(context.folder, name)) as copy:
            told: list[int | None] = []
            sql = change.sql.format(table=name)
            context.lake.table(name)  # pylance has opened its table, too
            took = secs(lambda: told.append(context.lake.execute(sql).num_rows))
            if told != [num_changed]:
                raise RuntimeError(f"{change.name} told {told[0]} rows, not {num_changed}")
            _check(change, copy, context.light_rows, num_changed)
            return took

    def theirs() -> float:
        source = pylance_file(context.folder, table)
        with copied(source, f"{source}.{secrets.token_hex(8)}") as copy:
            dataset = lance.dataset(copy)
            took = secs(lambda: change.theirs(dataset))
            _check(change, copy, context.light_rows, num_changed)
            return took

    found = alternate(context.repeat, ours, theirs)
    what = f"{change.name} of 1 % of {context.light_rows:,} rows"
    return [Line(what, 1.2, *found, unit="s", remark="scattered rows, a fresh copy of the table each time, no indexes")]


def _check(change: _Change, table: str, num_rows: int, num_changed: int) -> None:
    """Compares the newest version of a table with what the change must have made of it."""
    dataset = lance.dataset(table)
    if change.changed is None:
        found, expected = dataset.count_rows(), num_rows - num_changed
    else:
        found, expected = dataset.count_rows(change.changed), num_changed
    if found != expected:
        raise RuntimeError(f"after {change.name}, {found} rows of {table} are as expected, not {expected}")
