"""Checks the numbers in options before they reach the engine."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from stoker._errors import InvalidRequestError

__all__ = ["number", "seconds", "share_or_none", "weight_list", "whole", "whole_or_none"]

#: The maximum of most options.
_MAX = 2**63 - 1


def whole(name: str, value: Any, minimum: int, maximum: int = _MAX) -> int:
    """Returns the value of an option as an int. NumPy's integers are accepted, floats and booleans are not.

    Raises:
        InvalidRequestError: The value is not a whole number from ``minimum`` to ``maximum``; the message names the
            option.
    """
    try:
        found = minimum - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = minimum - 1
    if not minimum <= found <= maximum:
        limit = "2**63 - 1" if maximum == _MAX else str(maximum)
        raise InvalidRequestError(f"{name} is {_shown(value)}; it must be a whole number from {minimum} to {limit}")
    return found


def whole_or_none(name: str, value: Any, minimum: int, maximum: int = _MAX) -> int | None:
    """Returns the value of an optional number; see :func:`whole`."""
    return None if value is None else whole(name, value, minimum, maximum)


def number(name: str, value: Any) -> float:
    """Returns the value of an option as a float.

    Raises:
        InvalidRequestError: The value is not a number; the message names the option.
    """
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidRequestError(f"{name} is {_shown(value)}; it must be a number") from None


def seconds(name: str, value: Any) -> float:
    """Returns the value of an option as seconds.

    Raises:
        InvalidRequestError: The value is not a number of at least 0; the message names the option.
    """
    found = math.nan if isinstance(value, str | bytes | bool) else number(name, value)
    if not 0 <= found < math.inf:
        raise InvalidRequestError(f"{name} is {_shown(value)}; it must be a number of seconds, 0 or more")
    return found


def share_or_none(name: str, value: Any) -> float | None:
    """Returns the value of an optional share.

    Raises:
        InvalidRequestError: The value is not a number from 0 to 1; the message names the option.
    """
    if value is None:
        return None
    try:
        share = math.nan if isinstance(value, str | bytes | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        share = math.nan
    if not 0 <= share <= 1:
        raise InvalidRequestError(f"{name} is {_shown(value)}; it must be a number from 0 to 1")
    return share


def weight_list(weights: Sequence[Any]) -> list[float]:
    """Returns weights as floats.

    Raises:
        InvalidRequestError: A weight is not a number.
    """
    try:
        return [float(weight) for weight in weights]
    except (TypeError, ValueError):
        raise InvalidRequestError(f"weights are {weights!r}; they must be numbers") from None


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python refuses to format numbers of more than 4,300 digits
        return "too large"
    return text if len(text) <= 40 else f"{text[:40]}…"
