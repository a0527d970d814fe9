"""The SQL of the methods that change tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from stoker._data import arrow_stream
from stoker._errors import InvalidRequestError
from stoker._names import quoted, quoted_column
from stoker._native import placeholders

__all__ = [
    "Matched",
    "NotMatched",
    "cast_statement",
    "column_statement",
    "condition",
    "merge_statement",
    "optimize_statement",
    "struct_rows",
    "update_statement",
    "where_clause",
]

#: What :meth:`stoker.Table.merge` does with rows that have a match, and with those of the source that have none.
Matched = Literal["update", "delete", "ignore"]
NotMatched = Literal["insert", "ignore"]

#: The maximum number of bytes of the rows that are merged by one call.
_SOURCE_BYTES_MAX = 2**31 - 1


def where_clause(where: str | None) -> str:
    """Returns the ``WHERE`` clause, with a space before it; empty without a condition.

    Raises:
        InvalidRequestError: The condition is no text.
    """
    return "" if where is None else f" WHERE {_text('where', where)}"


def condition(where: str | None) -> str | None:
    """Returns a condition.

    Raises:
        InvalidRequestError: The condition is no text.
    """
    return None if where is None else _text("where", where)


def column_statement(
    table: str, name: str, data_type: str | None, sql: str | None, where: str | None, replace: bool
) -> str:
    """Returns the statement that adds a column, or computes one anew.

    Raises:
        InvalidRequestError: There is neither a type nor an expression, or an argument is no text.
    """
    column = quoted_column("name", name)
    if data_type is None and sql is None:
        raise InvalidRequestError("the new column has neither a function nor sql nor a data_type")
    chosen = condition(where)
    if replace and chosen is not None:
        if data_type is not None or sql is None:
            raise InvalidRequestError(
                "with replace and where, rows that are not chosen keep their values: give sql, and no data_type"
            )
        return f"UPDATE {quoted(table)} SET {column} = ({_text('sql', sql)}){where_clause(where)}"
    kind = "" if data_type is None else f" {_text('data_type', data_type)}"
    value = "" if sql is None else _text("sql", sql)
    if chosen is not None:
        if not value:
            raise InvalidRequestError("where is given without sql or a function, whose values the rows would get")
        value = f"CASE WHEN ({chosen}) THEN ({value}) END"
    value = f" AS ({value})" if value else ""
    if replace:
        return f"ALTER TABLE {quoted(table)} ALTER COLUMN {column}{' TYPE' + kind if kind else ''}{value}"
    return f"ALTER TABLE {quoted(table)} ADD COLUMN {column}{kind}{value}"


def cast_statement(table: str, name: str, data_type: str, using: str | None) -> str:
    """Returns the statement that gives a column another type.

    Raises:
        InvalidRequestError: An argument is no text.
    """
    value = "" if using is None else f" USING ({_text('using', using)})"
    kind = _text("data_type", data_type)
    return f"ALTER TABLE {quoted(table)} ALTER COLUMN {quoted_column('name', name)} TYPE {kind}{value}"


def optimize_statement(table: str, options: Mapping[str, int | str | None], dry_run: bool) -> str:
    """Returns the statement that compacts a table, with those of the options that have a value."""
    given = ", ".join(f'"{name}" = {value}' for name, value in options.items() if value is not None)
    return f"OPTIMIZE TABLE {quoted(table)}{f' WITH ({given})' if given else ''}{' DRY RUN' if dry_run else ''}"


def update_statement(
    table: str,
    values: Mapping[str, Any] | None,
    expressions: Mapping[str, str] | None,
    where: str | None,
    params: Sequence[Any],
) -> tuple[str, list[Any]]:
    """Returns the statement that updates rows, and its parameters.

    The values become parameters: after those of the caller if these have numbers, and before them if the caller writes
    ``?``, because they come first in the statement.

    Raises:
        InvalidRequestError: There is nothing to set, or an argument has another type.
    """
    values, expressions = _mapping("values", values), _mapping("expressions", expressions)
    if not values and not expressions:
        raise InvalidRequestError("there is nothing to set; give values or expressions")
    computed = [f"{quoted_column('expressions', name)} = ({_text(name, sql)})" for name, sql in expressions.items()]
    rest = "".join(computed) + where_clause(where)
    has_questions, last = placeholders(rest)
    if has_questions:
        places, all_params = ["?"] * len(values), [*values.values(), *params]
    else:
        # A number without a parameter of the caller would stand for one of the values.
        if last > len(params):
            raise InvalidRequestError(f"parameter ${last} is missing; {len(params)} parameters were given")
        places = [f"${len(params) + number}" for number in range(1, len(values) + 1)]
        all_params = [*params, *values.values()]
    given = [f"{quoted_column('values', name)} = {place}" for name, place in zip(values, places, strict=True)]
    return f"UPDATE {quoted(table)} SET {', '.join(given + computed)}{where_clause(where)}", all_params


def struct_rows(data: Any) -> pa.Array:
    """Returns the rows of a table-like value as an array of structs.

    Raises:
        InvalidRequestError: The value has no rows and columns, or too many bytes.
    """
    table = _without_encodings(pa.RecordBatchReader.from_stream(arrow_stream(data)).read_all())
    if table.nbytes > _SOURCE_BYTES_MAX:
        raise InvalidRequestError(
            f"the source has {table.nbytes} bytes, the limit is {_SOURCE_BYTES_MAX}; write it to a table, and merge "
            "that table with lake.execute('MERGE INTO …')"
        )
    columns = [column.combine_chunks() for column in table.columns]
    return pa.StructArray.from_arrays(columns, fields=list(table.schema))


def _without_encodings(table: pa.Table) -> pa.Table:
    """Returns the rows without categories and views, which parameters do not have."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = pa.chunked_array([_decoded(chunk) for chunk in table.column(index).chunks], _plain(field.type))
        elif _plain(field.type) != field.type:
            column = table.column(index).cast(_plain(field.type))
        else:
            continue
        table = table.set_column(index, pa.field(field.name, column.type, field.nullable), column)
    return table


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def _decoded(chunk: pa.DictionaryArray) -> pa.Array:
    # pyarrow takes no values out of arrays of views.
    values = chunk.dictionary.cast(_plain(chunk.dictionary.type))
    return pa.DictionaryArray.from_arrays(chunk.indices, values).dictionary_decode()


def merge_statement(
    table: str,
    columns: Sequence[str],
    on: str | Sequence[str],
    when_matched: Matched | Mapping[str, str],
    when_not_matched: NotMatched,
) -> str:
    """Returns the statement that merges the rows of its first parameter into a table.

    Raises:
        InvalidRequestError: An option has another value, or names a column that the source does not have.
    """
    keys = [on] if isinstance(on, str) else list(on) if isinstance(on, Sequence) else []
    if not keys:
        raise InvalidRequestError(f"on is {on!r:.40}; it must be the name of a column, or a list of names")
    unknown = [key for key in keys if key not in columns]
    if unknown:
        raise InvalidRequestError(f"on names {unknown!r:.200}, the columns of the source are {list(columns)!r:.1000}")
    matches = " AND ".join(f"target.{quoted(key)} = source.{quoted(key)}" for key in keys)
    clauses = [_matched(columns, keys, when_matched), _not_matched(columns, when_not_matched)]
    if not any(clauses):
        raise InvalidRequestError("there is nothing to do for rows with a match, nor for those without one")
    return f"MERGE INTO {quoted(table)} AS target USING rows($1) AS source ON {matches}{''.join(clauses)}"


def _matched(columns: Sequence[str], keys: Sequence[str], when_matched: Matched | Mapping[str, str]) -> str:
    if isinstance(when_matched, Mapping):
        computed = _mapping("when_matched", when_matched)
        given = [f"{quoted_column('when_matched', name)} = ({_text(name, sql)})" for name, sql in computed.items()]
    elif when_matched == "update":
        given = [f"{quoted(name)} = source.{quoted(name)}" for name in columns if name not in keys]
    elif when_matched == "delete":
        return " WHEN MATCHED THEN DELETE"
    elif when_matched == "ignore":
        return ""
    else:
        raise InvalidRequestError(
            f"when_matched is {when_matched!r:.40}; it must be 'update', 'delete', 'ignore', or a dict of expressions"
        )
    return f" WHEN MATCHED THEN UPDATE SET {', '.join(given)}" if given else ""


def _not_matched(columns: Sequence[str], when_not_matched: NotMatched) -> str:
    if when_not_matched == "insert":
        names = ", ".join(quoted(name) for name in columns)
        values = ", ".join(f"source.{quoted(name)}" for name in columns)
        return f" WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
    if when_not_matched == "ignore":
        return ""
    raise InvalidRequestError(f"when_not_matched is {when_not_matched!r:.40}; it must be 'insert' or 'ignore'")


def _mapping(option: str, values: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise InvalidRequestError(f"{option} is a {type(values).__name__}; it must be a dict by name of column")
    return values


def _text(option: str, sql: object) -> str:
    if not isinstance(sql, str) or not sql.strip():
        raise InvalidRequestError(f"{option} is {sql!r:.40}; it must be an expression of SQL")
    # A comment at its end must not hide what follows.
    return f"{sql}\n" if "--" in sql else sql
