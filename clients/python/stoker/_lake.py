"""Lakes and tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import Any, Literal

import pyarrow as pa

from stoker import _native
from stoker._column_shapes import column_shapes
from stoker._data import arrow_stream
from stoker._errors import InvalidRequestError, NotFoundError
from stoker._numbers import whole, whole_or_none
from stoker._query import Query
from stoker._resume import resumed
from stoker._run import Run
from stoker._stream import Stream

__all__ = ["ColumnLayout", "EpochVerdict", "Finding", "Lake", "Table", "VersionInfo", "connect"]

IndexKind = Literal["ivf_flat", "ivf_pq", "btree", "bitmap", "inverted"]
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

    def sql(self, sql: str, params: Sequence[Any] | None = None) -> Query:
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

        Raises:
            InvalidRequestError: Malformed SQL, an unknown column, a statement that is not one ``SELECT``, missing
                parameters.
            NotFoundError: A table, version or tag does not exist.

        Example:
            >>> lake.sql("SELECT count(*) AS n FROM digits WHERE label = $1", params=[3]).to_arrow().to_pylist()
            [{'n': 2}]
        """
        if isinstance(params, str | bytes | bytearray):
            raise InvalidRequestError(
                f"params is {type(params).__name__}; it must be a list of the values of $1, $2, …"
            )
        query = Query(self, sql, [] if params is None else params)
        query._check()
        return query

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

    def create_index(
        self,
        column: str,
        *,
        kind: IndexKind,
        metric: Metric = "l2",
        num_partitions: int | None = None,
        num_sub_vectors: int | None = None,
    ) -> Table:
        """Builds an index over a column of the newest version, and replaces an existing one.

        Args:
            column: A vector column for ``ivf_flat`` and ``ivf_pq``, a text column for ``inverted``, otherwise a scalar
                column.
            kind: The kind of index.
            metric: The distance of a vector index; searches with another distance do not use the index.
            num_partitions: The number of partitions of the vector space. Default: one per 4,096 rows, at most 65,536.
            num_sub_vectors: The number of parts of a vector for ``ivf_pq``, which must divide its size. Default: 16.

        Returns:
            The table at its new version.

        Raises:
            InvalidRequestError: The column does not exist, its type does not fit, or a number is out of range.
        """
        request: _native.IndexRequest = {
            "table": self.name,
            "column": column,
            "kind": kind,
            "metric": metric,
            "num_partitions": whole_or_none("num_partitions", num_partitions, 1, _PARTITIONS_MAX),
            "num_sub_vectors": whole_or_none("num_sub_vectors", num_sub_vectors, 1, _SUB_VECTORS_MAX),
        }
        self._lake._native.create_index(request)
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

    def __repr__(self) -> str:
        return f"Table({self.name!r}, version={self.version}, rows={self.num_rows})"

    def __reduce__(self) -> tuple[Any, tuple[Lake, str, int]]:
        return _reopened, (self._lake, self.name, self.version)


def _reopened(lake: Lake, name: str, version: int) -> Table:
    return lake.table(name, version=version)
