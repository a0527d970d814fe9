"""Names in SQL."""

from __future__ import annotations

from stoker._errors import InvalidRequestError

__all__ = [
    "column_name",
    "quoted",
    "quoted_branch",
    "quoted_column",
    "quoted_index",
    "quoted_table",
    "quoted_text",
    "text_or_none",
]


def column_name(option: str, name: object) -> str:
    """Returns the name of a column.

    Raises:
        InvalidRequestError: The value of the option is no text.
    """
    return _text(option, name, "the name of a column")


def quoted_table(option: str, name: object) -> str:
    """Returns the name of a table or view as SQL writes it.

    Raises:
        InvalidRequestError: The value of the option is no text.
    """
    return _checked(option, name, "a table or view")


def quoted_branch(option: str, name: object) -> str:
    """Returns the name of a branch as SQL writes it.

    Raises:
        InvalidRequestError: The value of the option is no text.
    """
    return _checked(option, name, "a branch")


def quoted_column(option: str, name: object) -> str:
    """Returns the name of a column as SQL writes it.

    Raises:
        InvalidRequestError: The value of the option is no text.
    """
    return _checked(option, name, "a column")


def quoted_index(option: str, name: object) -> str:
    """Returns the name of an index as SQL writes it.

    Raises:
        InvalidRequestError: The value of the option is no text.
    """
    return _checked(option, name, "an index")


def quoted_text(option: str, text: object) -> str:
    """Returns a text as SQL writes it.

    Raises:
        InvalidRequestError: The value of the option is no text.
    """
    return "'" + _text(option, text).replace("'", "''") + "'"


def text_or_none(option: str, text: object) -> str | None:
    """Returns the value of an optional text.

    Raises:
        InvalidRequestError: It is no text.
    """
    return None if text is None else _text(option, text)


def quoted(name: str) -> str:
    """Returns a name as SQL writes it, so that it is read as it is."""
    return '"' + name.replace('"', '""') + '"'


def _checked(option: str, name: object, kind: str) -> str:
    return quoted(_text(option, name, f"the name of {kind}"))


def _text(option: str, text: object, what: str = "text") -> str:
    if not isinstance(text, str):
        raise InvalidRequestError(f"{option} is a {type(text).__name__}; it must be {what}")
    return text
