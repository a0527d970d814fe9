"""Shows how far a computed column is: a line on a terminal, or calls of a function."""

from __future__ import annotations

import time
from types import TracebackType

from stoker._errors import InvalidRequestError
from stoker._progress_line import progress_line
from stoker._statement import ProgressCallback, StatementProgress

__all__ = ["ColumnProgress"]

#: The seconds between two updates.
_INTERVAL_SECS = 0.2


class ColumnProgress:
    """The progress of one column, as a context: the line is removed when it is left."""

    def __init__(self, column: str, progress: ProgressCallback | bool | None) -> None:
        if progress is not None and not isinstance(progress, bool) and not callable(progress):
            raise InvalidRequestError(
                f"progress is a {type(progress).__name__}; it must be a function, or True or False for the line"
            )
        self._column = column
        self._call = progress if callable(progress) else None
        self._line = None if callable(progress) else progress_line(progress)
        self._done = self._begun_done = 0
        self._total: int | None = None
        self._begun = self._told = time.monotonic()

    def begin(self, done: int, total: int) -> None:
        """Begins with the rows that are done, of all rows."""
        self._done, self._begun_done, self._total = done, done, total
        self._begun = time.monotonic()
        self._tell(f"going on with column {self._column}" if done else self._phase)

    def advance(self, rows: int) -> None:
        """Counts rows that were computed and written."""
        self._done += rows
        is_last = self._done == self._total
        if is_last or time.monotonic() - self._told >= _INTERVAL_SECS:
            self._tell(self._phase)

    @property
    def _phase(self) -> str:
        return f"computing column {self._column}"

    def _tell(self, phase: str) -> None:
        self._told = time.monotonic()
        told = StatementProgress(phase, self._done, self._total, "rows")
        if self._call is not None:
            self._call(told)
        if self._line is not None:
            self._line.show(f"{told}{self._rate()}")

    def _rate(self) -> str:
        seconds = self._told - self._begun
        rows = self._done - self._begun_done
        if rows <= 0 or seconds <= 0:
            return ""
        rate = rows / seconds
        left = "" if self._total is None else f", {_duration((self._total - self._done) / rate)} left"
        return f" ({rate:,.0f} rows/s{left})"

    def __enter__(self) -> ColumnProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._line is not None:
            self._line.clear()


def _duration(seconds: float) -> str:
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
