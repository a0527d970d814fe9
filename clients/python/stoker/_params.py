"""Converts the values of query parameters for the engine."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["converted"]

#: The largest number up to which a double holds every integer exactly.
_EXACT_INT_MAX = 2**53
#: The maximum number of digits of a decimal.
_DIGITS_MAX = 38


def converted(value: object) -> Any:
    """Returns a value in the form that the engine accepts.

    Returns:
        None, a bool, an int of 64 bits, a float, a str or a list of floats; for any other value, an Arrow table with
        one column and one row.

    Raises:
        TypeError: The type has no counterpart in SQL.
        ValueError: The SQL type cannot hold the value.
    """
    plain = _plain(value)
    if plain is None or isinstance(plain, bool | float | str):
        return plain
    if isinstance(plain, int) and -(2**63) <= plain < 2**63:
        return plain
    if isinstance(plain, list) and (vector := _vector(plain)) is not None:
        return vector
    return pa.table({"value": plain if isinstance(plain, pa.Array) else _array(plain)})


def _plain(value: object) -> Any:
    """Converts a value of any supported class to a plain Python value, a list, or an Arrow array of one value."""
    if value is None or isinstance(value, bool | decimal.Decimal | datetime.timedelta):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return pa.array(np.array([value]))
    if isinstance(value, np.generic):
        item = value.item()
        return _plain(float(value) if isinstance(item, np.generic) else item)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, datetime.datetime):
        return value if value.tzinfo is None else value.astimezone(datetime.timezone.utc)
    if isinstance(value, datetime.date | datetime.time):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, pa.Scalar):
        return _scalar(value)
    if isinstance(value, pa.ChunkedArray):
        return _list(value.combine_chunks())
    if isinstance(value, pa.Array):
        return _list(value)
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "mM":
        return _list(pa.array(value))
    if hasattr(value, "ndim") and hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    raise TypeError(
        "use None, bool, int, float, str, bytes, a date, datetime, time, timedelta, Decimal or UUID, "
        "a list or an array of these, or a pyarrow scalar"
    )


def _scalar(scalar: pa.Scalar) -> pa.Array:
    if isinstance(scalar, pa.DictionaryScalar | pa.ExtensionScalar):
        scalar = scalar.value
    return pa.nulls(1) if scalar is None else pa.array([scalar], scalar.type)


def _list(values: pa.Array) -> pa.Array:
    """Returns an Arrow array of one list, which has these values."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


def _vector(items: list[Any]) -> list[float] | None:
    """Returns the items as floats, or ``None`` unless floats hold all of them exactly."""
    if all(isinstance(item, float) and math.isfinite(item) for item in items):
        return items
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int | float) or not math.isfinite(item):
            return None
        if isinstance(item, int) and abs(item) > _EXACT_INT_MAX:
            return None
    return [float(item) for item in items]


def _array(value: Any) -> pa.Array:
    """Returns an Arrow array of one value of a plain Python class."""
    if isinstance(value, int):
        return pa.array([value], _int_type(value, value))
    if isinstance(value, decimal.Decimal):
        return _decimal(value)
    if isinstance(value, datetime.datetime):
        return pa.array([value], pa.timestamp("us", "UTC" if value.tzinfo else None))
    if isinstance(value, datetime.time) and value.tzinfo is not None:
        raise ValueError("a time of day with a time zone has no type in SQL; use a datetime")
    if isinstance(value, list):
        return _list(_elements(value))
    return pa.array([value])


def _elements(items: list[Any]) -> pa.Array:
    ints = [item for item in items if isinstance(item, int) and not isinstance(item, bool)]
    if ints and all(item is None or (isinstance(item, int) and not isinstance(item, bool)) for item in items):
        return pa.array(items, _int_type(min(ints), max(ints)))
    if any(isinstance(item, pa.Array) for item in items):
        item_type = next(item.type for item in items if isinstance(item, pa.Array))
        return pa.concat_arrays([pa.nulls(1, item_type) if item is None else item for item in items])
    return pa.array(items)


def _int_type(least: int, greatest: int) -> pa.DataType:
    if least >= -(2**63) and greatest < 2**63:
        return pa.int64()
    if least >= 0 and greatest < 2**64:
        return pa.uint64()
    if least > -(10**_DIGITS_MAX) and greatest < 10**_DIGITS_MAX:
        return pa.decimal128(_DIGITS_MAX, 0)
    raise ValueError(f"an integer has more than {_DIGITS_MAX} digits, the most that SQL has here")


def _decimal(value: decimal.Decimal) -> pa.Array:
    if not value.is_finite():
        raise ValueError(f"a decimal cannot be {value}; use a float")
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale, 1)
    if precision > _DIGITS_MAX:
        raise ValueError(f"a decimal has {precision} digits, the most are {_DIGITS_MAX}")
    return pa.array([value], pa.decimal128(precision, scale))
