"""Lakes and tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import Any, Literal

import pyarrow as pa

from stoker import _native
from stoker._changes import (
    Matched,
    NotMatched,
    merge_statement,
    named,
    struct_rows,
    typed,
    update_statement,
    where_clause,
)
from stoker._column_shapes import column_shapes
from stoker._data import arrow_stream
from stoker._errors import InvalidRequestError, NotFoundError
from stoker._names import quoted, quoted_column
from stoker._numbers import whole, whole_or_none
from stoker._query import Query
from stoker._resume import resumed
from stoker._run import Run
from stoker._statement import Outcome, ProgressCallback, StatementProgress
from stoker._stream import Stream

__all__ = ["ColumnLayout", "EpochVerdict", "Finding", "Lake", "Table", "VersionInfo", "connect"]

IndexKind = Literal["ivf_flat", "ivf_pq", "ivf_hnsw_sq", "btree", "bitmap", "label_list", "ngram", "inverted"]
Metric = Literal["l2", "cosine", "dot"]

#: The maximum characters of a target.
_TARGET_MAX = 8192
#: The maximum number of endpoints over which a server sends one stream.
_ENDPOINTS_MAX = 256
#: The maximum number of days for which versions are held.
_HOLD_DAYS_MAX = 3650
#: The maximum numbers of partitions and sub-vectors of an index.
_PARTITIONS_MAX = 2**20
_SUB_VECTORS_MAX = 2**16


def connect(
    target: str,
    *,
    token: str | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    retry_budget_secs: int | None = None,
    num_endpoints: int | None = None,
    memory_budget_bytes: int | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int | None = None,
    direct_io: bool = False,
    hold_days: int | None = None,
) -> Lake:
    """Opens a lake, with the engine in this process or behind a server.

    Args:
        target: A local path, ``s3://``, ``gs://``, ``az://`` or ``memory://`` for a lake in this process;
            ``grpc://host:port``, ``grpc+tls://host:port`` or, on this host, ``unix:///path`` (``grpc+unix:///path``)
            for a server. If there are replicas, give their addresses separated by commas; a scheme also holds for the
            addresses after it.
        token: The server's bearer token.
        tls_ca: The path of a PEM file with the certificate authority of a ``grpc+tls`` server. Default: the system's
            authorities.
        tls_cert: The path of a PEM file with this client's certificate, for a ``grpc+tls`` server that requires one.
        tls_key: The path of a PEM file with the private key of that certificate.
        storage_options: Options of the object store, for example ``aws_endpoint``, ``aws_region``,
            ``aws_access_key_id``, ``aws_secret_access_key``. Missing options are taken from the usual environment
            variables.
        retry_budget_secs: Seconds for which a stream retries a lost server before it fails. Default: 120.
        num_endpoints: The number of connections over which a server sends one stream, up to 256. Default: 1.
        memory_budget_bytes: The maximum bytes, in this process, of batches of all streams of this connection that are
            being filled or wait to be taken. Open streams share these bytes equally. Default: 2 GiB, or as much as the
            same option of an open stream if that is more.
        cache_dir: A local folder that caches what streams read from an object store, for later epochs and other
            processes: all processes that name the folder share it. It is created for its owner alone; anybody who can
            write to it can change what streams deliver. Lakes on a local disk do not use it, and a server has its own
            cache. Default: no cache.
        cache_bytes: The maximum bytes in the cache folder. Default: half of the free space of its file system.
        direct_io: Whether streams read the tensors of a lake on a local disk without the system's page cache (on Linux,
            with ``O_DIRECT``). This is for tables larger than memory, which would only evict other files from the page
            cache; each epoch then reads from the disk. If the file system does not support it, files are read as usual,
            and dropped from the page cache at once. Columns that Lance decodes (text, encoded images, scalars) are read
            as usual, lakes in object stores do not use this option, and a server has its own. Default: no.
        hold_days: The number of days for which cleanups keep the versions of tables that streams read, counted from the
            last time that a stream read them: choose as many days as checkpoints are wanted. These versions get tags
            such as ``stoker.until.2026-12-24.v7``, which ``tags`` leaves out. With 0, no version is held. A server has
            its own option. Default: 30.

    Raises:
        InvalidRequestError: The target has an unsupported scheme, an option is malformed, ``cache_dir`` cannot be used,
            or ``cache_dir``, ``direct_io`` or ``hold_days`` is given for a server; or a lake is to be opened in this
            process, and the package ``stoker-engine`` is not installed.
        UnavailableError: The server cannot be reached.

    Example:
        >>> lake = stoker.connect("memory://")
        >>> lake.tables()
        []
    """
    if not isinstance(target, str):
        raise InvalidRequestError(f"target is a {type(target).__name__}; it must be text: a path or a URL")
    if len(target) > _TARGET_MAX:
        raise InvalidRequestError(f"target has {len(target)} characters; paths and URLs have at most {_TARGET_MAX}")
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise InvalidRequestError(f"storage_options is a {type(storage_options).__name__}; it must be a dict of text")
    options = {
        "token": token,
        "tls_ca": tls_ca,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "storage_options": dict(storage_options) if storage_options is not None else None,
        "retry_budget_secs": whole_or_none("retry_budget_secs", retry_budget_secs, 0),
        "num_endpoints": whole_or_none("num_endpoints", num_endpoints, 1, _ENDPOINTS_MAX),
        "memory_budget_bytes": whole_or_none("memory_budget_bytes", memory_budget_bytes, 1),
        "cache_dir": None if cache_dir is None else os.fspath(cache_dir),
        "cache_bytes": whole_or_none("cache_bytes", cache_bytes, 1),
        "direct_io": bool(direct_io),
        "hold_days": whole_or_none("hold_days", hold_days, 0, _HOLD_DAYS_MAX),
    }
    lake = Lake(target, options)
    lake._native.open()
    return lake


class Lake:
    """A lake of tables. Made by :func:`connect`.

    A lake may be pickled, and its options (the token too) are pickled with it. It may be used after ``fork``.
    """

    def __init__(self, target: str, options: Mapping[str, Any]) -> None:
        self._target = target
        self._options = dict(options)
        self._native = _native.Connection(target, **self._options)

    @property
    def target(self) -> str:
        """The target that :func:`connect` was given."""
        return self._target

    def tables(self) -> list[str]:
        """Returns the names of all tables, sorted.

        Example:
            >>> lake.tables()
            ['digits']
        """
        return self._native.tables()

    def table(self, name: str, *, version: int | None = None, tag: str | None = None) -> Table:
        """Returns a table at a version, at a tag, or at its newest version.

        Raises:
            NotFoundError: The table, version or tag does not exist; the message lists those that do.
            InvalidRequestError: The name is malformed, the version is not a whole number, or both version and tag are
                given.

        Example:
            >>> lake.table("digits").num_rows
            20
        """
        return Table(self, self._native.table(name, whole_or_none("version", version, 0), tag))

    def sql(self, sql: str, params: Sequence[Any] | None = None, *, approximate: bool = False) -> Query:
        """Plans a ``SELECT`` and returns it as a :class:`Query`.

        Args:
            sql: DataFusion's SQL, with ``table AT (VERSION => 3)``, ``AT (TAG => 'v1')`` and
                ``vector_search(table, column, query, k => 10)``, ``text_search(table, column, words, k => 10)`` and
                ``hybrid_search(table, vector, query, text, words, k => 10)``; ``row_ids(table)`` has a column
                ``row_id`` with the addresses of the rows.
            params: The values of ``$1``, ``$2``, …, or of ``?`` from left to right: None, bool, int, float, str, bytes,
                a date, datetime, time or timedelta, a Decimal, a UUID (as text), a list or an array of these, or a
                pyarrow scalar. Lists of numbers are vectors, or sets for ``x IN ($1)`` and ``x = ANY($1)``. Integers
                from 2**63 are ``BIGINT UNSIGNED``, from 2**64 ``DECIMAL(38, 0)``; datetimes with a time zone are UTC.
            approximate: Whether an index may answer ``ORDER BY`` a distance with ``LIMIT``, such as
                ``ORDER BY embedding <-> $1 LIMIT 10``. A row may then be missing; distances are exact. Streams of the
                query are exact in any case. Default: no.

        Raises:
            InvalidRequestError: Malformed SQL, an unknown column, a statement that is not one ``SELECT``, missing
                parameters.
            NotFoundError: A table, version or tag does not exist.

        Example:
            >>> lake.sql("SELECT count(*) AS n FROM digits WHERE label = $1", params=[3]).to_arrow().to_pylist()
            [{'n': 2}]
        """
        query = Query(self, sql, _values(params), approximate=bool(approximate))
        query._check()
        return query

    def execute(
        self, sql: str, params: Sequence[Any] | None = None, *, progress: ProgressCallback | None = None
    ) -> Outcome:
        """Executes one statement that changes the lake, such as ``UPDATE`` or ``CREATE INDEX``.

        A statement becomes one commit, or none: if it fails, or if it is interrupted before its commit, the lake is as
        before. It is sent once; if the answer of a server is lost, the message of the error says how to find out
        whether it took effect. A server executes statements if it was started with ``--allow-writes``, for tokens with
        the role ``write``.

        Args:
            sql: The statement: ``INSERT``, ``UPDATE``, ``DELETE``, ``MERGE``, ``TRUNCATE``; ``CREATE TABLE``,
                ``ALTER TABLE``, ``DROP TABLE``; ``CREATE VIEW``, ``DROP VIEW``; ``CREATE INDEX``, ``DROP INDEX``,
                ``OPTIMIZE INDEX``; ``CREATE TAG``, ``DROP TAG``; ``VACUUM``.
            params: The values of ``$1``, ``$2``, …, as for :meth:`sql`. ``rows($1)`` reads a pyarrow array of structs
                as a table.
            progress: Is called with a :class:`StatementProgress`, a few times in a second while the statement runs. If
                it raises, the statement is cancelled.

        Raises:
            InvalidRequestError: A query, malformed SQL, an unknown column or option, or a column of another type.
            NotFoundError: A table, view, index or tag does not exist.
            AlreadyExistsError: A table, view, index or tag of the name exists.
            PermissionDeniedError: The server or the role of the token does not allow it.
            UnavailableError: Other commits came in between too often, or the answer was lost.

        Example:
            >>> outcome = lake.execute("CREATE INDEX ON digits (label)")
            >>> outcome.table, outcome.num_rows
            ('digits', 20)
            >>> lake.execute("UPDATE digits SET label = 0 WHERE label > $1", [7]).num_rows
            4
        """
        values = list(_values(params))
        if progress is not None and not callable(progress):
            raise InvalidRequestError(f"progress is a {type(progress).__name__}; it must be a function")
        tell = None if progress is None else _telling(progress)
        outcome = self._native.execute(sql, values, tell)
        return Outcome(**_known(outcome, Outcome))

    def resume(
        self,
        state: Mapping[str, Any] | str,
        *,
        batch_size: int | None = None,
        global_batch_size: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        mesh: Any = None,
        process_group: Any = None,
        **options: Any,
    ) -> Stream:
        """Returns the stream of a state, at the state's position, with the same rows even if the tables have changed.

        The state pins query, parameters, snapshots, seed and order; none of them is given here.
        ``lake.resume(state, batch_size=256).torch()`` is the loader for PyTorch. With a process group, this is a
        collective call, and ranks with another state or another batch size are refused.

        Args:
            state: The return value of :meth:`Stream.state_dict`, or its JSON text.
            batch_size: As for :meth:`Query.stream`, like all options below.
            global_batch_size: Rows of all ranks per batch, instead of ``batch_size``.
            rank: The rank of this process.
            world_size: The number of ranks.
            mesh: A mesh of the data-parallel dimensions, instead of both.
            process_group: A group of the ranks that share the rows, instead of all three.
            **options: ``last_batch``, ``drop_last``, ``memory_budget_bytes``, ``bad_rows``, ``max_bad_share``,
                ``verify``, ``retry_budget_secs``, ``compression``, ``run_id``, ``run_log``, ``decode``,
                ``decode_threads``, ``evaluation``.

        Raises:
            InvalidRequestError: This is not a state, or an option does not fit.
            NotFoundError: The lake does not know the stream, or its snapshots were removed.
            StateMismatchError: The ranks have different states.

        Example:
            >>> state = lake.sql("SELECT label FROM digits").stream(batch_size=4).state_dict()
            >>> stream = lake.resume(state, batch_size=5)
            >>> sum(batch.num_valid for batch in stream)
            20
        """
        return resumed(
            self,
            state,
            (rank, world_size, mesh, process_group),
            {"batch_size": batch_size, "global_batch_size": global_batch_size, **options},
        )

    def create_table(
        self,
        name: str,
        data: Any,
        *,
        mode: Literal["create", "create_or_append", "overwrite"] = "create",
        encoded_images: Sequence[str] = (),
        rows_per_fragment: int | None = None,
    ) -> Table:
        """Writes a table in one atomic commit; needs a connection to the lake itself.

        Args:
            name: Letters, digits, ``_``, ``-`` and ``.``.
            data: A dict of columns, a pandas DataFrame, or anything that exports an Arrow stream, which is read with
                bounded memory. In a dict, two-dimensional arrays of floats become vectors (``FixedSizeList``), and
                other arrays of two or more dimensions become tensors (``arrow.fixed_shape_tensor``); the first
                dimension counts rows.
            mode: What to do if the table exists: ``"create"`` fails, ``"create_or_append"`` adds rows, ``"overwrite"``
                replaces them.
            encoded_images: Binary columns of JPEG, PNG or WebP files. Each value must begin as such a file, or be null;
                it is not decoded. Of a struct column, as Hugging Face stores images, the member ``bytes`` is written.
            rows_per_fragment: The maximum number of rows per data file. Default: 1,048,576.

        Returns:
            The table at its new version.

        Raises:
            AlreadyExistsError: The table exists.
            InvalidRequestError: The data does not fit; the message names the column and, where there is one, the row.

        Example:
            >>> import numpy as np
            >>> table = lake.create_table("blank", {"image": np.zeros((3, 1, 8, 8), np.uint8), "label": [0, 1, 2]})
            >>> table.num_rows, str(table.schema.field("label").type)
            (3, 'int64')
        """
        request: _native.WriteRequest = {
            "table": name,
            "mode": mode,
            "rows_per_fragment_max": whole_or_none("rows_per_fragment", rows_per_fragment, 1),
        }
        self._native.write(arrow_stream(data, encoded_images), request)
        return self.table(name)

    def drop_table(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> Outcome:
        """Removes a table with all of its versions, its tags and its indexes.

        Args:
            name: The name of the table.
            if_exists: Whether a table that does not exist is no error.
            cascade: Whether the table is removed although streams hold versions of it; these streams then fail.

        Raises:
            NotFoundError: The table does not exist; the message lists those that do.
            StokerError: As for :meth:`execute`; and streams hold versions of the table.

        Example:
            >>> str(lake.drop_table("nothing", if_exists=True))
            'DROP TABLE of table nothing: there is no such table'
        """
        exists, all_of_it = ("IF EXISTS " if if_exists else ""), (" CASCADE" if cascade else "")
        return self.execute(f"DROP TABLE {exists}{named('name', name)}{all_of_it}")

    def create_view(self, name: str, query: str, *, replace: bool = False) -> Outcome:
        """Stores a query under a name, which other queries and streams then read like a table.

        The tables of the query are read at their newest versions, unless it names versions. Streams keep the query and
        the versions that they began with.

        Args:
            name: The name of the view; no table has it.
            query: A ``SELECT`` without parameters.
            replace: Whether a view of the name is replaced. Default: it is an error.

        Raises:
            AlreadyExistsError: A view of the name exists.
            InvalidRequestError: The query cannot be planned, reads the view itself, or a table has the name.
            StokerError: As for :meth:`execute`.

        Example:
            >>> outcome = lake.create_view("small", "SELECT * FROM digits WHERE label < 3")
            >>> lake.sql("SELECT count(*) AS n FROM small").to_arrow().to_pylist()
            [{'n': 6}]
        """
        if not isinstance(query, str):
            raise InvalidRequestError(f"query is a {type(query).__name__}; it must be the text of a SELECT")
        create = "CREATE OR REPLACE VIEW" if replace else "CREATE VIEW"
        return self.execute(f"{create} {named('name', name)} AS {query}")

    def drop_view(self, name: str, *, if_exists: bool = False) -> Outcome:
        """Removes a view. Its tables stay, and so do streams of the view.

        Args:
            name: The name of the view.
            if_exists: Whether a view that does not exist is no error.

        Raises:
            NotFoundError: The view does not exist; the message lists those that do.
            StokerError: As for :meth:`execute`.
        """
        exists = "IF EXISTS " if if_exists else ""
        return self.execute(f"DROP VIEW {exists}{named('name', name)}")

    def streams(self) -> list[dict[str, Any]]:
        """Returns the open streams of the server, or of this connection, with client, epoch, rank, rows and bytes.

        A server answers this to tokens with the role ``admin``.

        Raises:
            PermissionDeniedError: The token's role does not allow it.
        """
        return self._native.streams()

    def run(self, run_id: str) -> Run:
        """Returns a training run by its name, to look up its past steps; see ``run_log`` of :meth:`Query.stream`.

        Raises:
            InvalidRequestError: The name is malformed.
            NotFoundError: The run has no log.
        """
        run = Run(self, run_id)
        if not run.entries():
            raise NotFoundError(
                f"run {run_id} has no log in {self._target}; "
                f"a stream with run_id={run_id!r} and run_log=True writes one"
            )
        return run

    def __reduce__(self) -> tuple[type[Lake], tuple[str, dict[str, Any]]]:
        return Lake, (self._target, self._options)

    def verify(self, receipts: Sequence[Mapping[str, Any]]) -> list[EpochVerdict]:
        """Checks that each row of the epochs in the receipts was delivered exactly once.

        Args:
            receipts: The return values of :meth:`Stream.receipt` on every rank; for a resumed epoch, those from before
                and after the interruption.

        Raises:
            InvalidRequestError: These are not receipts, or not of one stream.
            NotFoundError: The lake does not know the stream.
        """
        if isinstance(receipts, str | bytes | Mapping):
            raise InvalidRequestError(f"cannot use the receipt: receipts is a {type(receipts).__name__}, not a list")

        def runs(positions: Mapping[str, Any]) -> list[tuple[int, int]]:
            return [(run["start"], run["end"]) for run in positions["runs"]]

        verdicts = self._native.verify(receipts)
        return [
            EpochVerdict(
                epoch=verdict["epoch"],
                num_rows=verdict["num_rows"],
                num_missing=verdict["missing"]["count"],
                missing=runs(verdict["missing"]),
                num_repeated=verdict["repeated"]["count"],
                repeated=runs(verdict["repeated"]),
                wrong=verdict["wrong"],
                num_skipped=verdict["skipped"]["count"],
                skipped=runs(verdict["skipped"]),
                substituted=verdict["substituted"],
                num_dropped=verdict["dropped"]["count"],
                dropped=runs(verdict["dropped"]),
            )
            for verdict in verdicts
        ]

    def _repr_html_(self) -> str:
        from stoker._html import lake_html

        return lake_html(self)

    def __repr__(self) -> str:
        return f"Lake({self._target!r})"


@dataclass(frozen=True)
class VersionInfo:
    """A version of a table.

    Attributes:
        version: The version number.
        timestamp: The time of its commit, in UTC.
        tags: The tags that name it.
    """

    version: int
    timestamp: datetime
    tags: list[str]


@dataclass(frozen=True)
class EpochVerdict:
    """The verdict of receipts on one epoch.

    Attributes:
        epoch: The epoch, zero-based.
        num_rows: The number of rows of the epoch.
        num_missing: The number of positions that no rank got.
        missing: The first ranges of these positions, as (start, end).
        num_repeated: The number of positions that ranks got more than once.
        repeated: The first ranges of these positions, as (start, end).
        wrong: Parts of receipts whose rows are not those of their positions.
        num_skipped: The number of positions that were skipped on purpose.
        skipped: The first ranges of these positions, as (start, end).
        substituted: The bad rows that another row replaced: position, addresses and reason.
        num_dropped: The number of positions at the end of the epoch that fill no global batch and were dropped.
        dropped: The ranges of these positions, as (start, end).
    """

    epoch: int
    num_rows: int
    num_missing: int
    missing: list[tuple[int, int]]
    num_repeated: int
    repeated: list[tuple[int, int]]
    wrong: list[dict[str, Any]]
    num_skipped: int
    skipped: list[tuple[int, int]]
    substituted: list[dict[str, Any]]
    num_dropped: int = 0
    dropped: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_exactly_once(self) -> bool:
        """Whether each row was delivered exactly once, apart from skipped, dropped and bad rows."""
        return not (self.num_missing or self.num_repeated or self.wrong)


@dataclass(frozen=True)
class ColumnLayout:
    """How a column is stored.

    Attributes:
        name: The name of the column.
        data_type: The column's Arrow type.
        kind: The kind of its values: tensor, vector, encoded image, text, scalar, ….
        heavy: Whether the column is heavy: filters do not read it unless a predicate names it, and streams fetch its
            values separately.
        bytes_per_row: The number of bytes per row; for variable width, the average on disk.
        num_chunks: The number of chunks over all fragments.
        chunk_bytes_max: The number of bytes of the largest chunk.
        bytes: The number of bytes on disk.
        dense: Whether every chunk is plain row-major bytes, which are read without decoding.
        why_not_dense: The reason why the column is not dense.
        compression: The encodings found.
        unchecked_fragments: The number of fragments in which the values have no checksums, so that damage is not
            noticed.
    """

    name: str
    data_type: str
    kind: str
    heavy: bool
    bytes_per_row: int | None
    num_chunks: int
    chunk_bytes_max: int
    bytes: int
    dense: bool
    why_not_dense: str | None
    compression: str
    unchecked_fragments: int = 0

    @property
    def verdict(self) -> Literal["dense", "decoder", "light"]:
        """How the column's bytes are read.

        ``"dense"``: from the files directly into batches. ``"decoder"``: through Lance's decoder, although the column
        is heavy; :meth:`Table.doctor` says why. ``"light"``: through the decoder too, which is cheap for few bytes.
        """
        if self.dense:
            return "dense"
        return "decoder" if self.heavy else "light"


@dataclass(frozen=True)
class Finding:
    """A property of a table's layout that costs speed or safety. Its ``str()`` is a paragraph.

    Attributes:
        column: The name of the column; None for the table as a whole.
        code: A stable code for programs: ``"nulls"``, ``"no_checksums"``, ….
        what: What was found, and in which fragments.
        cost: What it costs.
        remedy: What to do about it.
        example: Lines of Python that do this, where ``lake`` is a connection to the lake itself; None if there are no
            such lines.
    """

    column: str | None
    code: str
    what: str
    cost: str
    remedy: str
    example: str | None

    def __str__(self) -> str:
        place = "table" if self.column is None else f"column {self.column}"
        lines = [f"{place} [{self.code}]: {self.what}", f"  costs: {self.cost}", f"  do this: {self.remedy}"]
        return "\n".join(lines + [f"    {line}" for line in (self.example or "").splitlines()])


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

    def describe(self) -> list[ColumnLayout]:
        """Describes how each column is stored."""
        known = {field.name for field in fields(ColumnLayout)}
        layouts = self._lake._native.describe(self.name, self.version)
        return [ColumnLayout(**{key: value for key, value in layout.items() if key in known}) for layout in layouts]

    def doctor(self) -> list[Finding]:
        """Returns what costs speed or safety in the table's layout, and what to do about it.

        Findings are, for example: heavy columns that are read through Lance's decoder, with the reason; rows without
        checksums; fragments that are small or have many deleted rows. The call reads the footers of all data files.

        Example:
            >>> lake.table("digits").doctor()
            []
        """
        known = {field.name for field in fields(Finding)}
        findings = self._lake._native.doctor(self.name, self.version)["findings"]
        return [Finding(**{key: value for key, value in finding.items() if key in known}) for finding in findings]

    def append(self, data: Any, *, rows_per_fragment: int | None = None) -> Table:
        """Adds rows to the newest version in one atomic commit; this object keeps its version.

        Args:
            data: As for :meth:`Lake.create_table`, with the table's columns in any order.
            rows_per_fragment: The maximum number of rows per data file.

        Returns:
            The table at its new version.

        Raises:
            InvalidRequestError: The data does not fit the table; the message names the column.
        """
        schema = self.schema
        shapes = zip(schema, column_shapes(schema), strict=True)
        images = [field.name for field, shape in shapes if shape.kind == "encoded_image"]
        stream = arrow_stream(data, images)
        request: _native.WriteRequest = {
            "table": self.name,
            "mode": "append",
            "rows_per_fragment_max": whole_or_none("rows_per_fragment", rows_per_fragment, 1),
        }
        self._lake._native.write(stream, request)
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
        sql, all_params = update_statement(self.name, values, expressions, where, _values(params))
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
        data_type: str | None = None,
        *,
        value: str | None = None,
        params: Sequence[Any] | None = None,
        progress: ProgressCallback | None = None,
    ) -> Table:
        """Adds a column in one atomic commit; the other columns are not written again.

        Args:
            name: The name of the column.
            data_type: Its type in SQL, such as ``"BIGINT"``, ``"TEXT"`` or ``"FLOAT[128]"``. Default: that of the
                expression.
            value: An expression of SQL for its values in the rows that exist, such as ``"label + 1"``. Default: NULL.
            params: The values of ``$1``, ``$2``, … in it, as for :meth:`Lake.sql`.
            progress: As for :meth:`Lake.execute`.

        Returns:
            The table at its new version.

        Raises:
            InvalidRequestError: The column exists, or type and expression do not fit.
            StokerError: As for :meth:`Lake.execute`.

        Example:
            >>> table = lake.table("digits").add_column("is_even", value="label % 2 = 0")
            >>> str(table.schema.field("is_even").type)
            'bool'
        """
        sql = f"ALTER TABLE {quoted(self.name)} ADD COLUMN {quoted_column('name', name)}"
        self._lake.execute(sql + typed(data_type, value), params, progress=progress)
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
        if not isinstance(name, str):
            raise InvalidRequestError(f"name is a {type(name).__name__}; it must be the name of an index")
        self._lake.execute(f"DROP INDEX {quoted(name)} ON {quoted(self.name)}")
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
        if name is not None and not isinstance(name, str):
            raise InvalidRequestError(f"name is a {type(name).__name__}; it must be the name of an index")
        index = "" if name is None else f"{quoted(name)} "
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


def _values(params: Sequence[Any] | None) -> Sequence[Any]:
    """Returns the values of parameters.

    Raises:
        InvalidRequestError: They are one text.
    """
    if isinstance(params, str | bytes | bytearray):
        raise InvalidRequestError(f"params is {type(params).__name__}; it must be a list of the values of $1, $2, …")
    return [] if params is None else params


def _telling(progress: ProgressCallback) -> Callable[[dict[str, Any]], object]:
    """Returns a function that calls ``progress`` with what the native module tells."""

    def tell(told: dict[str, Any]) -> object:
        return progress(StatementProgress(**_known(told, StatementProgress)))

    return tell


def _known(values: Mapping[str, Any], kind: type[Outcome] | type[StatementProgress]) -> dict[str, Any]:
    """Returns the values that a class has as fields; a later server may send more."""
    names = {known.name for known in fields(kind)}
    return {name: value for name, value in values.items() if name in names}
