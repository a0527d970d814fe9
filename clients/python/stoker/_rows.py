"""The rows of a batch: their addresses, their positions in the stream, and the rows that replace bad ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stoker import _native
from stoker._columns import bits, imported, numbers
from stoker._errors import InvalidRequestError

__all__ = ["NO_ROW", "BatchRows", "Cursor", "Substitution"]

#: The address for a table that does not supply a row.
NO_ROW = 2**64 - 1


@dataclass(frozen=True)
class Cursor:
    """A position in a stream, from which the stream can be continued anywhere.

    Attributes:
        stream_id: The id of the stream: 64 hexadecimal digits.
        epoch: The epoch, zero-based.
        position: The first position of the epoch's order that was not delivered, over all ranks.
    """

    stream_id: str
    epoch: int
    position: int


@dataclass(frozen=True)
class Substitution:
    """A row that replaces a bad one.

    Attributes:
        row: The row's index in the batch.
        row_ids: The address of the bad row in each of :attr:`Batch.tables`; 2**64 - 1 for a table that does not supply
            it.
        reason: What is wrong with the bad row, and where.
    """

    row: int
    row_ids: list[int]
    reason: str


class BatchRows:
    """The properties of a batch's rows without the columns. They are computed on request, and may be pickled."""

    __slots__ = ("_known", "_place")

    def __init__(self, place: _native.BatchPlace) -> None:
        self._place: _native.BatchPlace | None = place
        self._known: dict[str, Any] = {}

    @property
    def step(self) -> int:
        """The number of the global batch, counted from the start of the training."""
        return int(self._native("step"))

    @property
    def num_rows(self) -> int:
        """The number of rows, padding included."""
        return int(self._native("num_rows"))

    @property
    def num_valid(self) -> int:
        """The number of rows that are not padding."""
        return int(self._native("num_valid"))

    @property
    def cursor(self) -> Cursor:
        """The cursor at which a resume after the batch begins."""
        return Cursor(self._native("stream_id"), self._native("epoch"), self._native("position"))

    @property
    def substituted(self) -> list[Substitution]:
        """The rows that replace bad ones, in ascending order."""
        return [Substitution(*found) for found in self._native("substituted")]

    @property
    def tables(self) -> list[tuple[str, int]]:
        """The tables that supply rows and their versions."""
        return [table for tables in self.row_tables for table in tables]

    @property
    def row_tables(self) -> list[list[tuple[str, int]]]:
        """For each query, the tables that supply its rows and their versions."""
        tables: list[list[tuple[str, int]]] = self._native("row_tables")
        return tables

    @property
    def masks(self) -> dict[str, np.ndarray[Any, Any]]:
        """Which rows have a value, as bool arrays of shape ``(rows,)``, for each column in which some have none."""
        if "masks" not in self._known and self._place is not None:
            arrays = [(name, imported(mask)) for name, mask in self._place.masks()]
            self._known["masks"] = {name: bits(array.buffers()[1], array) for name, array in arrays}
        found: dict[str, np.ndarray[Any, Any]] = self._known["masks"]
        return found

    @property
    def masked(self) -> list[str]:
        """The columns that were written with a mask."""
        found: list[str] = self._native("masked")
        return found

    def is_valid(self, column: str) -> np.ndarray[Any, Any]:
        """Returns which rows have a value in a column; see :meth:`Batch.is_valid`.

        Raises:
            InvalidRequestError: The batch has no such column, or lacks the column with its mask.
        """
        mask = self.masks.get(column)
        if mask is not None:
            return mask.copy()
        columns = self._native("columns")
        missing = self._native("missing_masks").get(column)
        if missing is not None:
            raise InvalidRequestError(
                f"the mask of column {column} is the column {missing}, which the query does not select"
            )
        if column not in columns:
            raise InvalidRequestError(f"the batch has no column {column!r}; its columns are {', '.join(columns)}")
        return np.ones(self.num_rows, dtype=bool)

    @property
    def row_ids(self) -> np.ndarray[Any, Any]:
        """The row addresses, of shape ``(rows,)`` or ``(rows, tables)``."""
        addresses = self._addresses()
        return addresses[0] if len(addresses) == 1 else np.stack(addresses, axis=1)

    def row_seeds(self) -> np.ndarray[Any, Any]:
        """Returns the seeds of transforms of single rows: functions of stream seed, epoch and position, as uint64.

        Raises:
            InvalidRequestError: This is a pickled copy.
        """
        if self._place is None:
            raise InvalidRequestError("a pickled copy of a batch has no seeds")
        return numbers(imported(self._place.row_seeds()), np.dtype(np.uint64))

    def place(self, row: int) -> str:
        """Describes a row for messages: its row ids, its position and its epoch."""
        tables = zip(self.tables, self._addresses(), strict=True)
        rows = [
            f"row id {addrs[row]} of {table} version {version}"
            for (table, version), addrs in tables
            if addrs[row] != NO_ROW
        ]
        if self._place is None:
            return ", ".join(rows)
        return f"{', '.join(rows)} (position {self._place.row_position(row)} of epoch {self._native('epoch')})"

    @property
    def source(self) -> np.ndarray[Any, Any]:
        """The index of the mixture's query that each row comes from."""
        if "source" not in self._known:
            self._known["source"] = self._sources()
        found: np.ndarray[Any, Any] = self._known["source"]
        return found

    def _sources(self) -> np.ndarray[Any, Any]:
        source = np.zeros(self.num_rows, dtype=np.int64)
        row_tables = self.row_tables
        if len(row_tables) == 1:
            return source
        source -= 1
        addresses = self._addresses()
        first = 0
        for index, tables in enumerate(row_tables):
            for addrs in addresses[first : first + len(tables)]:
                source[addrs != NO_ROW] = index
            first += len(tables)
        # A row of an outer join may come from no table.
        rows = np.flatnonzero(source < 0)
        if len(rows) and self._place is not None:
            source[rows] = self._place.sources(rows.tolist())
        return source

    def _addresses(self) -> list[np.ndarray[Any, Any]]:
        if self._place is not None and "addresses" not in self._known:
            self._known["addresses"] = [
                numbers(imported(addrs), np.dtype(np.uint64)) for addrs in self._place.row_addrs()
            ]
        found: list[np.ndarray[Any, Any]] = self._known["addresses"]
        return found

    def _native(self, name: str) -> Any:
        return self._known[name] if self._place is None else getattr(self._place, name)

    def __getstate__(self) -> dict[str, Any]:
        names = (
            "step",
            "num_rows",
            "num_valid",
            "stream_id",
            "epoch",
            "position",
            "substituted",
            "row_tables",
            "columns",
            "missing_masks",
            "masked",
        )
        known = {**{name: self._native(name) for name in names}, "addresses": self._addresses(), "masks": self.masks}
        if len(self.row_tables) > 1:
            known["source"] = self.source
        return known

    def __setstate__(self, known: dict[str, Any]) -> None:
        self._place, self._known = None, known
