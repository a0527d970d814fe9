"""Queries: results, plans and streams."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from stoker import _native
from stoker._compression import Compression, compression_or_none
from stoker._plan import Plan
from stoker._results import batches
from stoker._source import StreamSource

if TYPE_CHECKING:
    import pandas
    import polars

    from stoker._class_balance import ClassBalance
    from stoker._image_grid import ImageGrid
    from stoker._lake import Lake
    from stoker._parquet import ParquetCompression

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

    def __init__(self, lake: Lake, sql: str, params: Sequence[Any], *, approximate: bool = False) -> None:
        self._lake = lake
        self._sql = sql
        self._params = list(params)
        self._approximate = approximate
        self._preview: str | None = None

    @property
    def sql(self) -> str:
        """The text of the query."""
        return self._sql

    @property
    def params(self) -> list[Any]:
        """The values of the parameters ``$1``, ``$2``, …."""
        return list(self._params)

    @property
    def approximate(self) -> bool:
        """Whether an index may answer ``ORDER BY`` a distance with ``LIMIT``, as for :meth:`Lake.sql`."""
        return self._approximate

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result.

        Raises:
            InvalidRequestError: The SQL is malformed, a column is unknown, or a parameter is missing.
            NotFoundError: A table, version or tag does not exist.
        """
        return pa.schema(self._run().schema)

    def explain(self) -> Plan:
        """Returns the logical and the physical plan as text, which notebooks show with its operators in bold."""
        return Plan(self._lake._native.explain(self._sql, self._params, self._approximate))

    def to_reader(self, *, compression: Compression | None = None) -> pa.RecordBatchReader:
        """Returns the result as a reader, which runs the query while it is read.

        Args:
            compression: The codec that compresses rows on their way from a server, as for :meth:`stream`: ``"lz4"`` or
                ``"zstd"``. Default: none.

        Raises:
            StokerError: Of any kind, while this call plans the query, and while the reader is read.
        """
        result = self._run(compression)
        return pa.RecordBatchReader.from_batches(pa.schema(result.schema), batches(result))

    def to_arrow(self, *, compression: Compression | None = None) -> pa.Table:
        """Returns the result as an Arrow table, without copying.

        Args:
            compression: As for :meth:`to_reader`.

        Raises:
            StokerError: Of any kind, while planning or running.
        """
        result = self._run(compression)
        return pa.Table.from_batches(list(batches(result)), schema=pa.schema(result.schema))

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

    def to_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        compression: ParquetCompression = "zstd",
        row_group_rows: int | None = None,
    ) -> int:
        """Writes the result to a Parquet file, batch by batch, and returns the number of rows.

        The file has its name when it is complete: the rows go to a hidden file in the same folder, which is removed if
        the query fails. Tensors and vectors keep their Arrow types, so that pyarrow reads them back as they were.

        Args:
            path: The path of the file on this machine; a file that exists is replaced.
            compression: The codec of the file: ``"zstd"``, ``"snappy"``, ``"gzip"``, ``"lz4"``, ``"brotli"`` or
                ``"none"``.
            row_group_rows: The maximum number of rows of a row group. Default: 122,880. A row group ends after 128 MiB
                of rows in any case.

        Raises:
            InvalidRequestError: A tensor or a vector is null, which Parquet files cannot have for pyarrow; the message
                says what to do. Or a type has no counterpart in Parquet, or an option is wrong.
            OSError: The file cannot be written.
            StokerError: Of any kind, while planning or running.

        Example:
            >>> import tempfile
            >>> import pyarrow.parquet
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     num_rows = lake.sql("SELECT image, label FROM digits").to_parquet(f"{folder}/digits.parquet")
            ...     images = pyarrow.parquet.read_table(f"{folder}/digits.parquet")["image"]
            >>> num_rows, images.combine_chunks().to_numpy_ndarray().shape
            (20, (20, 1, 8, 8))
        """
        from stoker._parquet import write_parquet

        return write_parquet(self, path, compression, row_group_rows)

    def class_balance(self, column: str) -> ClassBalance:
        """Counts the rows of each value of a column, in one query that groups by it and reads no other column.

        Returns:
            A mapping of values to numbers of rows, the largest class first; notebooks show it as bars.

        Raises:
            InvalidRequestError: There is no such column, its values are lists or tensors, or there are more than 10,000
                of them.
            StokerError: Of any kind, while planning or running.
        """
        from stoker._class_balance import class_balance

        return class_balance(self, column)

    def image_grid(self, column: str, *, rows: int = 4, columns: int = 8, label: str | None = None) -> ImageGrid:
        """Reads the first images of the result, which notebooks show side by side.

        Args:
            column: The name of a column of encoded images, or of tensors of shape [C, H, W], [H, W, C] or [H, W] with
                1, 3 or 4 channels.
            rows: The maximum number of rows of the grid, up to 32.
            columns: The number of images in a row, up to 32.
            label: The name of a column whose value is shown below each image.

        Raises:
            InvalidRequestError: There is no such column, it has no images, or a number is out of range.
            StokerError: Of any kind, while planning or running.

        Example:
            >>> lake.sql("SELECT image, label FROM digits").image_grid("image", rows=2, columns=3, label="label")
            ImageGrid('image', label='label', images=6, columns=3)
        """
        from stoker._image_grid import image_grid

        return image_grid(self, column, rows, columns, label)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        from stoker._html import query_html

        shown, self._preview = self._preview, None
        return query_html(self) if shown is None else shown

    def _shown(self) -> Query:
        """Runs the preview now, so that its errors are raised here; it is shown once."""
        self._preview = self._repr_html_()
        return self

    def __repr__(self) -> str:
        params = f", params={self._params}" if self._params else ""
        approximate = ", approximate=True" if self._approximate else ""
        return f"Query({self._sql!r}{params}{approximate})"

    def _sources(self) -> tuple[Lake, list[tuple[str, Sequence[Any]]], None]:
        return self._lake, [(self._sql, self._params)], None

    def _check(self) -> None:
        self._lake._native.check_sql(self._sql, self._params)

    def _around(self, columns: str, rest: str = "") -> Query:
        """Returns a query that reads this one as a table."""
        inner = self._sql.strip().rstrip(";")
        sql = f"SELECT {columns} FROM (\n{inner}\n) AS rows_of_query {rest}"
        return Query(self._lake, sql, self._params, approximate=self._approximate)

    def _run(self, compression: Compression | None = None) -> _native.QueryResult:
        return self._lake._native.sql(self._sql, self._params, compression_or_none(compression), self._approximate)
