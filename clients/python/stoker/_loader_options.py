"""Checks the options of loaders against the columns of their streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from stoker._errors import InvalidRequestError

__all__ = ["check_functions", "check_int64_columns", "check_valid_key"]


def check_valid_key(schema: pa.Schema, key: str | None) -> None:
    """Checks that the key of the mask is no column.

    Raises:
        InvalidRequestError: A column has this name.
    """
    if key is not None and key in schema.names:
        raise InvalidRequestError(f"valid_key is {key!r}, which a column has as its name; choose another")


def check_functions(**functions: Any) -> None:
    """Checks that options are functions or ``None``.

    Raises:
        InvalidRequestError: An option is something else; the message names the option.
    """
    for name, function in functions.items():
        if function is not None and not callable(function):
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
