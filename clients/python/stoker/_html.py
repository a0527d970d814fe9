"""What notebooks show of lakes, tables, queries, plans, balances of classes and grids of images."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from stoker._column_shapes import column_shapes
from stoker._errors import InvalidRequestError
from stoker._html_cells import cell, is_number, type_name, value_html
from stoker._html_style import NULL, framed, quiet, table, text_html
from stoker._results import first_rows

if TYPE_CHECKING:
    from stoker._class_balance import ClassBalance
    from stoker._image_grid import ImageGrid
    from stoker._lake import Lake
    from stoker._query import Query
    from stoker._table import Table

__all__ = ["balance_html", "grid_html", "lake_html", "plan_html", "query_html", "table_html"]

#: The maximum number of rows of a result that is shown as a whole, and the number of rows of a larger one.
NUM_ROWS_WHOLE = 20
NUM_ROWS = 8
#: The maximum numbers of columns, tables and classes that are shown.
NUM_COLUMNS = 60
NUM_TABLES = 50
NUM_CLASSES = 50
#: The maximum characters of a parameter.
NUM_PARAM_CHARS = 60

#: The columns of the result of ``EXPLAIN``.
PLAN_COLUMNS = ["plan_type", "plan"]
#: A line of a plan: what indents it, the name of the operator, and its details.
PLAN_LINE = re.compile(r"^(?P<indent>[\s│├└─]*)(?P<operator>[A-Za-z][^:\n]*)(?P<details>.*)$")


def query_html(query: Query) -> str:
    """Returns the text of a query and its first rows.

    A result of up to 20 rows is shown as a whole, of a larger one the first 8 rows. That costs one query with
    ``LIMIT 21``. The number of all rows is told if the statistics of tables tell it; they are asked with a plan and
    without reading a row. No other query is run to count.
    """
    rows = _first_rows(query, NUM_ROWS_WHOLE + 1)
    head = f'<div class="stoker-sql">{text_html(query.sql.strip())}</div>{_params(query.params)}'
    if rows.schema.names == PLAN_COLUMNS:
        plans = zip(rows["plan_type"].to_pylist(), rows["plan"].to_pylist(), strict=True)
        return framed(head, *chain.from_iterable((quiet(str(kind)), _plan(str(plan))) for kind, plan in plans))
    if rows.num_rows <= NUM_ROWS_WHOLE:
        return framed(head, _rows(rows), quiet(_counted(rows.num_rows, "row")))
    count = _count(query)
    of = "" if count is None else f" of {count:,}"
    return framed(head, _rows(rows.slice(0, NUM_ROWS)), quiet(f"first {NUM_ROWS} rows{of}"))


def table_html(shown: Table) -> str:
    """Returns name, version, number of rows, tags and columns of a table, without reading anything."""
    title = f"<p><b>{html.escape(shown.name)}</b> version {shown.version}, {_counted(shown.num_rows, 'row')}</p>"
    tags = ", ".join(f"{name}: version {version}" for name, version in sorted(shown.tags.items()))
    schema = shown.schema
    fields = list(zip(schema, column_shapes(schema), strict=True))
    lines = [
        [text_html(field.name), text_html(type_name(field, shape)), text_html(shape.kind.replace("_", " "))]
        for field, shape in fields[:NUM_COLUMNS]
    ]
    parts = [title, quiet(f"tags: {tags}") if tags else "", table(["column", "type", "kind"], lines, [False] * 3)]
    if len(fields) > NUM_COLUMNS:
        parts.append(quiet(f"first {NUM_COLUMNS} of {len(fields):,} columns"))
    return framed(*parts)


def lake_html(lake: Lake) -> str:
    """Returns the target of a lake and the names of its tables. That costs one listing; no table is opened."""
    result = lake._native.sql("SHOW TABLES", [])
    rows = first_rows(result).select(["table_name", "table_type"])
    lines = [
        [text_html(str(name)), "view" if kind == "VIEW" else "table"]
        for name, kind in zip(*(column.to_pylist() for column in rows.slice(0, NUM_TABLES).itercolumns()), strict=True)
    ]
    count = _counted(rows.num_rows, "table")
    foot = f"first {NUM_TABLES} of {count}" if rows.num_rows > NUM_TABLES else count
    title = f"<p><b>lake</b> <code>{html.escape(lake.target)}</code></p>"
    return framed(title, table(["name", "kind"], lines, [False, False]) if lines else "", quiet(foot))


def plan_html(plan: str) -> str:
    """Returns a plan with the names of its operators in bold."""
    return framed(_plan(plan))


def balance_html(balance: ClassBalance) -> str:
    """Returns the classes with their numbers of rows as bars."""
    most = max(balance.values(), default=1)
    lines = [
        [
            value_html(label),
            f"{count:,}",
            f"{balance.share(label):.2%}",
            f'<div class="stoker-bar" style="width:{200 * count / most:.0f}px"></div>',
        ]
        for label, count in list(balance.items())[:NUM_CLASSES]
    ]
    heads = [html.escape(balance.column), "rows", "share", ""]
    more = f"first {NUM_CLASSES} of " if len(balance) > NUM_CLASSES else ""
    classes = f"{len(balance):,} class{'' if len(balance) == 1 else 'es'}"
    foot = quiet(f"{more}{classes}, {_counted(balance.num_rows, 'row')}")
    return framed(table(heads, lines, [False, True, True, False]), foot)


def grid_html(grid: ImageGrid) -> str:
    """Returns images in rows and columns, each with its label."""
    images = _column(grid.images, 0)
    labels = [NULL] * len(images) if grid.label is None else _column(grid.images, grid.images.num_columns - 1)
    figures = "".join(
        f"<figure>{image}{'' if grid.label is None else f'<figcaption>{label}</figcaption>'}</figure>"
        for image, label in zip(images, labels, strict=True)
    )
    style = f"grid-template-columns:repeat({grid.columns},max-content)"
    title = html.escape(grid.column if grid.label is None else f"{grid.column}, {grid.label}")
    foot = quiet(_counted(len(images), "image"))
    return framed(f'<p><b>{title}</b></p><div class="stoker-grid" style="{style}">{figures}</div>', foot)


def _counted(count: int, noun: str) -> str:
    if count == 0:
        return f"no {noun}s"
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _params(values: Sequence[Any]) -> str:
    """Returns the values of parameters, if there are any."""
    shown = []
    for number, value in enumerate(values, start=1):
        # No more of a value is turned into text than is shown.
        begin = value[:NUM_PARAM_CHARS] if isinstance(value, str | bytes | list | tuple) else value
        text = repr(begin)
        shown.append(f"${number} = {text if len(text) <= NUM_PARAM_CHARS else text[: NUM_PARAM_CHARS - 1] + '…'}")
    return quiet(", ".join(shown)) if shown else ""


def _rows(rows: pa.Table) -> str:
    """Returns rows, with the type of each column below its name."""
    shown = rows.select(list(range(min(rows.num_columns, NUM_COLUMNS))))
    fields = list(zip(shown.schema, column_shapes(shown.schema), strict=True))
    heads = [
        f"{html.escape(field.name)}<br><small>{html.escape(type_name(field, shape))}</small>" for field, shape in fields
    ]
    columns = [_column(shown, index) for index in range(shown.num_columns)]
    lines = [list(line) for line in zip(*columns, strict=True)]
    more = rows.num_columns - shown.num_columns
    return table(heads, lines, [is_number(field) for field, _ in fields]) + (
        quiet(f"and {_counted(more, 'more column')}") if more else ""
    )


def _column(rows: pa.Table, index: int) -> list[str]:
    """Returns the values of a column."""
    shape = column_shapes(rows.schema)[index]
    return [cell(shape, value) for value in rows.column(index)]


def _plan(plan: str) -> str:
    lines = []
    for line in plan.splitlines():
        found = PLAN_LINE.match(line)
        if found is None:
            lines.append(html.escape(line))
        else:
            operator, details = html.escape(found["operator"]), html.escape(found["details"])
            lines.append(f"{found['indent']}<b>{operator}</b>{details}")
    return "<pre>" + "\n".join(lines) + "</pre>"


def _first_rows(query: Query, num_rows: int) -> pa.Table:
    """Returns the first rows of a query."""
    try:
        result = query._around("*", f"LIMIT {num_rows}")._run()
    except InvalidRequestError:
        # SHOW, DESCRIBE and EXPLAIN are no subqueries, nor is a query with two columns of one name. Reading stops when
        # there are enough rows.
        result = query._run()
    return first_rows(result, num_rows)


def _count(query: Query) -> int | None:
    """Returns the number of rows of a query if the plan that counts them reads none; else ``None``."""
    counting = query._around("count(*) AS num_rows")
    try:
        if not _reads_nothing(counting.explain()):
            return None
    except InvalidRequestError:
        return None
    return int(first_rows(counting._run()).column(0)[0].as_py())


def _reads_nothing(plan: str) -> bool:
    """Returns whether a plan is one chain of operators over a row that the planner made of statistics."""
    lines = plan.partition("physical plan\n")[2].splitlines()
    indents = [len(line) - len(line.lstrip()) for line in lines]
    is_chain = all(below > above for above, below in pairwise(indents))
    return bool(lines) and is_chain and lines[-1].strip() == "PlaceholderRowExec"
