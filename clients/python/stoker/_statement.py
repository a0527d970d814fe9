"""What statements that change a lake did, and how far they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stoker._errors import InvalidRequestError
from stoker._reports import known_fields

__all__ = ["Outcome", "ProgressCallback", "StatementProgress", "given_params", "telling"]


@dataclass(frozen=True)
class Outcome:
    """What a statement did. Its ``str()`` is one line.

    Attributes:
        statement: The kind of statement: its first words, such as ``CREATE INDEX``.
        table: The table that it names; None for a statement without one.
        version: The version of the table after the statement: a new one, or the newest one if nothing had to change.
        num_rows: The number of rows that it changed, or that an index covers; None if it has none.
        message: What was done.
    """

    statement: str
    table: str | None
    version: int | None
    num_rows: int | None
    message: str

    def __str__(self) -> str:
        table = "" if self.table is None else f" of table {self.table}"
        message = f": {self.message}" if self.message else ""
        version = "" if self.version is None else f"; version {self.version}"
        return f"{self.statement}{table}{message}{version}"


@dataclass(frozen=True)
class StatementProgress:
    """How far a statement is. It has several phases, one after the other. Its ``str()`` is one line.

    Attributes:
        phase: What is being done: ``"learning the partitions"``.
        done: The units of this phase that are done.
        total: All units of this phase; None if the number is not known.
        unit: What the units are: ``"rows"``, ``"partitions"``; empty if the phase has none.
    """

    phase: str
    done: int
    total: int | None
    unit: str

    def __str__(self) -> str:
        if not self.done and self.total is None:
            return self.phase
        of = "" if self.total is None else f" of {self.total}"
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.phase}: {self.done}{of}{unit}"


#: Is called with the progress of a statement, a few times in a second. If it raises, the statement is cancelled.
ProgressCallback = Callable[[StatementProgress], object]


def given_params(params: Sequence[Any] | None) -> Sequence[Any]:
    """Returns the values of parameters.

    Raises:
        InvalidRequestError: They are one text.
    """
    if isinstance(params, str | bytes | bytearray):
        raise InvalidRequestError(f"params is {type(params).__name__}; it must be a list of the values of $1, $2, …")
    return [] if params is None else params


def telling(progress: ProgressCallback) -> Callable[[dict[str, Any]], object]:
    """Returns a function that calls ``progress`` with what the native module tells."""

    def tell(told: dict[str, Any]) -> object:
        return progress(StatementProgress(**known_fields(StatementProgress, told)))

    return tell
