"""Draws random SELECT statements that Stoker and DuckDB answer alike.

The statements avoid what the two systems do differently by design. Each place that avoids something says why.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

#: The kinds of columns: i integers, f floats, s texts, b booleans, d dates, t timestamps. A float of kind g is rounded,
#: so that only its value is compared: two systems may add floats in another order.
Columns = dict[str, str]

#: The columns of the tables, and the column that tells the rows of a table apart.
TABLES: dict[str, Columns] = {
    "events": {"id": "i", "grp": "i", "n": "i", "x": "f", "s": "s", "b": "b", "d": "d", "t": "t"},
    "kinds": {"kind": "i", "title": "s", "weight": "f", "since": "d"},
    "notes": {"note": "i", "event": "i", "score": "i", "tag": "s"},
}
KEYS = {"events": "id", "kinds": "kind", "notes": "note"}

#: Constants are near the values of the columns.
CONSTANTS = {
    "i": ["0", "1", "2", "3", "5", "7", "11", "40", "120", "-4", "-11"],
    "f": ["0.0", "0.5", "1.25", "3.0", "-0.75", "-2.5"],
    "s": ["'a'", "'A'", "'b'", "'x_y'", "''", "'Ä'", "'zz'", "'title 2'"],
    "d": ["DATE '2024-01-20'", "DATE '2024-03-01'", "DATE '2024-05-17'", "DATE '2025-01-01'"],
    "t": ["TIMESTAMP '2024-01-09 12:00:00'", "TIMESTAMP '2024-02-11 03:30:00'", "TIMESTAMP '2024-03-05 00:00:00'"],
}
#: No pattern has a backslash, which is an escape character in only one of the systems.
PATTERNS = ["'a%'", "'%b%'", "'_'", "'x__'", "'%'", "'title _'", "'%y'", "'Ä%'", "''"]
COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]


@dataclass(frozen=True)
class Source:
    """What stands in FROM. Rows that are equal in `keys` are equal in all columns."""

    sql: str
    columns: Columns
    keys: tuple[str, ...]

    def named(self, kinds: str) -> list[str]:
        """The columns of these kinds."""
        return [name for name, kind in self.columns.items() if kind in kinds]


@dataclass(frozen=True)
class Select:
    """A SELECT. Its output columns are named by `prefix` and a number."""

    prefix: str
    source: str
    exprs: tuple[tuple[str, str], ...]
    where: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    having: tuple[str, ...] = ()
    distinct: bool = False

    @property
    def columns(self) -> Columns:
        return {f"{self.prefix}{index}": kind for index, (_, kind) in enumerate(self.exprs)}

    def __str__(self) -> str:
        listed = ", ".join(f"{expr} AS {name}" for (expr, _), name in zip(self.exprs, self.columns, strict=True))
        sql = f"SELECT {'DISTINCT ' if self.distinct else ''}{listed} FROM {self.source}"
        for clause, exprs, between in (("WHERE", self.where, " AND "), ("GROUP BY", self.groups, ", ")):
            sql += f" {clause} {between.join(exprs)}" if exprs else ""
        return sql + (f" HAVING {' AND '.join(self.having)}" if self.having else "")

    def smaller(self) -> Iterator[Select]:
        """The same SELECT with one condition less, or without DISTINCT."""
        for field in ("where", "having"):
            conditions = getattr(self, field)
            for index in range(len(conditions)):
                yield replace(self, **{field: without(conditions, index)})
        if self.distinct:
            yield replace(self, distinct=False)


@dataclass(frozen=True)
class Statement:
    """One SELECT, or two with a set operation between them, with an optional order of all rows."""

    selects: tuple[Select, ...]
    operation: str = ""
    #: A query before the statement, which its source names `q`.
    before: Select | None = None
    order: tuple[str, ...] = ()
    limit: str = ""

    @property
    def is_ordered(self) -> bool:
        return bool(self.order)

    def __str__(self) -> str:
        before = f"WITH q AS ({self.before}) " if self.before else ""
        order = f" ORDER BY {', '.join(self.order)}" if self.order else ""
        return before + f" {self.operation} ".join(map(str, self.selects)) + order + self.limit

    def smaller(self) -> Iterator[Statement]:
        """Statements with one part less. Some of them are not valid: one may order by a column that it lost."""
        if self.limit:
            yield replace(self, limit="")
        elif self.order:
            # Without an order, a LIMIT would leave open which rows there are.
            yield replace(self, order=())
        if self.operation:
            yield from (replace(self, selects=(select,), operation="") for select in self.selects)
        if self.before:
            yield Statement((self.before,))
            yield from (replace(self, before=before) for before in self.before.smaller())
        for index, select in enumerate(self.selects):
            for smaller in select.smaller():
                yield replace(self, selects=(*self.selects[:index], smaller, *self.selects[index + 1 :]))
        num_columns = len(self.selects[0].exprs)
        for index in range(num_columns if num_columns > 1 else 0):
            selects = tuple(replace(select, exprs=without(select.exprs, index)) for select in self.selects)
            yield replace(self, selects=selects)


def without(parts: tuple, index: int) -> tuple:
    return (*parts[:index], *parts[index + 1 :])


def shrunk(statement: Statement, differs: Callable[[Statement], bool]) -> Statement:
    """Returns the smallest statement that still differs, by taking away one part after the other."""
    while (found := next((smaller for smaller in statement.smaller() if differs(smaller)), None)) is not None:
        statement = found
    return statement


class Statements:
    """The statements of one seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.num_selects = 0

    def statement(self) -> Statement:
        return self.draw.choice([self.plain, self.plain, self.grouped, self.set_operation, self.nested, self.nested])()

    def plain(self) -> Statement:
        source = self.source()
        select, order = self.draw.choice([self.rows, self.rows, self.windows, self.distinct])(source)
        return self.ordered(Statement((select,)), order)

    def grouped(self) -> Statement:
        select, order = self.groups(self.source())
        return self.ordered(Statement((select,)), order)

    def nested(self) -> Statement:
        """A statement over a query, as a common table expression or a subquery in FROM."""
        inner, _ = self.draw.choice([self.rows, self.groups, self.windows, self.distinct])(self.source())
        columns = {f"q.{name}": kind for name, kind in inner.columns.items() if kind != "g"}
        if not columns:
            return Statement((inner,))
        in_from = self.draw.random() < 0.4
        source = Source(f"({inner}) AS q" if in_from else "q", columns, tuple(columns))
        select, order = self.draw.choice([self.rows, self.groups, self.windows, self.distinct])(source)
        return self.ordered(Statement((select,), before=None if in_from else inner), order)

    def set_operation(self) -> Statement:
        one, other = self.source(), self.source()
        kinds = [self.draw.choice("iisfbd") for _ in range(self.draw.randrange(1, 4))]
        sides = tuple(
            Select(self.prefix(), source.sql, tuple((self.column_or_expr(kind, source), kind) for kind in kinds),
                   self.conditions(source))
            for source in (one, other)
        )  # fmt: skip
        operation = self.draw.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT"])
        return self.ordered(Statement(sides, operation), tuple(map(self.direction, sides[0].columns)))

    def ordered(self, statement: Statement, order: tuple[str, ...]) -> Statement:
        """Half of the statements are ordered. The order leaves nothing open, as LIMIT needs."""
        if not order or self.draw.random() < 0.5:
            return statement
        limit = self.draw.choice(["", " LIMIT 7", " LIMIT 20", f" LIMIT 5 OFFSET {self.draw.randrange(8)}"])
        return replace(statement, order=order, limit=limit)

    def direction(self, expr: str) -> str:
        # Without NULLS FIRST or LAST, the two systems put NULL at different ends.
        return f"{expr} {self.draw.choice(['ASC', 'DESC'])} NULLS {self.draw.choice(['FIRST', 'LAST'])}"

    def prefix(self) -> str:
        """Each SELECT names its columns in its own way, so that no name of an output is one of an input, too."""
        self.num_selects += 1
        return f"c{self.num_selects}_"

    # SELECTs. Each returns the keys of an order of its rows, too.

    def rows(self, source: Source) -> tuple[Select, tuple[str, ...]]:
        kinds = [self.draw.choice("iifssbdt") for _ in range(self.draw.randrange(1, 5))]
        exprs = [(self.column_or_expr(kind, source), kind) for kind in kinds]
        if "e.id" in source.columns and self.draw.random() < 0.15:
            call = self.draw.choice(["max(z.score)", "count(*)", "min(z.note)"])
            exprs.append((f"(SELECT {call} FROM notes AS z WHERE z.event = e.id)", "i"))
        select = Select(self.prefix(), source.sql, tuple(exprs), self.conditions(source))
        first = self.draw.sample(list(source.columns), self.draw.randrange(min(3, len(source.columns))))
        return select, tuple(map(self.direction, dict.fromkeys((*first, *source.keys))))

    def distinct(self, source: Source) -> tuple[Select, tuple[str, ...]]:
        kinds = [self.draw.choice("iifsbd") for _ in range(self.draw.randrange(1, 4))]
        exprs = tuple((self.column_or_expr(kind, source), kind) for kind in kinds)
        select = Select(self.prefix(), source.sql, exprs, self.conditions(source), distinct=True)
        return select, tuple(map(self.direction, select.columns))

    def groups(self, source: Source) -> tuple[Select, tuple[str, ...]]:
        keys = dict(self.group_key(source) for _ in range(self.draw.choice([0, 1, 1, 1, 2])))
        calls = [self.aggregate(source) for _ in range(self.draw.randrange(1, 4))]
        having = (self.having(source),) if keys and self.draw.random() < 0.4 else ()
        exprs = (*keys.items(), *calls)
        select = Select(self.prefix(), source.sql, exprs, self.conditions(source), tuple(keys), having)
        return select, tuple(map(self.direction, keys))

    def windows(self, source: Source) -> tuple[Select, tuple[str, ...]]:
        shown = self.draw.sample(list(source.columns), self.draw.randrange(1, min(3, len(source.columns)) + 1))
        exprs = [(name, source.columns[name]) for name in shown]
        exprs += [self.window(source) for _ in range(self.draw.randrange(1, 3))]
        select = Select(self.prefix(), source.sql, tuple(exprs), self.conditions(source))
        return select, tuple(map(self.direction, source.keys))

    # FROM.

    def source(self) -> Source:
        kind = self.draw.choice(["events", "events", "events", "kinds", "notes", "two", "two", "two", "three", "cross"])
        events, kinds, notes = aliased("events", "e"), aliased("kinds", "k"), aliased("notes", "m")
        if kind == "two":
            left, right, on = self.draw.choice(
                [
                    (events, kinds, "e.grp = k.kind"),
                    (events, notes, "m.event = e.id"),
                    (notes, kinds, "m.score % 6 = k.kind"),
                ]
            )
            if self.draw.random() < 0.3:
                left, right = right, left
            return self.joined(left, right, on, ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        if kind == "three":
            left = self.joined(events, kinds, "e.grp = k.kind", ["JOIN", "LEFT JOIN"])
            return self.joined(left, notes, "m.event = e.id", ["JOIN", "LEFT JOIN"])
        if kind == "cross":
            other = aliased("kinds", "l")
            columns = {**kinds.columns, **other.columns}
            return Source(f"{kinds.sql} CROSS JOIN {other.sql}", columns, (*kinds.keys, *other.keys))
        return {"events": events, "kinds": kinds, "notes": notes}[kind]

    def joined(self, left: Source, right: Source, on: str, kinds: list[str]) -> Source:
        both = Source("", {**left.columns, **right.columns}, (*left.keys, *right.keys))
        if self.draw.random() < 0.4:
            on += f" AND {self.condition(both, 1)}"
        return replace(both, sql=f"{left.sql} {self.draw.choice(kinds)} {right.sql} ON {on}")

    # Conditions.

    def conditions(self, source: Source) -> tuple[str, ...]:
        """The conditions of a WHERE. Only there are subqueries, because DataFusion plans them nowhere else."""
        found = [self.condition(source, 2) for _ in range(self.draw.choice([0, 0, 0, 1, 1, 2]))]
        if self.draw.random() < 0.2:
            subquery = self.subquery(source)
            either = f"({subquery} OR {self.condition(source, 1)})"
            found.append(self.draw.choice([subquery, either, f"NOT {subquery}"]))
        if "e.n" in source.columns and self.draw.random() < 0.05:
            # NULL on either side.
            found.append(f"e.n NOT IN (SELECT z.score FROM notes AS z WHERE z.note < {self.draw.randrange(30)})")
        return tuple(found)

    def condition(self, source: Source, depth: int) -> str:
        if depth > 0 and self.draw.random() < 0.5:
            inner = lambda: self.condition(source, depth - 1)  # noqa: E731
            return self.draw.choice(
                [
                    lambda: f"({inner()} AND {inner()})",
                    lambda: f"({inner()} OR {inner()})",
                    lambda: f"(NOT {inner()})",
                    lambda: f"({inner()} IS NOT TRUE)",
                ]
            )()
        kinds = [kind for kind in "iifssbdt" if source.named(kind)]
        kind = self.draw.choice(kinds)
        if kind == "b":
            test = self.draw.choice(["{}", "{} IS TRUE", "{} IS NOT TRUE", "{} = false", "{} IS NULL"])
            return f"({test.format(self.draw.choice(source.named('b')))})"
        value = self.expr(kind, source, 1)
        constant = lambda: self.draw.choice(CONSTANTS[kind])  # noqa: E731
        tests: list[Callable[[], str]] = [
            lambda: f"{value} {self.draw.choice(COMPARISONS)} {constant()}",
            lambda: f"{value} {self.draw.choice(COMPARISONS)} {constant()}",
            lambda: f"{value} {self.draw.choice(COMPARISONS)} {self.expr(kind, source, 1)}",
            lambda: f"{value} {self.draw.choice(['', 'NOT '])}BETWEEN {constant()} AND {constant()}",
            lambda: f"{value} {self.draw.choice(['', 'NOT '])}IN ({constant()}, {constant()}, {constant()})",
            lambda: f"{value} IS {self.draw.choice(['', 'NOT '])}NULL",
            lambda: f"{value} IS {self.draw.choice(['', 'NOT '])}DISTINCT FROM {constant()}",
        ]
        if kind == "i":
            tests.append(lambda: f"{value} IN ({constant()}, NULL, {constant()})")
        if kind == "s":
            like = self.draw.choice(["LIKE", "NOT LIKE", "ILIKE"])
            tests += [lambda: f"{value} {like} {self.draw.choice(PATTERNS)}"] * 3
        return f"({self.draw.choice(tests)()})"

    def subquery(self, source: Source) -> str:
        """A condition with a subquery, in which nothing is NULL."""
        limit = self.draw.choice(CONSTANTS["i"])
        choices = [
            f"coalesce({self.draw.choice(source.named('i'))}, -1) IN"
            f" (SELECT z.note FROM notes AS z WHERE z.score > {limit})"
            if source.named("i")
            else None,
            f"EXISTS (SELECT 1 FROM kinds AS z WHERE z.weight > {self.draw.choice(CONSTANTS['f'])})",
        ]
        if "e.id" in source.columns:
            choices.append(f"EXISTS (SELECT 1 FROM notes AS z WHERE z.event = e.id AND z.score <> {limit})")
            choices.append(f"coalesce(e.grp, -1) IN (SELECT z.kind FROM kinds AS z WHERE z.kind < {limit})")
            choices.append(f"(coalesce(e.n, 0) > (SELECT avg(z.score) FROM notes AS z WHERE z.note < {limit} + 20))")
        if "k.kind" in source.columns:
            choices.append(f"EXISTS (SELECT 1 FROM events AS z WHERE z.grp = k.kind AND z.n > {limit})")
        return self.draw.choice([choice for choice in choices if choice is not None])

    # Groups and windows.

    def group_key(self, source: Source) -> tuple[str, str]:
        """An expression of columns and its kind. Constants are no keys, because whole numbers name output columns."""
        name = self.draw.choice(list(source.columns))
        kind = source.columns[name]
        keys = {
            "i": [(f"({name} % 3)", "i"), (name, "i"), (f"({name} IS NULL)", "b")],
            "s": [(f"upper({name})", "s"), (name, "s"), (f"length({name})", "i")],
            "d": [(f"extract(month FROM {name})", "i"), (name, "d")],
            "t": [(f"CAST({name} AS DATE)", "d"), (f"date_trunc('month', {name})", "t")],
        }
        return self.draw.choice(keys.get(kind, [(name, kind)]))

    def aggregate(self, source: Source) -> tuple[str, str]:
        kind = self.draw.choice([kind for kind in "iiffsdt" if source.named(kind)] or ["*"])
        if kind == "*" or self.draw.random() < 0.2:
            call = "count(*)"
            return (f"{call} FILTER (WHERE {self.condition(source, 1)})" if self.draw.random() < 0.4 else call), "i"
        of, least = self.expr(kind, source, 1), self.draw.choice(["min", "max"])
        calls = [(f"count({of})", "i"), (f"count(DISTINCT {of})", "i"), (f"{least}({of})", kind)]
        if kind in "if":
            # Sums of floats are exact, as all floats are small multiples of a power of two.
            calls += [(f"sum({of})", kind), (f"sum({of})", kind), (f"avg({of})", "g")]
        return self.draw.choice(calls)

    def having(self, source: Source) -> str:
        numbers = source.named("i")
        calls = ["count(*)"] + ([f"sum({name})" for name in numbers[:2]] + [f"max({numbers[-1]})"] if numbers else [])
        call = self.draw.choice(calls)
        tests = [f"{call} > 1", f"{call} BETWEEN 1 AND 9", f"({call} <> 3 OR {call} IS NULL)", f"{call} < 20"]
        return self.draw.choice(tests)

    def window(self, source: Source) -> tuple[str, str]:
        part = self.draw.choice(["", f"PARTITION BY {self.draw.choice(list(source.columns))} "])
        keys = f"ORDER BY {', '.join(map(self.direction, self.draw.sample(source.keys, len(source.keys))))}"
        frame = self.draw.choice(
            ["", " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING"]
        )
        first = f"ORDER BY {self.direction(self.draw.choice(list(source.columns)))}"
        calls = [
            (f"row_number() OVER ({part}{keys})", "i"),
            # Ranks have ties; other calls depend on the order inside ties.
            (f"{self.draw.choice(['rank', 'dense_rank'])}() OVER ({part}{first})", "i"),
            (f"count(*) OVER ({part}{keys}{frame})", "i"),
        ]
        for kind in "if":
            for name in source.named(kind)[:2]:
                calls.append((f"sum({name}) OVER ({part}{keys}{frame})", kind))
                calls.append((f"{self.draw.choice(['min', 'max'])}({name}) OVER ({part}{keys}{frame})", kind))
                calls.append((f"{self.draw.choice(['lag', 'lead'])}({name}, 2) OVER ({part}{keys})", kind))
        return self.draw.choice(calls)

    # Expressions.

    def column_or_expr(self, kind: str, source: Source) -> str:
        return self.expr(kind, source, self.draw.choice([0, 1, 2]))

    def expr(self, kind: str, source: Source, depth: int) -> str:
        names = source.named(kind)
        if depth == 0 or kind in "dt" or (names and self.draw.random() < 0.4):
            if names:
                return self.draw.choice(names)
            # The constants of the two systems have different types: 1 is INTEGER or BIGINT, and 0.5 DECIMAL or DOUBLE.
            return {"b": "(1 < 2)"}.get(kind) or f"CAST({self.draw.choice(CONSTANTS[kind])} AS {TYPES[kind]})"
        inner = lambda of: self.expr(of, source, depth - 1)  # noqa: E731
        condition = lambda: self.condition(source, depth - 1)  # noqa: E731
        # The values of integers stay far below 2^63. There is no division of integers, whose result is a float in
        # DuckDB, no cast of floats to integers, which rounds in DuckDB, and no remainder by zero. Nothing makes -0.0 or
        # NaN, which are values of their own in only one of the systems: floats are not multiplied by each other or by
        # negative numbers, and not rounded up.
        choices: dict[str, list[Callable[[], str]]] = {
            "i": [
                lambda: f"({inner('i')} + {inner('i')})",
                lambda: f"({inner('i')} - {inner('i')})",
                lambda: f"({inner('i')} % 100 * 3)",
                lambda: f"({inner('i')} % 7)",
                lambda: f"abs({inner('i')})",
                lambda: f"coalesce({inner('i')}, 7)",
                lambda: f"nullif({inner('i')}, 3)",
                lambda: f"CASE WHEN {condition()} THEN {inner('i')} ELSE {inner('i')} END",
                lambda: f"CAST(length({inner('s')}) AS BIGINT)",
                lambda: f"CAST(floor({inner('f')}) AS BIGINT)",
                lambda: f"CAST(extract(year FROM {inner('d')}) AS BIGINT)",
            ],
            "f": [
                lambda: f"({inner('f')} * 0.5)",
                lambda: f"({inner('f')} + {inner('f')})",
                lambda: f"({inner('f')} - {inner('f')})",
                lambda: f"abs({inner('f')})",
                lambda: f"CAST({inner('i')} AS DOUBLE)",
                lambda: f"coalesce({inner('f')}, CAST(0.25 AS DOUBLE))",
                lambda: f"CASE WHEN {condition()} THEN {inner('f')} END",
            ],
            "s": [
                lambda: f"upper({inner('s')})",
                lambda: f"lower({inner('s')})",
                lambda: f"trim({inner('s')})",
                lambda: f"substr({inner('s')}, 1, 2)",
                lambda: f"replace({inner('s')}, 'a', 'zz')",
                lambda: f"({inner('s')} || '-' || {inner('s')})",
                lambda: f"coalesce({inner('s')}, 'none')",
                lambda: f"CAST({inner('i')} AS VARCHAR)",
                lambda: f"CAST({inner('d')} AS VARCHAR)",
                lambda: f"CASE WHEN {condition()} THEN {inner('s')} WHEN {condition()} THEN 'other' END",
            ],
            "b": [condition, lambda: f"coalesce({inner('b')}, false)"],
        }
        return self.draw.choice(choices[kind])()


TYPES = {"i": "BIGINT", "f": "DOUBLE", "s": "VARCHAR", "d": "DATE", "t": "TIMESTAMP"}


def aliased(table: str, alias: str) -> Source:
    columns = {f"{alias}.{name}": kind for name, kind in TABLES[table].items()}
    return Source(f"{table} AS {alias}", columns, (f"{alias}.{KEYS[table]}",))
