"""Tables of a lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from stoker import _native
from stoker._changes import (
    Matched,
    NotMatched,
    cast_statement,
    column_statement,
    condition,
    merge_statement,
    optimize_statement,
    struct_rows,
    update_statement,
    where_clause,
)
from stoker._column_shapes import ColumnShape, column_shapes
from stoker._computed import (
    BatchFormat,
    ColumnFunction,
    ComputedColumn,
    batch_format_of,
    compute,
    decoders_of,
    function_of,
    input_columns,
)
from stoker._data import PAGE_BYTES_MAX, arrow_stream
from stoker._decode import ColumnDecoder
from stoker._errors import InvalidRequestError
from stoker._masked import mask_key, masked_columns
from stoker._names import quoted, quoted_branch, quoted_column, quoted_index, quoted_text, text_or_none
from stoker._numbers import seconds, whole, whole_or_none
from stoker._reports import ColumnLayout, Finding, TableSize, VersionInfo, known_fields
from stoker._statement import Outcome, ProgressCallback, given_params
from stoker._write import write

if TYPE_CHECKING:
    from stoker._lake import Lake

__all__ = ["Table"]

IndexKind = Literal["ivf_flat", "ivf_pq", "ivf_hnsw_sq", "btree", "bitmap", "label_list", "ngram", "inverted"]
Metric = Literal["l2", "cosine", "dot"]

#: The maximum number of rows of a batch that a function gets.
_BATCH_ROWS_MAX = 2**20
#: The maximum numbers of partitions and sub-vectors of an index.
_PARTITIONS_MAX = 2**20
_SUB_VECTORS_MAX = 2**16

#: The maximum size of a fragment, and the highest rate, in megabytes.
_MB_MAX = 1_000_000


def _is_hint(field: pa.Field, shape: ColumnShape, made: Sequence[str]) -> bool:
    """Whether values of Python get the type of a table's column. Others are made of their own type by the engine."""
    metadata = field.metadata or {}
    is_converted = b"stoker.lossy" in metadata or shape.small_float is not None
    return not is_converted and field.name not in made


class Table:
    """One immutable version of a table. Made by :meth:`Lake.table`.

    Example:
        >>> table = lake.table("digits")
        >>> table.name, table.num_rows, table.schema.names
        ('digits', 20, ['image', 'label', 'name'])
    """

    def __init__(self, lake: Lake, info: _native.TableInfo) -> None:
        self._lake = lake
        self._info = info

    @property
    def name(self) -> str:
        """The table's name."""
        return self._info.name

    @property
    def version(self) -> int:
        """The version of this object."""
        return self._info.version

    @property
    def num_rows(self) -> int:
        """The number of rows that are not deleted."""
        return self._info.num_rows

    @property
    def size(self) -> TableSize | None:
        """What this version takes in storage; ``None`` from servers of older versions, which do not tell it.

        Example:
            >>> lake.table("digits").size.num_fragments
            1
        """
        return None if self._info.size is None else TableSize(*self._info.size)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema with all field metadata."""
        return pa.schema(self._info.schema)

    @property
    def tags(self) -> dict[str, int]:
        """The table's tags and the versions that they name, at the time when this object was made."""
        return dict(self._info.tags)

    def versions(self) -> list[VersionInfo]:
        """Returns all versions that still exist, oldest first."""
        versions = self._lake._native.versions(self.name)
        return [
            VersionInfo(
                item["version"], datetime.fromtimestamp(item["timestamp_millis"] / 1000, timezone.utc), item["tags"]
            )
            for item in versions
        ]

    def tag(self, name: str) -> None:
        """Tags this version, which protects it from cleanup.

        Raises:
            AlreadyExistsError: The tag exists.
            InvalidRequestError: The name is malformed.
        """
        self._lake._native.tag(self.name, self.version, name)

    def create_branch(self, name: str) -> Table:
        """Makes a branch that begins at this version, and returns it.

        A branch is a table with a line of versions of its own. It begins with the rows of this version, whose files it
        shares, and has the name of the table, ``@`` and its own name. Changes of a branch are not seen on others, and
        cleanups keep the files that a branch needs. ``SHOW BRANCHES FROM`` a table lists them.

        Args:
            name: The name of the branch, by the rules of names of tables; not ``main``, which is the table itself.

        Raises:
            AlreadyExistsError: The branch exists.
            InvalidRequestError: The name is malformed.
            StokerError: As for :meth:`Lake.execute`.

        Example:
            >>> trial = lake.table("digits").create_branch("trial")
            >>> _ = trial.delete("label > 4")
            >>> lake.table("digits@trial").num_rows, lake.table("digits").num_rows
            (10, 20)
        """
        branch = quoted_branch("name", name)
        created = self._lake.execute(f"CREATE BRANCH {branch} ON {quoted(self.name)} AT (VERSION => {self.version})")
        return self._lake.table(created.table or f"{self.name}@{name}")

    def drop_branch(self, name: str, *, cascade: bool = False) -> Outcome:
        """Removes a branch of this table with all of its versions.

        Args:
            name: The name of the branch.
            cascade: Whether the branch is also removed while streams hold versions of it. These streams cannot be
                resumed: give a branch that is made later another name.

        Raises:
            NotFoundError: The branch does not exist; the message lists those that do.
            InvalidRequestError: Tags name versions of the branch, other branches began at it, or streams hold versions.
            StokerError: As for :meth:`Lake.execute`.
        """
        sql = f"DROP BRANCH {quoted_branch('name', name)} ON {quoted(self.name)}"
        return self._lake.execute(sql + (" CASCADE" if cascade else ""))

    def describe(self) -> list[ColumnLayout]:
        """Describes how each column is stored: its type, its bytes, its nulls, its indexes. Reads all footers."""
        layouts = self._lake._native.describe(self.name, self.version)
        return [ColumnLayout(**known_fields(ColumnLayout, layout)) for layout in layouts]

    def doctor(self) -> list[Finding]:
        """Returns what costs speed or safety in the table's layout, and what to do about it.

        Findings are, for example: heavy columns that are read through Lance's decoder, with the reason; rows without
        checksums; fragments that are small or have many deleted rows. The call reads the footers of all data files.

        Example:
            >>> lake.table("digits").doctor()
            []
        """
        findings = self._lake._native.doctor(self.name, self.version)["findings"]
        return [Finding(**known_fields(Finding, finding)) for finding in findings]

    def append(
        self,
        data: Any,
        *,
        rows_per_fragment: int | None = None,
        page_bytes: int | None = None,
        key: str | None = None,
    ) -> Table:
        """Adds rows to the newest version in one atomic commit; this object keeps its version.

        Tensors of columns that the table compresses are compressed as the rows before them. Tensors of columns that
        it holds as images (``"jpeg"``) become images; such columns take files of images, too.

        Numbers are widened without loss: integers to wider integers, and floats to wider floats; integers become floats
        if these hold them exactly. Python's own numbers and lists get the types of the columns, and floats of Python
        are rounded to them. Other values are refused.

        Args:
            data: As for :meth:`Lake.create_table`, with the table's columns in any order.
            rows_per_fragment: The maximum number of rows per data file.
            page_bytes: As for :meth:`Lake.create_table`.
            key: As for :meth:`Lake.create_table`.

        Returns:
            The table at its new version.

        Raises:
            InvalidRequestError: The data does not fit the table; the message names the column and, where there is one,
                the row, counted from 0.
            StokerError: As for :meth:`Lake.create_table`.

        Example:
            >>> scores = lake.create_table("scores", {"score": np.array([0.5])})
            >>> scores.append([{"score": 1}, {"score": 0.25}]).num_rows
            3
        """
        schema = self.schema
        shapes = list(zip(schema, column_shapes(schema), strict=True))
        images = [field.name for field, shape in shapes if shape.kind == "encoded_image"]
        pixels = [name for name in images if b"stoker.lossy" in schema.field(name).metadata]
        videos = [field.name for field, shape in shapes if shape.kind == "encoded_video"]
        masks = masked_columns(schema)
        made = [*(f"{video}_index" for video in videos), *map(mask_key, masks)]
        hints = pa.schema([field for field, shape in shapes if _is_hint(field, shape, made)])
        source = arrow_stream(data, images, masks, videos=videos, pixels=pixels, lenient_masks=True, hints=hints)
        sizes = {"rows_per_fragment": rows_per_fragment, "page_bytes": page_bytes}
        write(self._lake, self.name, source, mode="append", key=key, **sizes)
        return self._lake.table(self.name)

    def delete(
        self, where: str, params: Sequence[Any] | None = None, *, progress: ProgressCallback | None = None
    ) -> Outcome:
        """Deletes rows of the newest version in one atomic commit; this object keeps its version and its rows.

        Args:
            where: The condition that chooses the rows, as in ``DELETE FROM … WHERE``; :meth:`truncate` removes all.
            params: The values of ``$1``, ``$2``, … in it, as for :meth:`Lake.sql`.
            progress: As for :meth:`Lake.execute`.

        Raises:
            InvalidRequestError: The condition is malformed, or a parameter is missing.
            StokerError: As for :meth:`Lake.execute`.

        Example:
            >>> lake.table("digits").delete("label IN (1, $1)", [2]).num_rows
            4
        """
        if where is None:
            raise InvalidRequestError("where is None; it must be a condition, and truncate() removes all rows")
        return self._lake.execute(f"DELETE FROM {quoted(self.name)}{where_clause(where)}", params, progress=progress)

    def update(
        self,
        values: Mapping[str, Any] | None = None,
        where: str | None = None,
        params: Sequence[Any] | None = None,
        *,
        expressions: Mapping[str, str] | None = None,
        progress: ProgressCallback | None = None,
    ) -> Outcome:
        """Gives rows of the newest version new values in one atomic commit; this object keeps its version.

        Other columns are neither read nor written, and rows keep their addresses.

        Args:
            values: The new value of each column, such as ``{"label": 3}``; values as parameters of :meth:`Lake.sql`,
                lists and arrays for vectors and tensors.
            where: The condition that chooses the rows. Default: all rows.
            params: The values of ``$1``, ``$2``, … (or ``?``) in the expressions and the condition.
            expressions: An expression of SQL for each column, such as ``{"label": "label + 1"}``.
            progress: As for :meth:`Lake.execute`.

        Raises:
            InvalidRequestError: A column does not exist, a value does not fit, or a parameter is missing.
            StokerError: As for :meth:`Lake.execute`.

        Example:
            >>> table = lake.table("digits")
            >>> table.update({"name": "seven"}, "label = $1", [7], expressions={"label": "label + 70"}).num_rows
            2
            >>> lake.sql("SELECT label, name FROM digits WHERE name = 'seven' LIMIT 1").to_arrow().to_pylist()
            [{'label': 77, 'name': 'seven'}]
        """
        sql, all_params = update_statement(self.name, values, expressions, where, given_params(params))
        return self._lake.execute(sql, all_params, progress=progress)

    def merge(
        self,
        source: Any,
        on: str | Sequence[str],
        *,
        when_matched: Matched | Mapping[str, str] = "update",
        when_not_matched: NotMatched = "insert",
        progress: ProgressCallback | None = None,
    ) -> Outcome:
        """Merges rows into the newest version in one atomic commit: updates those that exist, and inserts the others.

        The rows are sent as a parameter, so that a server takes about 12 MB of them. Write more rows to a table first,
        and use ``MERGE INTO … USING …`` with :meth:`Lake.execute`, which also has conditions.

        Args:
            source: The rows, as for :meth:`Lake.create_table`. No two of them may match the same row.
            on: The column or columns that are equal in a row and its match.
            when_matched: What happens to a row that has a match: ``"update"`` sets all columns of the source,
                ``"delete"``, ``"ignore"``, or a dict with an expression for each column to set, in which ``target`` is
                the table and ``source`` the rows, such as ``{"n": "target.n + source.n"}``.
            when_not_matched: What happens to a row of the source without a match: ``"insert"`` or ``"ignore"``.
                Columns that the source does not have become NULL.
            progress: As for :meth:`Lake.execute`.

        Raises:
            InvalidRequestError: A column does not exist, a value does not fit, or rows of the source match the same
                row, which the message names.
            StokerError: As for :meth:`Lake.execute`.

        Example:
            >>> rows = {"label": [3], "name": ["three"]}
            >>> lake.table("digits").merge(rows, "label", when_not_matched="ignore").num_rows
            2
        """
        rows = struct_rows(source)
        names = [field.name for field in rows.type]
        sql = merge_statement(self.name, names, on, when_matched, when_not_matched)
        return self._lake.execute(sql, [rows], progress=progress)

    def truncate(self) -> Outcome:
        """Removes all rows by a new version; this object keeps its version and its rows.

        Raises:
            StokerError: As for :meth:`Lake.execute`.
        """
        return self._lake.execute(f"TRUNCATE TABLE {quoted(self.name)}")

    def add_column(
        self,
        name: str,
        function: ColumnFunction | str | None = None,
        *,
        columns: str | Sequence[str] | None = None,
        sql: str | None = None,
        where: str | None = None,
        params: Sequence[Any] | None = None,
        data_type: str | None = None,
        replace: bool = False,
        batch_size: int = 256,
        batch_format: BatchFormat = "numpy",
        decode: Mapping[str, ColumnDecoder] | None = None,
        resume_key: str | None = None,
        resume: bool = True,
        checkpoint_secs: float = 60,
        page_bytes: int | None = None,
        value: str | None = None,
        progress: ProgressCallback | bool | None = None,
    ) -> Table:
        """Adds a column in one atomic commit: computed by a function, or by an expression of SQL.

        No other column is written again, and only those are read from which the values are computed. Streams of older
        versions go on.

        A function gets batches of rows in the order of their addresses, and returns an array with one value for each
        row: of NumPy, PyTorch or Arrow, or a list. Arrays of two dimensions become vectors or tensors. The column has
        the type and the shape of the first batch, and later batches must have the same.

        Such a call may take hours. Finished fragments of the table are recorded in the lake, and the rows of a fragment
        under way once in a while. If the process dies, or the function raises, the same call goes on from there: with
        the same table, columns, ``where``, ``params``, ``decode``, and the same code of the function or the same
        ``resume_key``. What was recorded is forgotten by a cleanup after six days. Rows that others append, update or
        move by a compaction while the call runs are computed, too, before it commits. A function needs a connection to
        the lake itself.

        Args:
            name: The name of the column.
            function: The function, or the type of the column in SQL, as ``data_type``.
            columns: The column or columns that the function gets.
            sql: An expression of SQL for the values, such as ``"label + 1"``, instead of a function. Default: NULL.
            where: The condition that chooses the rows that get values, as in ``WHERE``; others are NULL. Tensors, and
                vectors of more than 1 KiB, are never NULL: they are zeros, and the column ``<name>_valid`` tells them.
            params: The values of ``$1``, ``$2``, … in ``sql`` and ``where``, as for :meth:`Lake.sql`.
            data_type: The type of the column in SQL, such as ``"BIGINT"``, ``"TEXT"`` or ``"FLOAT[128]"``, to which
                values are cast. Default: that of the values.
            replace: Whether the column exists, and is computed anew. Its indexes are dropped, unless ``where`` chooses
                rows: then other rows keep their values, and the type stays. Default: the column must not exist.
            batch_size: The rows of a batch.
            batch_format: What the function gets: ``"numpy"`` for a dict of arrays as of :meth:`Query.numpy`,
                ``"torch"`` for one of tensors as of :meth:`Query.torch`, ``"arrow"`` for a record batch.
            decode: What decodes columns of files or texts, as for :meth:`Query.stream`.
            resume_key: A text by which the call is known again. Give another one if something changed that the code of
                the function does not tell, such as the weights of a model. Default: the name of the function and a
                digest of its code.
            resume: Whether the call goes on with what an earlier one recorded. Default: yes.
            checkpoint_secs: The seconds after which the values of a fragment under way are recorded.
            page_bytes: As for :meth:`Lake.create_table`.
            value: The older name of ``sql``.
            progress: As for :meth:`Lake.execute`; or ``True`` or ``False`` for a line on standard error. Default: a
                line, for a function, in terminals and notebooks.

        Returns:
            The table at its new version.

        Raises:
            AlreadyExistsError: The column exists, or another process added it meanwhile.
            InvalidRequestError: The column exists, type and values do not fit, or the function raised; the message
                names the table and the row ids, and the exception of the function is its cause.
            StokerError: As for :meth:`Lake.execute`.

        Example:
            >>> table = lake.table("digits").add_column("is_even", sql="label % 2 = 0")
            >>> str(table.schema.field("is_even").type)
            'bool'
            >>> table = table.add_column("ink", lambda batch: batch["image"].mean(axis=(1, 2, 3)), columns="image")
            >>> str(table.schema.field("ink").type), table.version
            ('double', 3)
        """
        if value is not None:
            if sql is not None:
                raise InvalidRequestError("sql and value are given; value is the older name of sql")
            sql = value
        if isinstance(function, str):
            if data_type is not None:
                raise InvalidRequestError("data_type is given twice: by its name, and as the second argument")
            function, data_type = None, function
        if function is not None:
            column = ComputedColumn(
                table=self.name,
                name=name,
                function=function_of(function, sql),
                columns=input_columns(columns),
                where=condition(where),
                params=given_params(params),
                data_type=text_or_none("data_type", data_type),
                replace=bool(replace),
                batch_size=whole("batch_size", batch_size, 1, _BATCH_ROWS_MAX),
                batch_format=batch_format_of(batch_format),
                decode=decoders_of(decode),
                resume_key=text_or_none("resume_key", resume_key),
                resume=bool(resume),
                checkpoint_secs=seconds("checkpoint_secs", checkpoint_secs),
                page_bytes=whole_or_none("page_bytes", page_bytes, 1, PAGE_BYTES_MAX),
                progress=progress,
            )
            return self._lake.table(self.name, version=compute(self._lake, column))
        if columns is not None:
            raise InvalidRequestError(
                "columns are given without a function that gets them; sql names its columns itself"
            )
        statement = column_statement(self.name, name, data_type, sql, where, replace)
        self._lake.execute(statement, params, progress=progress if callable(progress) else None)
        return self._lake.table(self.name)

    def cast_column(
        self, name: str, data_type: str, *, using: str | None = None, progress: ProgressCallback | None = None
    ) -> Table:
        """Gives a column another type from the next version on; older versions keep the old one.

        The column is read and written again, and no other one. A value that does not fit the type is an error that
        names the row, and nothing changes. Indexes of the column are dropped: build them again.

        Args:
            name: The name of the column.
            data_type: Its new type in SQL, such as ``"BIGINT"``, ``"TEXT"`` or ``"FLOAT[128]"``.
            using: An expression of SQL for the new values, such as ``"decompress(mask)"``. Default: casts of the old
                ones.
            progress: As for :meth:`Lake.execute`.

        Returns:
            The table at its new version.

        Raises:
            InvalidRequestError: The column or the type does not exist, or a value does not fit.
            StokerError: As for :meth:`Lake.execute`.

        Example:
            >>> table = lake.table("digits").cast_column("label", "SMALLINT")
            >>> str(table.schema.field("label").type)
            'int16'
        """
        self._lake.execute(cast_statement(self.name, name, data_type, using), progress=progress)
        return self._lake.table(self.name)

    def restore(self, version: int | None = None, *, tag: str | None = None) -> Table:
        """Makes an older version the newest one again, as a new version; the versions between them stay.

        Rows, columns and indexes are those of the older version. No data is copied.

        Args:
            version: The number of the version. Default: that of this object.
            tag: The tag that names the version, instead of its number.

        Returns:
            The table at its new version.

        Raises:
            NotFoundError: The version or tag does not exist; the message lists those that do.
            InvalidRequestError: The version is the newest one, or both version and tag are given.
            StokerError: As for :meth:`Lake.execute`.

        Example:
            >>> before = lake.table("digits")
            >>> _ = before.delete("label > 4")
            >>> lake.table("digits").num_rows, before.restore().num_rows
            (10, 20)
        """
        if version is not None and tag is not None:
            raise InvalidRequestError("give either a version or a tag")
        number = self.version if version is None else whole("version", version, 0)
        at = f"VERSION => {number}" if tag is None else f"TAG => {quoted_text('tag', tag)}"
        self._lake.execute(f"RESTORE TABLE {quoted(self.name)} AT ({at})")
        return self._lake.table(self.name)

    def drop_column(self, *names: str) -> Table:
        """Removes columns from the next version of the table; older versions keep them.

        Returns:
            The table at its new version.

        Raises:
            InvalidRequestError: A column does not exist; the message lists those that do.
            StokerError: As for :meth:`Lake.execute`.
        """
        if not names:
            raise InvalidRequestError("there is no column to drop; give one or more names")
        dropped = ", ".join(f"DROP COLUMN {quoted_column('name', name)}" for name in names)
        self._lake.execute(f"ALTER TABLE {quoted(self.name)} {dropped}")
        return self._lake.table(self.name)

    def rename_column(self, name: str, new_name: str) -> Table:
        """Gives a column another name from the next version on; older versions keep the old one.

        Returns:
            The table at its new version.

        Raises:
            InvalidRequestError: The column does not exist, or another one has the new name.
            StokerError: As for :meth:`Lake.execute`.
        """
        renamed = f"{quoted_column('name', name)} TO {quoted_column('new_name', new_name)}"
        self._lake.execute(f"ALTER TABLE {quoted(self.name)} RENAME COLUMN {renamed}")
        return self._lake.table(self.name)

    def compact(
        self,
        *,
        rows_per_fragment: int | None = None,
        mb_per_fragment: int | None = None,
        deleted_percent: int | None = None,
        rate_mb_per_sec: int | None = None,
        rewrite_all: bool = False,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
    ) -> Outcome:
        """Writes fragments of the newest version again as full ones, in one atomic commit.

        Neighbouring fragments that are less than half full are joined. Fragments with many deleted rows, and those
        whose columns lie in many files, are written again. Checksums and compression stay, and indexes follow. The
        addresses of rows change, and with them their order without ``ORDER BY``; :meth:`quarantine` takes the old ones,
        too. Streams of older versions go on. If there is nothing to do, there is no new version.

        Args:
            rows_per_fragment: The rows of a new fragment at most. Default: 1,048,576.
            mb_per_fragment: The megabytes of a new fragment at most. Default: 4,295.
            deleted_percent: The share of deleted rows from which on a fragment is written again. Default: 10.
            rate_mb_per_sec: The megabytes that are written again per second at most. Default: no limit.
            rewrite_all: Whether all fragments are written again, also those that need it for no other reason.
            dry_run: Whether only what would be done is told.
            progress: As for :meth:`Lake.execute`.

        Returns:
            What was done, with the number of rows that were written again.

        Raises:
            InvalidRequestError: A number is out of range, or an index cannot follow; the message names it.
            StokerError: As for :meth:`Lake.execute`.

        Example:
            >>> lake.table("digits").compact(dry_run=True).num_rows
            0
        """
        options = {
            "rows_per_fragment": whole_or_none("rows_per_fragment", rows_per_fragment, 1, 2**32 - 1),
            "mb_per_fragment": whole_or_none("mb_per_fragment", mb_per_fragment, 1, _MB_MAX),
            "deleted_percent": whole_or_none("deleted_percent", deleted_percent, 1, 100),
            "rate_mb_per_sec": whole_or_none("rate_mb_per_sec", rate_mb_per_sec, 1, _MB_MAX),
            "all": "TRUE" if rewrite_all else None,
        }
        return self._lake.execute(optimize_statement(self.name, options, dry_run), progress=progress)

    def create_index(
        self,
        column: str,
        *,
        kind: IndexKind,
        name: str | None = None,
        metric: Metric | None = None,
        num_partitions: int | None = None,
        num_sub_vectors: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> Table:
        """Builds an index over a column of the newest version, and replaces an existing one of the same name.

        The same as ``CREATE OR REPLACE INDEX``, see :meth:`Lake.execute`, with the same defaults.

        Args:
            column: A vector column for the kinds that begin with ``ivf``, a text column for ``inverted`` and ``ngram``,
                a column of lists for ``label_list``, otherwise a scalar column.
            kind: The kind of index.
            name: The name of the index. Default: ``<column>_idx``.
            metric: The distance of a vector index: ``"l2"``, ``"cosine"`` or ``"dot"``; searches with another distance
                do not use the index. Default: ``"l2"``.
            num_partitions: The number of partitions of the vector space. Default: one per 4,096 rows, at most 65,536;
                for ``ivf_hnsw_sq`` one per 1,048,576 rows.
            num_sub_vectors: The number of parts of a vector for ``ivf_pq``, which must divide its size. Default: the
                largest one up to 16.
            progress: As for :meth:`Lake.execute`.

        Returns:
            The table at its new version.

        Raises:
            InvalidRequestError: The column does not exist, its type does not fit, or a number is out of range.
            StokerError: As for :meth:`Lake.execute`.
        """
        request: _native.IndexRequest = {
            "table": self.name,
            "column": column,
            "kind": kind,
            "name": name,
            "metric": metric,
            "num_partitions": whole_or_none("num_partitions", num_partitions, 1, _PARTITIONS_MAX),
            "num_sub_vectors": whole_or_none("num_sub_vectors", num_sub_vectors, 1, _SUB_VECTORS_MAX),
        }
        self._lake.execute(_native.Connection.index_statement(request), progress=progress)
        return self._lake.table(self.name)

    def drop_index(self, name: str) -> Table:
        """Removes an index from the next version of the table; older versions keep their index.

        Returns:
            The table at its new version.

        Raises:
            NotFoundError: The index does not exist; the message lists those that do.
            StokerError: As for :meth:`Lake.execute`.
        """
        self._lake.execute(f"DROP INDEX {quoted_index('name', name)} ON {quoted(self.name)}")
        return self._lake.table(self.name)

    def optimize_indexes(self, name: str | None = None, *, progress: ProgressCallback | None = None) -> Table:
        """Adds the rows that the indexes of the newest version do not cover to them.

        Searches find these rows without it, too, but compare them one by one. Partitions and code books of vector
        indexes stay as they are: build the index again when the rows have become very different.

        Args:
            name: The index. Default: all indexes of the table.
            progress: As for :meth:`Lake.execute`.

        Returns:
            The table at its newest version, which is a new one if an index did not cover all rows.

        Raises:
            NotFoundError: The index does not exist; the message lists those that do.
            StokerError: As for :meth:`Lake.execute`.
        """
        index = "" if name is None else f"{quoted_index('name', name)} "
        self._lake.execute(f"OPTIMIZE INDEX {index}ON {quoted(self.name)}", progress=progress)
        return self._lake.table(self.name)

    def quarantine(self, row_ids: Iterable[int], reason: str | None = None) -> Table:
        """Excludes bad rows from a new version of the table and all later ones; this object keeps its version.

        Streams and queries that are pinned to older versions still deliver the rows. Rows that the newest version
        excludes already are ignored; if there are no others, there is no new version.

        Args:
            row_ids: Row addresses as in :attr:`Batch.row_ids`: a sequence of ints, or a uint64 array of shape
                ``(rows,)``. They hold from version to version until a compaction moves the rows.
            reason: The reason, in at most 1,024 bytes, which is kept in the transaction of the new version.

        Returns:
            The table at the version that excludes the rows.

        Raises:
            InvalidRequestError: A row id is not a whole number, or the reason is too long.
            NotFoundError: A row does not exist, or a compaction has moved it; the message names the row.

        Example:
            >>> table = lake.table("digits").quarantine([3, 5], "torn images")
            >>> table.num_rows, lake.table("digits", version=1).num_rows
            (18, 20)
        """
        values: list[Any] | None = None
        if not isinstance(row_ids, (str, bytes)):
            with suppress(TypeError):
                values = list(row_ids)
        if values is None:
            raise InvalidRequestError(f"row_ids is {row_ids!r:.40}; it must be a sequence of whole numbers")
        addrs = [whole(f"row_ids[{index}]", value, 0, 2**64 - 1) for index, value in enumerate(values)]
        version = self._lake._native.quarantine(self.name, addrs, reason)
        return self._lake.table(self.name, version=version)

    def __len__(self) -> int:
        return self.num_rows

    def _repr_html_(self) -> str:
        from stoker._html import table_html

        return table_html(self)

    def __repr__(self) -> str:
        return f"Table({self.name!r}, version={self.version}, rows={self.num_rows})"

    def __reduce__(self) -> tuple[Any, tuple[Lake, str, int]]:
        return _reopened, (self._lake, self.name, self.version)


def _reopened(lake: Lake, name: str, version: int) -> Table:
    return lake.table(name, version=version)
