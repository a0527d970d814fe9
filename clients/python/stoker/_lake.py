"""Lakes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa

from stoker import _native
from stoker._column_compression import ColumnCodecs
from stoker._data import arrow_stream
from stoker._errors import InvalidRequestError, NotFoundError
from stoker._ingest import IngestPreview, IngestReport, Progress, Sources, ingest
from stoker._names import quoted_table
from stoker._numbers import whole_or_none
from stoker._query import Query
from stoker._reports import EpochVerdict, known_fields
from stoker._resume import resumed
from stoker._run import Run
from stoker._statement import Outcome, ProgressCallback, given_params, telling
from stoker._stream import Stream
from stoker._table import Table
from stoker._write import write

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from stoker._ingest import IngestOptions

__all__ = ["Lake", "connect"]

#: The maximum characters of a target.
_TARGET_MAX = 8192
#: The maximum number of endpoints over which a server sends one stream.
_ENDPOINTS_MAX = 256
#: The maximum number of days for which versions are held.
_HOLD_DAYS_MAX = 3650


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
        query = Query(self, sql, given_params(params), approximate=bool(approximate))
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
                ``ALTER TABLE``, ``RESTORE``, ``DROP TABLE``; ``CREATE VIEW``, ``DROP VIEW``; ``CREATE INDEX``,
                ``DROP INDEX``, ``OPTIMIZE INDEX``; ``CREATE TAG``, ``DROP TAG``; ``CREATE BRANCH``,
                ``DROP BRANCH``; ``OPTIMIZE``, ``VACUUM``.
            params: The values of ``$1``, ``$2``, …, as for :meth:`sql`. ``rows($1)`` reads a pyarrow array of structs
                as a table.
            progress: Is called with a :class:`StatementProgress`, a few times in a second while the statement runs. If
                it raises, the statement is cancelled.

        Raises:
            InvalidRequestError: A query, malformed SQL, an unknown column or option, or a column of another type.
            NotFoundError: A table, view, index, tag or branch does not exist.
            AlreadyExistsError: A table, view, index, tag or branch of the name exists.
            PermissionDeniedError: The server or the role of the token does not allow it.
            UnavailableError: Other commits came in between too often, or the answer was lost.

        Example:
            >>> outcome = lake.execute("CREATE INDEX ON digits (label)")
            >>> outcome.table, outcome.num_rows
            ('digits', 20)
            >>> lake.execute("UPDATE digits SET label = 0 WHERE label > $1", [7]).num_rows
            4
        """
        values = list(given_params(params))
        if progress is not None and not callable(progress):
            raise InvalidRequestError(f"progress is a {type(progress).__name__}; it must be a function")
        tell = None if progress is None else telling(progress)
        outcome = self._native.execute(sql, values, tell)
        return Outcome(**known_fields(Outcome, outcome))

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
        videos: Sequence[str] = (),
        null_masks: Sequence[str] = (),
        compression: ColumnCodecs | None = None,
        rows_per_fragment: int | None = None,
        page_bytes: int | None = None,
        schema: pa.Schema | None = None,
        key: str | None = None,
    ) -> Table:
        """Writes a table in one atomic commit, of a lake in this process or through a server.

        A server takes rows if it was started with ``--allow-writes``, for tokens with the role ``write``. It writes
        them as they come. If its answer is lost, it or another server is asked whether the rows are there, and rows
        that can be read again are sent again: they are written once. Rows of an iterator cannot be sent again; the
        error then has the key with which the call is repeated.

        Args:
            name: Letters, digits, ``_``, ``-`` and ``.``.
            data: A dict of columns; a list or an iterator of rows, which are dicts, or of record batches; a pandas
                DataFrame; a ``datasets.Dataset``, whose features decide the columns; or anything that exports an Arrow
                stream. Streams and iterators are read with bounded memory.

                In a dict, two-dimensional arrays of floats become vectors (``FixedSizeList``), and other arrays of two
                or more dimensions become tensors (``arrow.fixed_shape_tensor``); the first dimension counts rows. A
                list of arrays or tensors, and the arrays of rows, become the same if all have one shape; otherwise they
                become lists or, with several dimensions, ``arrow.variable_shape_tensor``. Images of Pillow become
                files: the file from which one was opened if it was not loaded yet, and PNG files otherwise. Categories
                of pandas and Polars become their values.

                The first 1,024 rows of an iterator decide its columns and their types. A key that a row lacks is null.
            mode: What to do if the table exists: ``"create"`` fails, ``"create_or_append"`` adds rows, ``"overwrite"``
                replaces them.
            encoded_images: Binary columns of JPEG, PNG or WebP files. Each value must begin as such a file, or be null;
                it is not decoded. Of a struct column, as Hugging Face stores images, the member ``bytes`` is written.
            videos: Binary columns of MP4, MOV, Matroska or WebM files, or null. An index of the frames of each file is
                stored in the column ``<column>_index``, with checksums, so that loops with a :class:`VideoClip` read
                only the frames of a clip. Files are not decoded; one without an index is refused. Rows that are written
                later get indexes, too. Of a struct column, the member ``bytes`` is written.
            null_masks: Columns of tensors or vectors that may have null rows. A null row is written as zeros, so that
                the column can be read without decoding, and the boolean column ``<column>_valid`` has the mask. Loops
                that select both have it in :meth:`Batch.is_valid`. Default: null rows of tensors, and of vectors of
                more than 1 KiB, are refused.
            compression: The codec of each column that is compressed: ``"pco"``, ``"zstd"``, ``"byte_stream_split"``,
                ``"lz4"``, or a :class:`ColumnCompression` with a level. Each row of tensors or vectors is compressed on
                its own; rows of at most 4 KiB share a dictionary where that helps. Streams decode the rows on native
                threads, to the arrays that they were; queries get them by ``decompress(column)``. Other columns take
                ``"zstd"`` and ``"lz4"``, which changes nothing but their size. Rows that are written later are
                compressed in the same way. ``"float16"``, ``"bfloat16"`` and ``"jpeg"`` lose something, and
                ``describe`` tells the largest error. Default: none.
            rows_per_fragment: The maximum number of rows per data file. Default: 1,048,576.
            page_bytes: The maximum number of bytes of a chunk of a heavy column: what Lance reads at once, and the unit
                in which streams read. A longer row is a chunk of its own. Default: 8,257,536.
            schema: The types of columns of Python values and of rows, for example of columns that begin with nulls, or
                of lists that happen to have one length. Columns that it lacks get the types of their values.
            key: A name for this write, of up to 256 characters. A call with a key under which rows were written to the
                table before writes nothing, and returns the table; so does each repetition, also by other processes, as
                long as no cleanup removed the version. The key is looked for in the versions of the table. Default:
                none; calls with the same rows write them again.

        Returns:
            The table at its new version.

        Raises:
            AlreadyExistsError: The table exists.
            InvalidRequestError: The data does not fit; the message names the column and, where there is one, the row,
                counted from 0. What an iterator raises becomes the cause of such an error. Nothing is written.
            PermissionDeniedError: The server or the role of the token does not allow it.
            UnavailableError: The server cannot be reached any more, and rows of an iterator cannot be sent again.

        Example:
            >>> import numpy as np
            >>> rows = [{"id": number, "point": np.ones(number % 3)} for number in range(5)]
            >>> str(lake.create_table("points", iter(rows)).schema.field("point").type)
            'list<item: double>'
            >>> table = lake.create_table("blank", {"image": np.zeros((3, 1, 8, 8), np.uint8), "label": [0, 1, 2]})
            >>> table.num_rows, str(table.schema.field("label").type)
            (3, 'int64')
        """
        if schema is not None and not isinstance(schema, pa.Schema):
            raise InvalidRequestError(f"schema is a {type(schema).__name__}; it must be a pyarrow.Schema")
        source = arrow_stream(data, encoded_images, null_masks, videos=videos, codecs=compression, hints=schema)
        write(self, name, source, mode=mode, key=key, rows_per_fragment=rows_per_fragment, page_bytes=page_bytes)
        return self.table(name)

    @overload
    def ingest(
        self,
        sources: Sources,
        table: str,
        *,
        kind: str | None = None,
        dry_run: Literal[False] = False,
        progress: Progress = None,
        **options: Unpack[IngestOptions],
    ) -> IngestReport: ...

    @overload
    def ingest(
        self,
        sources: Sources,
        table: str,
        *,
        kind: str | None = None,
        dry_run: Literal[True],
        progress: Progress = None,
        **options: Unpack[IngestOptions],
    ) -> IngestPreview: ...

    def ingest(
        self,
        sources: Sources,
        table: str,
        *,
        kind: str | None = None,
        dry_run: bool = False,
        progress: Progress = None,
        **options: Any,
    ) -> IngestReport | IngestPreview:
        """Writes files into a table in one atomic commit: the command ``stoker ingest``, in this process.

        The kind of the sources is found as the command finds it. A call that was interrupted, by Ctrl-C for example, is
        continued by the same call. It needs a connection to the lake itself, and the engine.

        Args:
            sources: A file or a folder, or a list of them, which are one dataset.
            table: The table.
            kind: The kind of the sources, instead of the one that is recognised: ``"imagefolder"``, ``"parquet"``,
                ``"webdataset"``, ….
            dry_run: Whether nothing is written: the call then returns what would be written. It does not look at the
                table.
            progress: A function that is called with an :class:`IngestProgress` a few times in a second; if it raises,
                the ingest ends. ``True`` shows a line on standard error, and ``False`` shows none. Default: a line in
                terminals and notebooks.
            **options: The options of the command with underscores in their names, such as ``mode="append"``,
                ``on_error="skip"``, ``size=(224, 224)``, ``columns=["id"]``, ``rename={"a.b": "b"}``,
                ``cast={"label": "int32"}``, ``image="photo"``. Repeatable options take lists, and those of the form
                ``NAME=VALUE`` take dicts. ``stoker ingest --help`` tells all of them.

        Returns:
            A report, with all that was skipped; with ``dry_run``, an :class:`IngestPreview`.

        Raises:
            InvalidRequestError: An option does not exist or does not fit the kind, sources have no kind, or a value
                does not fit its column.
            NotFoundError: A source or the table to append to does not exist.
            AlreadyExistsError: The table exists, and ``mode`` is not given.
            DataCorruptError: A file or a row cannot be read, and ``on_error`` is not ``"skip"``.

        Example:
            >>> import pathlib, tempfile
            >>> folder = pathlib.Path(tempfile.mkdtemp())
            >>> _ = (folder / "rows.csv").write_text(chr(10).join(["id,name", "1,a", "2,b"]))
            >>> lake.ingest(folder, "rows", dry_run=True).schema.names
            ['id', 'name']
            >>> report = lake.ingest(folder, "rows")
            >>> report.kind, report.num_rows, report.version
            ('csv', 2, 1)
        """
        return ingest(self, sources, table, kind, dry_run, progress, options)

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
        return self.execute(f"DROP TABLE {exists}{quoted_table('name', name)}{all_of_it}")

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
        return self.execute(f"{create} {quoted_table('name', name)} AS {query}")

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
        return self.execute(f"DROP VIEW {exists}{quoted_table('name', name)}")

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
