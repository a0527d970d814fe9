"""Names in SQL."""

from __future__ import annotations

from stoker._errors import InvalidRequestError

__all__ = ["quoted", "quoted_column"]


def quoted_column(option: str, name: object) -> str:
    """Returns the name of a column as SQL writes it.

    Raises:
        InvalidRequestError: The value of the option is no text.
    """
    if not isinstance(name, str):
        raise InvalidRequestError(f"{option} is a {type(name).__name__}; it must be the name of a column")
    return quoted(name)


def quoted(name: str) -> str:
    """Returns a name as SQL writes it, so that it is read as it is."""
    return '"' + name.replace('"', '""') + '"'
