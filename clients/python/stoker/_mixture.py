"""Mixtures of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from stoker._errors import InvalidRequestError
from stoker._numbers import weight_list, whole
from stoker._query import Query
from stoker._source import Mixing, StreamSource

if TYPE_CHECKING:
    from stoker._lake import Lake

__all__ = ["Mixture", "mix"]


def mix(
    weights: Mapping[Query, float] | Sequence[tuple[Query, float]],
    *,
    stop: Literal["first", "all"] = "first",
    epoch_rows: int | None = None,
) -> Mixture:
    """Returns a mixture of several queries over one lake, which must have the same columns.

    After any number of rows, each query has delivered its share of them to within one row. Weights are exact if a
    period of at most 65,536 rows can represent them, and are otherwise rounded to multiples of 1/65,536. Each query has
    epochs of its own: all of its rows are delivered before any of them is delivered again. Seeds, states, ranks and
    resumes work as for one query.

    Args:
        weights: The share of each query, as a dict or a sequence of pairs; the shares need not add up to one.
        stop: The end of an epoch of the mixture: ``"first"`` ends it when the first query has been delivered
            completely, ``"all"`` when the last one has. Meanwhile, other queries may begin further epochs of their own,
            which the next epoch of the mixture continues.
        epoch_rows: The number of rows of an epoch over all ranks, instead of ``stop``.

    Raises:
        InvalidRequestError: There is no query, a weight is not a positive number, or the queries are of different
            lakes; when the mixture is streamed, also: the queries have different columns, or one has no rows.

    Example:
        >>> small, large = lake.sql("SELECT image FROM digits WHERE label < 3"), lake.sql("SELECT image FROM digits")
        >>> mixture = stoker.mix({small: 0.25, large: 0.75})
        >>> [batch.source.tolist().count(1) for batch in mixture.stream(batch_size=8)]
        [6, 6, 6]
    """
    pairs = list(weights.items()) if isinstance(weights, Mapping) else list(weights)
    return Mixture(pairs, stop, epoch_rows)


class Mixture(StreamSource):
    """Several queries that are streamed as one. Made by :func:`mix`."""

    def __init__(self, pairs: Sequence[tuple[Query, float]], stop: str, epoch_rows: int | None) -> None:
        for pair in pairs:
            if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Query)):
                raise InvalidRequestError(f"a mixture takes pairs of a query and its weight, not {pair!r}")
        if not pairs:
            raise InvalidRequestError("a mixture needs at least one query")
        lakes = {query._lake.target for query, _ in pairs}
        if len(lakes) > 1:
            raise InvalidRequestError(f"the queries of a mixture need one lake; these are of {sorted(lakes)}")
        if stop not in ("first", "all"):
            raise InvalidRequestError(f"stop is {stop!r}; it must be 'first' or 'all'")
        self._queries = [query for query, _ in pairs]
        self._weights = weight_list([weight for _, weight in pairs])
        self._stop = stop if epoch_rows is None else "rows"
        self._epoch_rows = 0 if epoch_rows is None else whole("epoch_rows", epoch_rows, 1)

    @property
    def queries(self) -> list[Query]:
        """The queries."""
        return list(self._queries)

    @property
    def weights(self) -> list[float]:
        """The weights as they were given."""
        return list(self._weights)

    def _sources(self) -> tuple[Lake, list[tuple[str, Sequence[Any]]], Mixing]:
        queries: list[tuple[str, Sequence[Any]]] = [(query.sql, query.params) for query in self._queries]
        return self._queries[0]._lake, queries, Mixing(self._weights, self._stop, self._epoch_rows)

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{weight:g}: {query.sql!r}" for query, weight in zip(self._queries, self._weights, strict=True)
        )
        return f"Mixture({parts})"
