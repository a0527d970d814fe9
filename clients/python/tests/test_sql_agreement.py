"""Stoker returns the same rows as DuckDB for a list of known statements, and for random ones with fixed seeds."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import stoker

NUM_ROWS = 60
NUM_LABELS = 9
NUM_STATEMENTS = 60


def tables() -> dict[str, pa.Table]:
    draw = random.Random(11)
    some = lambda values: [None if draw.random() < 0.15 else values(row) for row in range(NUM_ROWS)]  # noqa: E731
    words = ["", "a", "A", "ab", "b c", "Ä", "日本", "x%y", "x_y", "zz"]
    samples = {
        "id": pa.array(range(NUM_ROWS), pa.int64()),
        "label": pa.array([row * 7 % 11 for row in range(NUM_ROWS)], pa.int64()),
        "x": pa.array(some(lambda row: draw.randrange(-20, 20)), pa.int64()),
        "y": pa.array(some(lambda row: draw.randrange(-400, 400) / 8), pa.float64()),
        "s": pa.array(some(lambda row: draw.choice(words)), pa.string()),
        "f": pa.array(some(lambda row: draw.random() < 0.5), pa.bool_()),
    }
    labels = {
        "label": pa.array(range(NUM_LABELS), pa.int64()),
        "title": pa.array([f"title {label % 4}" for label in range(NUM_LABELS)], pa.string()),
        "weight": pa.array([None if label == 3 else label / 4 for label in range(NUM_LABELS)], pa.float64()),
    }
    return {"samples": pa.table(samples), "labels": pa.table(labels)}


@dataclass
class Engines:
    """Stoker and DuckDB with the same tables."""

    lake: stoker.Lake
    duck: duckdb.DuckDBPyConnection

    def check(self, sql: str) -> None:
        """Checks that both engines return the same rows, in the same order where the statement ends with ORDER BY."""
        ours, theirs = rows_of(self.lake.sql(sql).to_arrow()), self.duck.execute(sql).fetchall()
        theirs = [tuple(plain(value) for value in row) for row in theirs]
        if not is_ordered(sql):
            ours, theirs = sorted(ours, key=repr_key), sorted(theirs, key=repr_key)
        assert len(ours) == len(theirs), f"{sql}\n{ours}\n{theirs}"
        for one, other in zip(ours, theirs, strict=True):
            assert all(map(is_equal, one, other)), f"{sql}\n{one}\n{other}"


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    lake = stoker.connect(str(tmp_path_factory.mktemp("lake")))
    duck = duckdb.connect()
    for name, table in tables().items():
        lake.create_table(name, table)
        duck.register(f"{name}_data", table)
        duck.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_data")
    yield Engines(lake, duck)
    duck.close()


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [[plain(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


def plain(value: Any) -> Any:
    """Returns decimals and NumPy scalars as Python numbers, and other values unchanged."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.item() if isinstance(value, np.generic) else value


def is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-12) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def repr_key(row: tuple[Any, ...]) -> list[tuple[int, Any]]:
    """Returns the sort key of a row. Each column has values of one type, or None, which comes first."""
    return [(0, 0) if value is None else (1, round(value, 6) if isinstance(value, float) else value) for value in row]


def is_ordered(sql: str) -> bool:
    return "ORDER BY" in sql.rpartition(")")[2]


KNOWN = [
    # Nested projections with the same text.
    "SELECT id+1 AS id FROM (SELECT id+1 AS id FROM (SELECT id+1 AS id FROM samples))",
    "SELECT id+1 AS id FROM (SELECT id+1 AS id FROM (SELECT id+1 AS id FROM (SELECT id+1 AS id FROM samples)))",
    "SELECT x AS id, id AS x FROM (SELECT x AS id, id AS x FROM (SELECT x AS id, id AS x FROM samples))",
    "WITH a AS (SELECT id+1 AS id, label FROM samples), b AS (SELECT id+1 AS id, label"
    " FROM a) SELECT id+1 AS id, label FROM b",
    "SELECT -x AS x FROM (SELECT -x AS x FROM (SELECT -x AS x FROM samples) t) u",
    "SELECT id, upper(s) AS s FROM (SELECT id, s || 'b' AS s FROM (SELECT id, s || 'b' AS s FROM samples))",
    "SELECT sum(x) AS x FROM (SELECT sum(x) AS x FROM (SELECT label, sum(x) AS x"
    " FROM samples GROUP BY label) GROUP BY label)",
    "SELECT id+1 AS id FROM (SELECT id+1 AS id FROM samples WHERE id > 3 ORDER BY id LIMIT 7) WHERE id % 2 = 0",
    "SELECT id+1 AS id FROM (SELECT DISTINCT id+1 AS id FROM (SELECT id+1 AS id FROM samples))",
    # Frames that move over nulls, and keys of a sort of which one follows from the other.
    "SELECT id, min(x) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND CURRENT ROW) AS m FROM samples",
    "SELECT id, max(x) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS m,"
    " count(x) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS n FROM samples",
    "SELECT id, min(s) OVER (PARTITION BY label ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS m"
    " FROM samples",
    "SELECT id % 3 AS a, id AS b FROM samples GROUP BY id % 3, id ORDER BY id % 3, id DESC",
    "SELECT id % 3 AS a, id AS b, max(x) AS m FROM samples GROUP BY id % 3, id ORDER BY a DESC, b DESC LIMIT 7",
    # Nulls.
    "SELECT id FROM samples WHERE x IS NULL OR NOT (x > 0)",
    "SELECT id FROM samples WHERE x NOT IN (1, 2, 3)",
    "SELECT id FROM samples WHERE label NOT IN (SELECT label FROM labels WHERE weight > 1)",
    "SELECT id FROM samples WHERE label NOT IN (SELECT x FROM samples)",
    "SELECT id FROM samples WHERE x NOT IN (SELECT label FROM labels)",
    "SELECT id FROM samples WHERE x NOT IN (SELECT x FROM samples WHERE id < 0)",
    "SELECT id FROM samples WHERE x % 7 <> 2 AND x NOT IN (SELECT x FROM samples WHERE id < 20)",
    "SELECT id FROM samples WHERE x NOT IN (SELECT x FROM samples WHERE id < 20) OR id = 3",
    "SELECT id FROM samples WHERE x NOT IN (SELECT x FROM samples WHERE id < 20 AND x IS NOT NULL)",
    "SELECT id FROM samples WHERE (x NOT IN (SELECT x FROM samples WHERE id < 20 AND x IS NOT NULL)) IS NOT FALSE",
    "SELECT id FROM samples WHERE (x NOT IN (SELECT x FROM samples WHERE id < 9)) IS NULL",
    "SELECT id FROM samples WHERE (x IN (SELECT x FROM samples WHERE id < 9)) IS NOT TRUE",
    "SELECT id FROM samples WHERE (x IN (SELECT x FROM samples WHERE id < 9)) IS FALSE",
    "SELECT id FROM samples WHERE NOT (x IN (SELECT x FROM samples WHERE id < 20) OR label = 3)",
    "SELECT id FROM samples a WHERE x NOT IN (SELECT b.x FROM samples b WHERE b.label = a.label AND b.id > a.id)",
    "SELECT id, coalesce(x, label, 0) AS v, nullif(label, 3) AS w FROM samples",
    "SELECT count(*), count(x), count(DISTINCT x), sum(x), min(x), max(x), avg(y) FROM samples",
    "SELECT sum(x), count(x) FROM samples WHERE id < 0",
    "SELECT f, count(*) AS n, bool_and(f) AS every FROM samples GROUP BY f",
    "SELECT id FROM samples WHERE f IS DISTINCT FROM true",
    "SELECT id, x FROM samples ORDER BY x DESC NULLS FIRST, id",
    "SELECT id, y FROM samples ORDER BY y ASC NULLS LAST, id LIMIT 20 OFFSET 5",
    # Text.
    "SELECT id, upper(s), lower(s), length(s), trim(s), reverse(s) FROM samples",
    "SELECT id FROM samples WHERE s LIKE 'x!_%' ESCAPE '!' OR s ILIKE 'A%'",
    "SELECT id, substr(s, 1, 1), replace(s, 'a', 'zz'), s || '-' || CAST(id AS VARCHAR), strpos(s, 'b') FROM samples",
    "SELECT id, CASE WHEN s = '' THEN 'empty' WHEN s < 'b' THEN 'low' ELSE coalesce(s, 'none') END AS k FROM samples",
    "SELECT s, count(*) FROM samples GROUP BY s HAVING count(*) > 3",
    "SELECT string_agg(title, ',' ORDER BY label) FROM labels",
    # Numbers.
    "SELECT id, x % 7, abs(x), floor(y), ceil(y), round(y), CAST(y AS BIGINT) IS NULL FROM samples",
    "SELECT id, power(2.0, label), sqrt(abs(y)), exp(y / 100), ln(abs(y) + 1) FROM samples",
    "SELECT id, greatest(x, label, 3), least(label, 3) FROM samples WHERE x IS NOT NULL",
    "SELECT label, stddev_samp(y), var_pop(y), corr(id, y), median(id) FROM samples WHERE y IS NOT NULL GROUP BY label",
    "SELECT id FROM samples WHERE y BETWEEN -3.5 AND 7.25",
    # Joins.
    "SELECT s.id, l.title FROM samples s JOIN labels l ON s.label = l.label",
    "SELECT s.id, l.title, l.weight FROM samples s LEFT JOIN labels l ON s.label = l.label AND l.weight > 0.5",
    "SELECT s.id, l.label FROM samples s RIGHT JOIN labels l ON s.label = l.label AND s.x > 10",
    "SELECT s.id, l.label FROM samples s FULL JOIN labels l ON s.label = l.label AND s.x > 10",
    "SELECT count(*) FROM samples a, samples b WHERE a.x < b.x AND a.label = b.label",
    "SELECT a.id FROM samples a JOIN samples b ON a.id = b.id + 1 AND a.x > b.x",
    "SELECT id FROM samples s WHERE EXISTS (SELECT 1 FROM labels l WHERE l.label = s.label AND l.weight > 1)",
    "SELECT id FROM samples s WHERE NOT EXISTS (SELECT 1 FROM labels l WHERE l.label = s.label)",
    "SELECT id, (SELECT max(weight) FROM labels l WHERE l.label = s.label) AS w FROM samples s",
    "SELECT id, label FROM samples WHERE x = (SELECT max(x) FROM samples)",
    "SELECT * FROM labels a CROSS JOIN labels b WHERE a.label + b.label = 8",
    "SELECT label, title, id FROM samples JOIN labels USING (label)",
    # Sets and groups.
    "SELECT label FROM samples UNION SELECT label FROM labels",
    "SELECT label FROM samples UNION ALL SELECT label + 1 FROM labels",
    "SELECT label FROM samples EXCEPT SELECT label FROM labels",
    "SELECT label FROM samples INTERSECT SELECT label FROM labels",
    # One side can be NULL, and the other one cannot.
    "SELECT x > 0 AS b FROM samples INTERSECT SELECT id > 7 FROM samples",
    "SELECT id > 70 AS b FROM samples INTERSECT SELECT x > 0 FROM samples",
    "SELECT x > 0 AS b FROM samples EXCEPT SELECT id > 7 FROM samples",
    "SELECT id > 7 AS b FROM samples EXCEPT SELECT x > 300 FROM samples",
    "SELECT x IS NULL AS b, id FROM samples EXCEPT SELECT x > 0, id FROM samples",
    "SELECT x IS NULL AS b, id FROM samples INTERSECT SELECT f, id FROM samples",
    "SELECT DISTINCT x > 0 AS b, x IS NULL AS n FROM samples WHERE x IS NULL OR f",
    "SELECT count(*), b FROM (SELECT x > 0 AS b FROM samples UNION SELECT id > 7 FROM samples) GROUP BY b",
    "SELECT DISTINCT label % 3 AS m, f FROM samples",
    "SELECT label, f, count(*) AS n FROM samples GROUP BY ROLLUP (label, f)",
    "SELECT label, f, sum(x) AS n FROM samples GROUP BY GROUPING SETS ((label), (f), ())",
    "SELECT label, f, sum(x) AS n FROM samples GROUP BY CUBE (label, f)",
    "SELECT label, count(*) FILTER (WHERE x > 0) AS n FROM samples GROUP BY label",
    "SELECT label % 2 AS k, sum(id) AS n FROM samples GROUP BY k HAVING sum(id) > 100",
    "SELECT label, count(DISTINCT s) AS n FROM samples GROUP BY label ORDER BY n DESC, label LIMIT 4",
    "SELECT n FROM (SELECT 1 > 1 AS n FROM (SELECT count(*) AS n FROM samples)) WHERE n",
    "SELECT n, m FROM (SELECT count(*) AS n, 1 > 1 AS m FROM samples) WHERE m OR n < 0",
    "SELECT id, n FROM labels JOIN samples USING (label) LEFT JOIN (SELECT count(*) AS n FROM samples) ON 1 > 1",
    "SELECT n FROM (SELECT DISTINCT n, false AS f FROM (SELECT sum(x) AS n FROM samples)) WHERE f",
    "SELECT label FROM labels WHERE EXISTS (SELECT f FROM (SELECT false AS f FROM (SELECT count(*)"
    " FROM samples)) WHERE f)",
    "SELECT id AS n, x FROM samples UNION ALL SELECT count(*) AS n, 1 AS x FROM samples",
    # Windows.
    "SELECT id, row_number() OVER (PARTITION BY label ORDER BY id) AS n FROM samples",
    "SELECT id, sum(x) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS n FROM samples",
    "SELECT id, lag(x, 2, 0) OVER (ORDER BY id), lead(x) OVER (PARTITION BY label ORDER BY id DESC) FROM samples",
    "SELECT id, rank() OVER (ORDER BY label), dense_rank() OVER (ORDER BY label), ntile(7) OVER (ORDER"
    " BY id) FROM samples",
    "SELECT id, first_value(y) OVER (PARTITION BY f ORDER BY id), avg(y) OVER (PARTITION BY f ORDER BY"
    " id) FROM samples",
    "SELECT id"
    " FROM (SELECT id, row_number() OVER (PARTITION BY label ORDER BY y DESC NULLS LAST, id) AS n"
    " FROM samples) WHERE n <= 2",
    # Constants.
    "SELECT 1 + 1 AS a, 'it''s' AS b, NULL AS c, true AND NULL AS d, 0.1 + 0.2 < 0.31 AS e",
    "SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS t(n, s) JOIN labels ON n = label",
]


@pytest.mark.parametrize("sql", KNOWN)
def test_known_statements(engines: Engines, sql: str) -> None:
    engines.check(sql)


class Statements:
    """Draws random statements: nested relations whose columns often keep their names."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.num_aliases = 0

    def statement(self) -> str:
        sql, columns = self.relation(self.draw.randrange(1, 6))
        if self.draw.random() < 0.5:
            keys = ", ".join(f"{column} {self.draw.choice(('ASC', 'DESC'))} NULLS LAST" for column in columns)
            return f"SELECT * FROM ({sql}) AS t ORDER BY {keys} LIMIT {self.draw.randrange(1, 50)}"
        return sql

    def relation(self, depth: int) -> tuple[str, dict[str, str]]:
        """Returns a SELECT, and the types of its columns, which are keys of `TYPES`."""
        if depth == 0:
            return self.draw.choice(
                [
                    ("SELECT * FROM samples", {"id": "i", "label": "i", "x": "i", "y": "f", "s": "s", "f": "b"}),
                    ("SELECT * FROM labels", {"label": "i", "title": "s", "weight": "f"}),
                ]
            )
        kinds = [self.projection, self.projection, self.projection, self.filter, self.group, self.join, self.union]
        return self.draw.choice([*kinds, self.distinct, self.window])(depth - 1)

    def projection(self, depth: int) -> tuple[str, dict[str, str]]:
        below, columns = self.relation(depth)
        kept = self.draw.sample(list(columns), self.draw.randrange(1, len(columns) + 1))
        typed = {name: self.draw.choice((columns[name], columns[name], self.draw.choice("ifsb"))) for name in kept}
        exprs = {name: self.expr(kind, columns, 2) for name, kind in typed.items()}
        sql = f"SELECT {self.list(exprs)} FROM ({below}) AS {self.alias()}"
        # The same projection may be nested in itself up to three more times.
        for _ in range(self.draw.choice((0, 0, 0, 1, 2, 3)) if set(columns) == set(typed) else 0):
            if any(columns[name] != kind for name, kind in typed.items()) or len(sql) > 4000:
                break
            sql = f"SELECT {self.list(exprs)} FROM ({sql}) AS {self.alias()}"
        return sql, typed

    def filter(self, depth: int) -> tuple[str, dict[str, str]]:
        below, columns = self.relation(depth)
        return f"SELECT * FROM ({below}) AS {self.alias()} WHERE {self.expr('b', columns, 2)}", columns

    def group(self, depth: int) -> tuple[str, dict[str, str]]:
        below, columns = self.relation(depth)
        keys = self.draw.sample(list(columns), self.draw.randrange(0, min(3, len(columns))))
        numbers = [name for name, kind in columns.items() if kind == "i"]
        totals = {"n": "count(*)"}
        if numbers:
            number = self.draw.choice(numbers)
            call = self.draw.choice(
                ("CAST(sum({}) AS BIGINT)", "min({})", "max({})", "count({})", "count(DISTINCT {})")
            )
            totals["m"] = call.format(number)
        totals = {name: call for name, call in totals.items() if name not in keys}
        listed = ", ".join([*keys, *(f"{call} AS {name}" for name, call in totals.items())])
        grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
        typed = {**{name: columns[name] for name in keys}, **dict.fromkeys(totals, "i")}
        return f"SELECT {listed} FROM ({below}) AS {self.alias()}{grouped}", typed

    def join(self, depth: int) -> tuple[str, dict[str, str]]:
        (left, ours), (right, theirs) = self.relation(depth // 2), self.relation(depth // 2)
        keys = [(a, b) for a, one in ours.items() for b, other in theirs.items() if one == other == "i"]
        if not keys:
            return left, ours
        (a, b), kind = self.draw.choice(keys), self.draw.choice(("JOIN", "LEFT JOIN", "FULL JOIN", "RIGHT JOIN"))
        one, other = self.alias(), self.alias()
        exprs = {name: f"{one}.{name}" for name in ours}
        exprs.update({f"{name}_": f"{other}.{name}" for name in theirs})
        typed = {**ours, **{f"{name}_": kind for name, kind in theirs.items()}}
        kept = self.draw.sample(list(exprs), min(len(exprs), 6))
        small = "SELECT * FROM ({}) AS {} LIMIT 0" if self.draw.random() < 0.05 else "{}"
        right = small.format(right, self.alias())
        on = f"{one}.{a} % 16 = {other}.{b} % 16 AND {one}.{a} = {other}.{b}"
        listed = self.list({name: exprs[name] for name in kept})
        sql = f"SELECT {listed} FROM ({left}) AS {one} {kind} ({right}) AS {other} ON {on}"
        # The LIMIT keeps joins of joins from growing without bound.
        keys = ", ".join(f"{name} NULLS LAST" for name in kept)
        return f"SELECT * FROM ({sql}) AS {self.alias()} ORDER BY {keys} LIMIT 300", {
            name: typed[name] for name in kept
        }

    def union(self, depth: int) -> tuple[str, dict[str, str]]:
        below, columns = self.relation(depth)
        one, other = ({name: self.expr(kind, columns, 1) for name, kind in columns.items()} for _ in range(2))
        call = self.draw.choice(("UNION ALL", "UNION", "EXCEPT", "INTERSECT"))
        first = f"SELECT {self.list(one)} FROM ({below}) AS {self.alias()}"
        return f"{first} {call} SELECT {self.list(other)} FROM ({below}) AS {self.alias()}", columns

    def distinct(self, depth: int) -> tuple[str, dict[str, str]]:
        below, columns = self.relation(depth)
        kept = self.draw.sample(list(columns), self.draw.randrange(1, len(columns) + 1))
        sql = f"SELECT DISTINCT {', '.join(kept)} FROM ({below}) AS {self.alias()}"
        return sql, {name: columns[name] for name in kept}

    def window(self, depth: int) -> tuple[str, dict[str, str]]:
        below, columns = self.relation(depth)
        part, keys = self.draw.choice(list(columns)), ", ".join(f"{name} NULLS LAST" for name in columns)
        name = f"r{self.num_aliases}"
        call = f"row_number() OVER (PARTITION BY {part} ORDER BY {keys}) AS {name}"
        return f"SELECT *, {call} FROM ({below}) AS {self.alias()}", {**columns, name: "i"}

    def expr(self, kind: str, columns: dict[str, str], depth: int) -> str:
        names = [name for name, found in columns.items() if found == kind]
        if depth == 0 or (names and self.draw.random() < 0.25):
            constants = {"i": ("0", "1", "3"), "f": ("0.5", "-2.25"), "s": ("'a'", "''"), "b": ("true", "false")}
            return self.draw.choice(names or [f"CAST({self.draw.choice(constants[kind])} AS {TYPES[kind]})"])
        inner = lambda of: self.expr(of, columns, depth - 1)  # noqa: E731
        choices = {
            "i": lambda: self.draw.choice(
                (
                    lambda: f"({inner('i')} + 1)",
                    lambda: f"({inner('i')} % 100 - {inner('i')} % 50)",
                    lambda: f"({inner('i')} % 1000 * 3)",
                    lambda: f"CAST(length({inner('s')}) AS BIGINT)",
                    lambda: f"coalesce({inner('i')}, 7)",
                    lambda: f"CASE WHEN {inner('b')} THEN {inner('i')} ELSE {inner('i')} END",
                )
            )(),
            "f": lambda: self.draw.choice(
                (
                    lambda: f"({inner('f')} * 0.5)",
                    lambda: f"(CAST({inner('i')} AS DOUBLE) + {inner('f')})",
                    lambda: f"abs({inner('f')})",
                    lambda: f"CASE WHEN {inner('b')} THEN {inner('f')} END",
                )
            )(),
            "s": lambda: self.draw.choice(
                (
                    lambda: f"upper({inner('s')})",
                    lambda: f"substr({inner('s')}, 1, 3)",
                    lambda: f"(substr({inner('s')}, 1, 6) || 'x')",
                    lambda: f"CAST({inner('i')} AS VARCHAR)",
                    lambda: f"coalesce({inner('s')}, 'none')",
                )
            )(),
            "b": lambda: self.draw.choice(
                (
                    lambda: f"({inner('i')} < {inner('i')})",
                    lambda: f"({inner('s')} = {inner('s')})",
                    lambda: f"({inner('f')} > {inner('f')})",
                    lambda: f"({inner('b')} AND {inner('b')})",
                    lambda: f"({inner('b')} OR NOT {inner('b')})",
                    lambda: f"({self.draw.choice(list(columns))} IS NULL)",
                    lambda: f"({inner('i')} IN (1, 2, 3, 5, 8))",
                )
            )(),
        }
        return str(choices[kind]())

    def list(self, exprs: dict[str, str]) -> str:
        return ", ".join(f"{expr} AS {name}" for name, expr in exprs.items())

    def alias(self) -> str:
        self.num_aliases += 1
        return f"t{self.num_aliases}"


TYPES = {"i": "BIGINT", "f": "DOUBLE", "s": "VARCHAR", "b": "BOOLEAN"}


@pytest.mark.parametrize("seed", range(10))
def test_random_statements(engines: Engines, seed: int) -> None:
    statements = Statements(seed)
    for _ in range(NUM_STATEMENTS):
        engines.check(statements.statement())
