"""Errors of values that do not fit their column."""

from __future__ import annotations

from stoker._arrays import is_array
from stoker._errors import InvalidRequestError

__all__ = ["ADVICE", "refused", "shown"]

#: The advice for rows of other types than the first ones.
ADVICE = "give the types of columns with schema="
#: The maximum characters of a value in a message.
_SHOWN_MAX = 60


def refused(name: str, row: int | None, expected: str, found: str) -> InvalidRequestError:
    """Makes the error of a value that does not fit."""
    place = "" if row is None else f" row {row}"
    return InvalidRequestError(f"column {name}{place}: expected {expected}, found {found}")


def shown(value: object) -> str:
    """Describes a value for messages."""
    if is_array(value):
        return f"{type(value).__name__} of {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    text = repr(value)
    brief = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
    return f"{brief} ({type(value).__name__})"
