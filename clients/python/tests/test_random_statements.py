"""Random statements return the same rows as in DuckDB, before and after appends, changes, indexes and compaction."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import duckdb
import lance
import pyarrow as pa
import pytest
from sql_generator import KEYS, TABLES, Select, Statement, Statements, shrunk
from test_sql_agreement import is_equal, plain, repr_key, rows_of

import stoker

NUM_SEEDS, NUM_STATEMENTS = 10, 30
#: How a difference begins if DuckDB has a result and Stoker an error.
FAILS = "Stoker fails"
#: Three data files of `events`, and then more by appends.
ROWS_PER_FRAGMENT = 40
WORDS = ["", "a", "A", "ab", "b c", "Ä", "日本", "x%y", "x_y", "zz", "title 2"]

#: Changes that both systems execute.
CHANGES = [
    "INSERT INTO kinds VALUES (20, 'late', 1.5, DATE '2024-07-01'), (21, NULL, NULL, NULL)",
    "DELETE FROM events WHERE id % 7 = 3 OR (n IS NULL AND b)",
    "DELETE FROM notes WHERE event IN (SELECT id FROM events WHERE grp = 4)",
    "UPDATE events SET n = n + 3, s = upper(s) WHERE id % 5 = 1",
    "UPDATE events SET x = NULL, b = NOT b WHERE grp = 2",
    "UPDATE kinds SET weight = weight * 0.5, since = DATE '2024-06-30' WHERE kind % 4 = 1",
]
INDEXES = [
    "CREATE INDEX ON events USING btree (id)",
    "CREATE INDEX ON events USING bitmap (grp)",
    "CREATE INDEX ON events USING btree (n)",
    "CREATE INDEX ON events USING btree (x)",
    "CREATE INDEX ON events USING bitmap (s)",
    "CREATE INDEX ON events USING btree (d)",
    "CREATE INDEX ON events USING btree (t)",
    "CREATE INDEX ON kinds USING btree (title)",
    "CREATE INDEX ON notes USING bitmap (score)",
]
#: Changes of columns that have an index, which then does not cover all rows.
LATE_CHANGES = [
    "DELETE FROM events WHERE id % 11 = 5",
    "UPDATE events SET n = n - 5, d = DATE '2024-03-01' WHERE id % 6 = 2",
    "UPDATE notes SET score = NULL WHERE note % 8 = 7",
]
#: The states of the tables in which the statements run. Each begins with the changes of the one before it.
STATES = ["fresh", "appended", "changed", "indexed and compacted", "changed again"]


def rows_from(first: dict[str, int], last: dict[str, int]) -> dict[str, pa.Table]:
    """Returns the rows of each table from one number to another. A row depends on its number only."""

    def column(table: str, of: Callable[[random.Random, int], Any], kind: pa.DataType, nulls: float = 0.15) -> pa.Array:
        values = []
        for row in range(first[table], last[table]):
            draw = random.Random(f"{table} {kind} {nulls} {row}")
            values.append(None if draw.random() < nulls else of(draw, row))
        return pa.array(values, kind)

    start = datetime(2024, 1, 1)
    events = {
        "id": column("events", lambda draw, row: row, pa.int64(), 0),
        "grp": column("events", lambda draw, row: row * 7 % 11, pa.int64(), 0),
        "n": column("events", lambda draw, row: draw.randrange(-12, 13), pa.int64()),
        "x": column("events", lambda draw, row: draw.randrange(-40, 41) / 8, pa.float64()),
        "s": column("events", lambda draw, row: draw.choice(WORDS), pa.string()),
        "b": column("events", lambda draw, row: draw.random() < 0.5, pa.bool_()),
        "d": column("events", lambda draw, row: date(2024, 1, 1) + timedelta(draw.randrange(150)), pa.date32()),
        "t": column("events", lambda draw, row: start + timedelta(minutes=draw.randrange(100_000)), pa.timestamp("us")),
    }
    kinds = {
        "kind": column("kinds", lambda draw, row: row, pa.int64(), 0),
        "title": column("kinds", lambda draw, row: f"title {row % 4}", pa.string(), 0),
        "weight": column("kinds", lambda draw, row: row / 4, pa.float64()),
        "since": column("kinds", lambda draw, row: date(2024, 1, 1) + timedelta(30 * row), pa.date32()),
    }
    notes = {
        "note": column("notes", lambda draw, row: row, pa.int64(), 0),
        # Some rows of `events` have several notes, and some notes belong to no row.
        "event": column("notes", lambda draw, row: draw.randrange(170), pa.int64()),
        # The first scores are known, so that NOT IN finds rows.
        "score": column("notes", lambda draw, row: None if row % 12 == 11 else draw.randrange(-3, 12), pa.int64(), 0),
        "tag": column("notes", lambda draw, row: draw.choice(WORDS), pa.string()),
    }
    return {"events": pa.table(events), "kinds": pa.table(kinds), "notes": pa.table(notes)}


NONE = dict.fromkeys(TABLES, 0)
FRESH = {"events": 110, "kinds": 8, "notes": 70}
MORE = {"events": 150, "kinds": 10, "notes": 90}
MOST = {"events": 165, "kinds": 10, "notes": 100}


@dataclass
class Engines:
    """Stoker and DuckDB with the same tables, in one of the states."""

    lake: stoker.Lake
    duck: duckdb.DuckDBPyConnection
    state: str

    def append(self, tables: dict[str, pa.Table]) -> None:
        for name, rows in tables.items():
            if rows.num_rows:
                self.lake.table(name).append(rows)
                self.duck.from_arrow(rows).insert_into(name)

    def execute(self, changes: list[str]) -> None:
        for change in changes:
            self.lake.execute(change)
            self.duck.execute(change)

    def change_again(self) -> None:
        self.append(rows_from(MORE, MOST))
        self.execute(LATE_CHANGES)

    def index_and_compact(self) -> None:
        """DuckDB has no such statements, which change no row."""
        for index in INDEXES:
            self.lake.execute(index)
        for name in TABLES:
            lance.dataset(f"{self.lake.target}/{name}.lance").optimize.compact_files()
        self.lake.execute("OPTIMIZE INDEX ON events")

    def differences(self, statement: Statement) -> str:
        """Says how the results of a statement differ; empty if they do not."""
        sql = str(statement)
        theirs = [tuple(plain(value) for value in row) for row in self.duck.execute(sql).fetchall()]
        try:
            ours = rows_of(self.lake.sql(sql).to_arrow())
        except stoker.StokerError as error:
            return f"{FAILS}: {error}"
        return differences(ours, theirs, statement.is_ordered)

    def check(self, statement: Statement, seed: int | str) -> None:
        found = self.differences(statement)
        if not found:
            return

        def differs(smaller: Statement) -> bool:
            # A statement that lost one of its parts may be refused, which is another difference.
            try:
                other = self.differences(smaller)
            except duckdb.Error:
                return False
            return bool(other) and other.startswith(FAILS) == found.startswith(FAILS)

        small = shrunk(statement, differs)
        pytest.fail(
            f"seed {seed}, tables {self.state}:\n{statement}\n{found}\n"
            f"the smallest statement that differs:\n{small}\n{self.differences(small)}",
            pytrace=False,
        )


def differences(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]], is_ordered: bool) -> str:
    """Compares two results: as lists if they are ordered, else as multisets."""
    if not is_ordered:
        ours, theirs = sorted(ours, key=repr_key), sorted(theirs, key=repr_key)
    if len(ours) != len(theirs):
        only_ours, only_theirs = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
        few = [list(only.elements())[:5] for only in (only_ours, only_theirs)]
        return f"Stoker has {len(ours)} rows and DuckDB {len(theirs)}; only in Stoker {few[0]}, only in DuckDB {few[1]}"
    for row, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if len(one) != len(other) or not all(map(is_equal, one, other)):
            return f"row {row} of {len(ours)} is {one} in Stoker and {other} in DuckDB"
    return ""


@pytest.fixture(scope="module", params=STATES)
def engines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    state: str = request.param
    lake, duck = stoker.connect(str(tmp_path_factory.mktemp("lake"))), duckdb.connect()
    for name, rows in rows_from(NONE, FRESH).items():
        lake.create_table(name, rows, rows_per_fragment=ROWS_PER_FRAGMENT)
        duck.from_arrow(rows).create(name)
    engines = Engines(lake, duck, state)
    steps: list[Callable[[], None]] = [
        lambda: engines.append(rows_from(FRESH, MORE)),
        lambda: engines.execute(CHANGES),
        engines.index_and_compact,
        engines.change_again,
    ]
    for step in steps[: STATES.index(state)]:
        step()
    yield engines
    duck.close()


def test_tables_are_equal(engines: Engines) -> None:
    for table, columns in TABLES.items():
        exprs = tuple((f"{table}.{name}", kind) for name, kind in columns.items())
        rows = Statement((Select("c", table, exprs),), order=(f"{table}.{KEYS[table]} NULLS LAST",))
        engines.check(rows, table)


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_random_statements(engines: Engines, seed: int) -> None:
    statements = Statements(seed)
    for _ in range(NUM_STATEMENTS):
        engines.check(statements.statement(), seed)


def all_statements() -> list[Statement]:
    return [statement for seed in range(NUM_SEEDS) for statement in drawn(seed)]


def drawn(seed: int) -> list[Statement]:
    statements = Statements(seed)
    return [statements.statement() for _ in range(NUM_STATEMENTS)]


def test_statements_of_a_seed_are_the_same_at_each_run_and_have_all_clauses() -> None:
    sqls = list(map(str, all_statements()))
    assert sqls == list(map(str, all_statements()))
    assert len(set(sqls)) > 0.95 * len(sqls)
    clauses = (
        "DISTINCT|WHERE|GROUP BY|HAVING|LIMIT|OFFSET|WITH q|FROM (SELECT|UNION SELECT|UNION ALL|INTERSECT|EXCEPT|"
        " JOIN|LEFT JOIN|RIGHT JOIN|FULL JOIN|CROSS JOIN|NOT EXISTS|NOT IN (SELECT| IN (SELECT|LIKE|BETWEEN|CASE|"
        "OVER (|PARTITION BY|ROWS BETWEEN|rank()|lag(|count(DISTINCT|FILTER|avg(|(SELECT max(|IS NOT TRUE|"
        "IS DISTINCT FROM"
    )
    missing = [clause for clause in clauses.split("|") if not any(clause in sql for sql in sqls)]
    assert not missing


def test_most_statements_find_rows() -> None:
    duck = duckdb.connect()
    for name, rows in rows_from(NONE, FRESH).items():
        duck.from_arrow(rows).create(name)
    found = [bool(duck.execute(str(statement)).fetchall()) for statement in all_statements()]
    assert sum(found) > 0.6 * len(found)


def test_a_difference_is_told_with_the_smallest_statement() -> None:
    """The statement differs while it compares `n` with a number."""
    select = Select("c", "events", (("id", "i"), ("n", "i")), where=("n > 3", "b"), distinct=True)
    statement = Statement((select,), order=("c0",), limit=" LIMIT 3")
    assert str(shrunk(statement, lambda smaller: "n > 3" in str(smaller))) == "SELECT n AS c0 FROM events WHERE n > 3"
    one, other = [(1, 0.1 + 0.2), (2, None)], [(2, None), (1, 0.3)]
    assert not differences(one, other, False)
    assert "row 0 of 2 is (1, 0.3" in differences(one, other, True)
    assert "Stoker has 2 rows and DuckDB 1; only in Stoker [(1," in differences(one, other[:1], False)
    assert "(True,) in Stoker and (1,)" in differences([(True,)], [(1,)], False)
