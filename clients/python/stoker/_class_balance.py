"""How many rows of a query each class has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from stoker._errors import InvalidRequestError
from stoker._names import quoted_column
from stoker._results import batches

if TYPE_CHECKING:
    from stoker._query import Query

__all__ = ["ClassBalance", "class_balance"]

#: The maximum number of classes.
_CLASSES_MAX = 10_000
#: The number of classes in the text.
_NUM_SHOWN = 20


class ClassBalance(Mapping[Any, int]):
    """The number of rows of each class of a query, the largest class first. Made by :meth:`Query.class_balance`.

    It is a mapping of the values of a column, None for NULL, to numbers of rows. Notebooks show it as bars.

    Example:
        >>> balance = lake.sql("SELECT label FROM digits WHERE label < 2").class_balance("label")
        >>> balance
        label  rows    share
        0         2  50.00 %
        1         2  50.00 %
        >>> balance[0], balance.share(1), balance.num_rows
        (2, 0.5, 4)
    """

    def __init__(self, column: str, counts: Mapping[Any, int]) -> None:
        self._column = column
        self._counts = dict(counts)
        self._num_rows = sum(self._counts.values())

    @property
    def column(self) -> str:
        """The name of the column."""
        return self._column

    @property
    def num_rows(self) -> int:
        """The number of rows of all classes."""
        return self._num_rows

    def share(self, label: Any) -> float:
        """Returns the share of a class in all rows, from 0 to 1.

        Raises:
            KeyError: No row has this class.
        """
        return float(self._counts[label] / self._num_rows)

    def __getitem__(self, label: Any) -> int:
        return int(self._counts[label])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __repr__(self) -> str:
        lines = [(self._column, "rows", "share")]
        for label, count in list(self.items())[:_NUM_SHOWN]:
            lines.append(("NULL" if label is None else str(label), f"{count:,}", f"{100 * self.share(label):.2f} %"))
        widths = [max(len(line[index]) for line in lines) for index in range(3)]
        text = [f"{name:<{widths[0]}}  {count:>{widths[1]}}  {share:>{widths[2]}}" for name, count, share in lines]
        if len(self) > _NUM_SHOWN:
            text.append(f"and {len(self) - _NUM_SHOWN:,} more classes")
        return "\n".join(text)

    def _repr_html_(self) -> str:
        from stoker._html import balance_html

        return balance_html(self)


def class_balance(query: Query, column: str) -> ClassBalance:
    """Counts the rows of each class; see :meth:`Query.class_balance`."""
    name = quoted_column("column", column)
    # Aliases that no column of the query has.
    counting = query._around(
        f"{name} AS stoker_class, count(*) AS stoker_rows", f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_CLASSES_MAX + 1}"
    )
    result = counting._run()
    kind = pa.schema(result.schema).field(0).type
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        result.close()
        raise InvalidRequestError(f"column {column} is {kind}; classes are numbers, texts, booleans or times")
    counts: dict[Any, int] = {}
    for batch in batches(result):
        labels, rows = batch.columns
        counts.update(zip(labels.to_pylist(), rows.to_pylist(), strict=True))
    if len(counts) > _CLASSES_MAX:
        raise InvalidRequestError(
            f"column {column} has more than {_CLASSES_MAX:,} values; count classes of a column with fewer of them"
        )
    return ClassBalance(column, counts)
