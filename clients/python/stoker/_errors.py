"""Exceptions: one class for each kind of error, under one base class.

The engine reports the same kinds in this process and through a server.
"""

from __future__ import annotations

__all__ = [
    "AlreadyExistsError",
    "BadRow",
    "CancelledError",
    "DataCorruptError",
    "ExpiredError",
    "InternalError",
    "InvalidRequestError",
    "NotFoundError",
    "NullsWarning",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "StateMismatchError",
    "StokerError",
    "UnauthenticatedError",
    "UnavailableError",
]


#: The maximum characters of a message; a longer one repeats a value of the request.
_MESSAGE_MAX = 1500


def _readable(message: str) -> str:
    """Returns a message, or only its beginning and its end if it is too long to be read."""
    if len(message) <= _MESSAGE_MAX:
        return message
    return f"{message[: _MESSAGE_MAX - 400]}… ({len(message)} characters) …{message[-300:]}"


class StokerError(Exception):
    """Base class of all errors that Stoker raises.

    Attributes:
        kind: The stable name of the kind, for example ``"not_found"``.
    """

    kind: str = "internal"

    def __init__(self, message: object = "") -> None:
        super().__init__(_readable(str(message)))


class BadRow(Exception):  # noqa: N818 - it tells of a row and is no error of the program
    """Raised by a function of :class:`stoker.Decoder`: its row is bad, and ``bad_rows`` says what happens to it.

    A function of :class:`stoker.PerRow` raises it for a row that ends the loop with a :class:`DataCorruptError`.
    """


class InvalidRequestError(StokerError, ValueError):
    """The request can never succeed as it is: malformed SQL, an unknown column, a bad option. Fix the request."""

    kind = "invalid_request"


class NotFoundError(StokerError, LookupError):
    """A named object does not exist: a table, version, tag or file. Fix the name."""

    kind = "not_found"


class AlreadyExistsError(StokerError):
    """The request would create an object that exists. Choose another name or mode."""

    kind = "already_exists"


class UnauthenticatedError(StokerError, PermissionError):
    """Credentials or a signature are missing or wrong. Provide valid ones."""

    kind = "unauthenticated"


class PermissionDeniedError(StokerError, PermissionError):
    """The credentials are valid, but do not allow this request. Ask for access."""

    kind = "permission_denied"


class ExpiredError(StokerError):
    """A ticket is too old. Request a new one with the cursor."""

    kind = "expired"


class StateMismatchError(StokerError, ValueError):
    """A state belongs to other data or order options; the message lists the differences. Use the matching state."""

    kind = "state_mismatch"


class DataCorruptError(StokerError):
    """Stored bytes are damaged. Restore them; a retry does not help."""

    kind = "data_corrupt"


class UnavailableError(StokerError, ConnectionError):
    """Storage or a server cannot be reached now. Retry later."""

    kind = "unavailable"


class ResourceExhaustedError(StokerError):
    """A configured limit was reached. Lower the demand or raise the limit."""

    kind = "resource_exhausted"


class CancelledError(StokerError):
    """The work was cancelled on request."""

    kind = "cancelled"


class InternalError(StokerError):
    """A bug in Stoker. Please report it."""

    kind = "internal"


class NullsWarning(UserWarning):
    """Nulls of a column became zeros, because its arrays cannot hold them; :meth:`Batch.is_valid` tells them."""
