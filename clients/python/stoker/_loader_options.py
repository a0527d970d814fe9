"""Checks the options of loaders against the columns of their streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from stoker._errors import InvalidRequestError
from stoker._masked import mask_key
from stoker._per_row import PerRow
from stoker._ragged import Layout, Pad

__all__ = ["check_functions", "check_int64_columns", "check_keys", "columns_to_mask"]


def columns_to_mask(schema: pa.Schema, null_masks: Sequence[str] | bool) -> tuple[str, ...]:
    """Returns the columns whose masks of nulls each batch has; ``True`` means all nullable columns.

    Raises:
        InvalidRequestError: A column does not exist.
    """
    if isinstance(null_masks, bool):
        return tuple(field.name for field in schema if field.nullable) if null_masks else ()
    if isinstance(null_masks, str):
        raise InvalidRequestError(f"null_masks is {null_masks!r}; it must be a list of names of columns, or True")
    for name in null_masks:
        if name not in schema.names:
            raise InvalidRequestError(f"null_masks names {name!r}; the columns are {', '.join(schema.names)}")
    return tuple(null_masks)


def check_keys(schema: pa.Schema, valid_key: str | None, masked: Sequence[str], layouts: Mapping[str, Layout]) -> None:
    """Checks that the keys that a batch has beside its columns are neither columns nor equal.

    Raises:
        InvalidRequestError: A key is taken.
    """
    if valid_key is not None and valid_key in schema.names:
        raise InvalidRequestError(f"valid_key is {valid_key!r}, which a column has as its name; choose another")
    taken: set[str | None] = {*schema.names, valid_key}
    for column in masked:
        key = mask_key(column)
        if key in taken:
            raise InvalidRequestError(
                f"null_masks names {column!r}, whose mask has the key {key!r}, which is taken; give the column another "
                "name in the query"
            )
        taken.add(key)
    for column, layout in layouts.items():
        for extra in (layout.mask, layout.lengths) if isinstance(layout, Pad) else ():
            if extra is not None and extra in taken:
                raise InvalidRequestError(
                    f"the padding of column {column} has the key {extra!r}, which is taken; choose another"
                )
            taken.add(extra)


def check_functions(**functions: Any) -> None:
    """Checks that options are functions or ``None``.

    Raises:
        InvalidRequestError: An option is something else; the message names the option.
    """
    for name, function in functions.items():
        if function is not None and not callable(function) and not isinstance(function, PerRow):
            raise InvalidRequestError(f"{name} is {function!r}; it must be a function")


def check_int64_columns(schema: pa.Schema, columns: Sequence[str]) -> None:
    """Checks that columns to convert to int64 hold integers.

    Raises:
        InvalidRequestError: A column does not exist, or holds no integers.
    """
    if isinstance(columns, str):
        raise InvalidRequestError(f"int64_columns is {columns!r}; it must be a list of names of columns")
    for name in columns:
        if name not in schema.names:
            raise InvalidRequestError(f"int64_columns names {name!r}; the columns are {', '.join(schema.names)}")
        if not pa.types.is_integer(schema.field(name).type):
            raise InvalidRequestError(
                f"int64_columns names {name!r}, which holds {schema.field(name).type}, no integers"
            )
