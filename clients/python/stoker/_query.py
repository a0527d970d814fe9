"""Queries: results, plans and streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from stoker import _native
from stoker._compression import Compression, compression_or_none
from stoker._source import StreamSource

if TYPE_CHECKING:
    import pandas
    import polars

    from stoker._lake import Lake

__all__ = ["Query"]


class Query(StreamSource):
    """A ``SELECT`` over a lake: a table of results, or the definition of a training set.

    A query is made by :meth:`Lake.sql`. It reads nothing before a result is requested. Tables without ``AT`` are read
    at their newest version when a result or a stream is requested; a stream keeps that version from then on.

    Example:
        >>> query = lake.sql("SELECT label, count(*) AS n FROM digits GROUP BY label ORDER BY label LIMIT 2")
        >>> query.to_arrow().to_pylist()
        [{'label': 0, 'n': 2}, {'label': 1, 'n': 2}]
    """

    def __init__(self, lake: Lake, sql: str, params: Sequence[Any]) -> None:
        self._lake = lake
        self._sql = sql
        self._params = list(params)

    @property
    def sql(self) -> str:
        """The text of the query."""
        return self._sql

    @property
    def params(self) -> list[Any]:
        """The values of the parameters ``$1``, ``$2``, …."""
        return list(self._params)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result.

        Raises:
            InvalidRequestError: The SQL is malformed, a column is unknown, or a parameter is missing.
            NotFoundError: A table, version or tag does not exist.
        """
        return pa.schema(self._run().schema)

    def explain(self) -> str:
        """Returns the logical and the physical plan as text."""
        return self._lake._native.explain(self._sql, self._params)

    def to_reader(self, *, compression: Compression | None = None) -> pa.RecordBatchReader:
        """Returns the result as a reader, which runs the query while it is read.

        Args:
            compression: The codec that compresses rows on their way from a server, as for :meth:`stream`: ``"lz4"`` or
                ``"zstd"``. Default: none.

        Raises:
            StokerError: Of any kind, while this call plans the query, and while the reader is read.
        """
        result = self._run(compression)
        return pa.RecordBatchReader.from_batches(pa.schema(result.schema), _batches(result))

    def to_arrow(self, *, compression: Compression | None = None) -> pa.Table:
        """Returns the result as an Arrow table, without copying.

        Args:
            compression: As for :meth:`to_reader`.

        Raises:
            StokerError: Of any kind, while planning or running.
        """
        result = self._run(compression)
        return pa.Table.from_batches(list(_batches(result)), schema=pa.schema(result.schema))

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the result as a pandas DataFrame; each tensor is a NumPy array of its shape.

        Raises:
            ImportError: pandas is not installed.
            StokerError: Of any kind, while planning or running.
        """
        table = self.to_arrow()
        tensors = {
            field.name: list(table.column(field.name).combine_chunks().to_numpy_ndarray())
            for field in table.schema
            if isinstance(field.type, pa.FixedShapeTensorType) and table.num_rows and not table[field.name].null_count
        }
        frame = table.drop_columns(list(tensors)).to_pandas()
        for name, values in tensors.items():
            frame[name] = values
        return frame[table.column_names]

    def to_polars(self) -> polars.DataFrame:
        """Returns the result as a polars DataFrame.

        Raises:
            ImportError: polars is not installed.
            StokerError: Of any kind, while planning or running.
        """
        import polars

        return polars.DataFrame(polars.from_arrow(self.to_arrow()))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        from stoker._html import preview

        return preview(self)

    def __repr__(self) -> str:
        params = f", params={self._params}" if self._params else ""
        return f"Query({self._sql!r}{params})"

    def _sources(self) -> tuple[Lake, list[tuple[str, Sequence[Any]]], None]:
        return self._lake, [(self._sql, self._params)], None

    def _check(self) -> None:
        self._lake._native.check_sql(self._sql, self._params)

    def _run(self, compression: Compression | None = None) -> _native.QueryResult:
        return self._lake._native.sql(self._sql, self._params, compression_or_none(compression))


def _batches(result: _native.QueryResult) -> Iterator[pa.RecordBatch]:
    try:
        while (batch := result.next()) is not None:
            yield pa.record_batch(batch)
    finally:
        result.close()
