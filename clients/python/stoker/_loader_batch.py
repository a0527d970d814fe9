"""Batches of loaders: dicts of columns that also tell which rows they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from stoker._errors import InvalidRequestError
from stoker._nulls import know_of_nulls
from stoker._rows import BatchRows, Cursor, Substitution

__all__ = ["LoaderBatch"]

_Batch = TypeVar("_Batch", bound="LoaderBatch")


class LoaderBatch(dict[str, Any]):
    """A dict of columns that also has the cursor of its batch.

    Trainers rebuild batches as ``type(batch)({...})``. Such a copy is a dict of the same columns without cursor.
    """

    #: The method of a query that makes the loader of these batches.
    _made_by: ClassVar[str]

    _rows: BatchRows | None = None

    @classmethod
    def of(cls: type[_Batch], values: Mapping[str, Any], rows: BatchRows | None) -> _Batch:
        """Returns a batch of values, with the rows that :attr:`Batch.rows` tells."""
        batch = cls(values)
        batch._rows = rows
        return batch

    @property
    def rows(self) -> BatchRows:
        """What is known of the rows besides their columns.

        Raises:
            InvalidRequestError: The batch was rebuilt from its columns.
        """
        if self._rows is None:
            raise InvalidRequestError(
                "this batch was rebuilt from its columns, as trainers do, and has no place and no mask: take them from "
                "the batch that the loader handed out, or ask for the mask as a column with "
                f"{self._made_by}(valid_key='valid')"
            )
        return self._rows

    @property
    def cursor(self) -> Cursor:
        """The cursor at which a resume after this batch begins."""
        return self.rows.cursor

    @property
    def step(self) -> int:
        """The number of the global batch, counted from the start of the training over all epochs."""
        return self.rows.step

    @property
    def num_rows(self) -> int:
        """The number of rows, padding included."""
        return self.rows.num_rows

    @property
    def num_valid(self) -> int:
        """The number of rows that are not padding; these rows come first."""
        return self.rows.num_valid

    def is_valid(self, column: str) -> Any:
        """Returns which rows have a value in a column, as bools of shape ``(rows,)``; see :meth:`Batch.is_valid`."""
        mask = self.rows.is_valid(column)
        know_of_nulls(self.rows, column)
        return mask

    @property
    def row_ids(self) -> np.ndarray[Any, Any]:
        """A uint64 NumPy array of row addresses; see :attr:`Batch.row_ids`."""
        return self.rows.row_ids

    @property
    def tables(self) -> list[tuple[str, int]]:
        """The tables that supply rows and their versions; see :attr:`Batch.tables`."""
        return self.rows.tables

    @property
    def source(self) -> np.ndarray[Any, Any]:
        """The index of the mixture's query that each row comes from; see :attr:`Batch.source`."""
        return self.rows.source

    @property
    def substituted(self) -> list[Substitution]:
        """The rows that replace bad ones."""
        return self.rows.substituted
