"""Queries of the soak whose results are known, whatever else the server does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from soak_table import APPENDED, BASE_TAG, NUM_BASE_ROWS, NUM_LABELS

import stoker

#: A statement, its parameters, and the rows of its result.
Question = tuple[str, list[Any], list[dict[str, Any]]]

BASE = f"{APPENDED} AT (TAG => '{BASE_TAG}')"
_N = NUM_BASE_ROWS
_SUM = _N * (_N - 1) // 2


def _nested(levels: int) -> str:
    """Returns a query for the ids of the base plus `levels`, as nested queries that each add 1 under the same name."""
    query = f"SELECT id FROM {BASE}"
    for _ in range(levels):
        query = f"SELECT id + 1 AS id FROM ({query})"
    return query


def _labels(draw: random.Random) -> Question:
    label = draw.randrange(NUM_LABELS)
    ids = range(label, _N, NUM_LABELS)
    rows = [{"n": len(ids), "s": sum(ids)}]
    return f"SELECT count(*) AS n, sum(id) AS s FROM {BASE} WHERE label = $1", [label], rows


def _nested_sum(draw: random.Random) -> Question:
    levels = draw.randint(1, 6)
    return f"SELECT sum(id) AS s, min(id) AS m FROM ({_nested(levels)})", [], [{"s": _SUM + levels * _N, "m": levels}]


def _nested_rows(draw: random.Random) -> Question:
    levels, first = draw.randint(1, 6), draw.randrange(10, _N - 10)
    rows = [{"id": row} for row in range(first, first + 5)]
    return f"SELECT id FROM ({_nested(levels)}) WHERE id >= $1 AND id < $2 ORDER BY id", [first, first + 5], rows


def _nested_filters(draw: random.Random) -> Question:
    first = draw.randrange(10, _N - 10)
    sql = f"SELECT count(*) AS n FROM (SELECT id + 1 AS id FROM {BASE} WHERE id < $1) WHERE id <> $1"
    return sql, [first], [{"n": first - 1}]


def _groups(_: random.Random) -> Question:
    rows = [{"label": label, "n": len(range(label, _N, NUM_LABELS))} for label in range(NUM_LABELS)]
    return f"SELECT label, count(*) AS n FROM {BASE} GROUP BY label ORDER BY label", [], rows


def _join(draw: random.Random) -> Question:
    step = draw.randint(1, 50)
    sql = f"SELECT count(*) AS n, sum(a.id) AS s FROM {BASE} a JOIN {BASE} b ON a.id + $1 = b.id"
    return sql, [step], [{"n": _N - step, "s": (_N - step) * (_N - step - 1) // 2}]


def _names(draw: random.Random) -> Question:
    wanted = sorted(draw.sample(range(_N), 3))
    rows = [{"id": row, "name": f"row {row}"} for row in wanted]
    return f"SELECT id, name FROM {BASE} WHERE id IN ($1) ORDER BY id", [wanted], rows


QUESTIONS: list[Callable[[random.Random], Question]] = [
    _labels,
    _nested_sum,
    _nested_rows,
    _nested_filters,
    _groups,
    _join,
    _names,
]


def ask(lake: stoker.Lake, draw: random.Random) -> None:
    """Runs one of the queries; fails if its result is wrong."""
    sql, params, wanted = draw.choice(QUESTIONS)(draw)
    answer = lake.sql(sql, params).to_arrow().to_pylist()
    assert answer == wanted, f"a wrong answer to {sql} with {params}: {answer!s:.500} in place of {wanted!s:.500}"


def count(lake: stoker.Lake, table: str) -> int:
    """Returns the number of rows of a table's newest version; fails if two rows have the same id."""
    sql = f"SELECT count(*) AS n, count(DISTINCT id) AS d FROM {table}"
    (row,) = lake.sql(sql).to_arrow().to_pylist()
    assert row["n"] == row["d"], f"{table} has {row['n']} rows of {row['d']} ids"
    return int(row["n"])
