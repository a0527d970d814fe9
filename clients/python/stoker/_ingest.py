"""Ingests of files: the Python form of the command ``stoker ingest``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import pyarrow as pa

from stoker._errors import InvalidRequestError, StokerError
from stoker._progress_line import progress_line
from stoker._reports import known_fields

if TYPE_CHECKING:
    from stoker._lake import Lake

__all__ = [
    "IngestOptions",
    "IngestPreview",
    "IngestProgress",
    "IngestReport",
    "IngestSkipped",
    "Progress",
    "Sources",
    "ingest",
]

Sources = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

#: An option of the command in a message, with its value: ``--on-error skip``.
_OPTION = re.compile(r"--([a-z][a-z-]*)(?:[ =](append|create|overwrite|skip|fail|sync))?")


@dataclass(frozen=True)
class IngestProgress:
    """How far an ingest is. Its ``str()`` is one line.

    Attributes:
        files_done: The source files that are done, also those that were skipped.
        files_total: All source files.
        rows_done: The rows that were written.
        bytes_done: The bytes of the source files that are done.
        bytes_total: The bytes of all source files.
        num_skipped: The files, parts of files and rows that were skipped.
    """

    files_done: int
    files_total: int
    rows_done: int
    bytes_done: int
    bytes_total: int
    num_skipped: int

    def __str__(self) -> str:
        skipped = f", {self.num_skipped:,} skipped" if self.num_skipped else ""
        return (
            f"{_size(self.bytes_done)} of {_size(self.bytes_total)}, {self.files_done:,} of {self.files_total:,} "
            f"files, {self.rows_done:,} rows{skipped}"
        )


def _size(num_bytes: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if num_bytes >= 1 << shift:
            return f"{num_bytes / (1 << shift):.2f} {unit}"
    return f"{num_bytes} B"


#: Whether progress is shown, or a function that is called with it.
Progress = bool | Callable[[IngestProgress], object] | None


@dataclass(frozen=True)
class IngestSkipped:
    """A file, a part of one, or a row that was left out.

    Attributes:
        path: The file.
        row: The row of the file, from 0; ``None`` for a file, and for a part that the reason names.
        reason: Why it was left out.
        num_more: The number of further rows of the file that were left out and are not listed.
    """

    path: str
    row: int | None
    reason: str
    num_more: int

    def __str__(self) -> str:
        row = "" if self.row is None else f" row {self.row}"
        more = f"; {self.num_more} further rows of this file were skipped" if self.num_more else ""
        return f"{self.path}{row}: {self.reason}{more}"


@dataclass(frozen=True)
class IngestReport:
    """What an ingest did.

    Attributes:
        table: The name of the table.
        kind: The kind of the sources, such as ``"imagefolder"``, ``"parquet"`` or ``"webdataset"``.
        version: The version of the table that has the rows.
        num_rows: The rows that were written.
        num_files: The source files, also those that were skipped.
        bytes: Their bytes.
        skipped: What was skipped, in the order of the sources.
        left_out: The number of files that are no files of the kind, by the ending of their names.
        num_known_files: The number of files that the table had already.
        num_resumed_units: The number of units that an interrupted call had finished.
        already_ingested: Whether nothing was written, because the table has all files already.
    """

    table: str
    kind: str
    version: int
    num_rows: int
    num_files: int
    bytes: int
    skipped: list[IngestSkipped]
    left_out: dict[str, int]
    num_known_files: int
    num_resumed_units: int
    already_ingested: bool


@dataclass(frozen=True)
class IngestPreview:
    """What an ingest would write.

    Attributes:
        table: The name of the table.
        kind: The kind of the sources.
        num_files: The source files.
        bytes: Their bytes.
        table_bytes: An estimate of the bytes to write, before compression.
        skipped: Files that cannot be read, and rows among the first ones that do not fit: the ingest skips them or
            fails.
        left_out: The number of files that are no files of the kind, by the ending of their names.
        rows: The first rows, at most ten, as rows of the table. Indexes of videos are missing.
    """

    table: str
    kind: str
    num_files: int
    bytes: int
    table_bytes: int
    skipped: list[IngestSkipped]
    left_out: dict[str, int]
    rows: pa.RecordBatch

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self.rows.schema


class IngestOptions(TypedDict, total=False):
    """The options of ``stoker ingest``, by their names with underscores. Kinds refuse options of others."""

    mode: Literal["create", "append", "overwrite"]
    on_error: Literal["fail", "skip"]
    again: bool
    compress: Mapping[str, str]
    rows_per_fragment: int
    page_kib: int
    unit_mib: int
    columns: Sequence[str]
    drop: Sequence[str]
    rename: Mapping[str, str]
    cast: Mapping[str, str]
    image: str | Sequence[str]
    video: str | Sequence[str]
    audio: str | Sequence[str]
    sample_rows: int
    images: Literal["tensor", "encoded", "both"]
    layout: Literal["chw", "hwc"]
    channels: Literal["rgb", "gray", "auto"]
    size: int | str | tuple[int, int]
    classes: Sequence[str]
    splits: Sequence[str]
    no_splits: bool
    no_verify: bool
    image_mib_max: int
    tensor: Mapping[str, str]
    vector: Mapping[str, int]
    as_is: str | Sequence[str]
    schema: str | os.PathLike[str]


def ingest(
    lake: Lake,
    sources: Sources,
    table: str,
    kind: str | None,
    dry_run: bool,
    progress: Progress,
    options: Mapping[str, Any],
) -> IngestReport | IngestPreview:
    """Writes files into a table; see :meth:`Lake.ingest`."""
    if not isinstance(table, str):
        raise InvalidRequestError(f"table is a {type(table).__name__}; it must be the name of a table")
    given = {**options, "as": kind}
    args = [arg for name, value in given.items() for arg in _arguments(name, value)]
    tell, end = _telling(progress)
    try:
        told = lake._native.ingest([*args, "--", *_paths(sources), table], bool(dry_run), tell)
    except StokerError as failed:
        raise type(failed)(_in_words_of_python(str(failed))) from failed.__cause__
    finally:
        end()
    skipped = [IngestSkipped(**known_fields(IngestSkipped, item)) for item in told["skipped"]]
    if dry_run:
        rows = pa.record_batch(told["rows"])
        return IngestPreview(**{**known_fields(IngestPreview, told), "table": table, "skipped": skipped, "rows": rows})
    return IngestReport(**{**known_fields(IngestReport, told), "table": table, "skipped": skipped})


def _paths(sources: Sources) -> list[str]:
    listed = [sources] if isinstance(sources, str | os.PathLike) else sources
    if not isinstance(listed, Iterable) or isinstance(listed, bytes):
        raise InvalidRequestError(f"sources is a {type(sources).__name__}; it must be a path or a list of paths")
    paths = [os.fspath(path) if isinstance(path, str | os.PathLike) else path for path in listed]
    wrong = next((path for path in paths if not isinstance(path, str) or not path), None)
    if wrong is not None or not paths:
        raise InvalidRequestError(f"sources is {sources!r:.60}; it must be a path or a list of paths")
    return paths


def _arguments(name: str, value: Any) -> list[str]:
    """Returns an option as arguments of the command."""
    option = f"--{name.replace('_', '-')}"
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    if name == "size" and isinstance(value, list | tuple):
        value = "x".join(map(str, value))
    if isinstance(value, Mapping):
        return [f"{option}={key}={item}" for key, item in value.items()]
    if isinstance(value, str | os.PathLike):
        return [f"{option}={os.fspath(value)}"]
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [f"{option}={item}" for item in value]
    return [f"{option}={value}"]


def _telling(progress: Progress) -> tuple[Callable[[dict[str, Any]], object] | None, Callable[[], None]]:
    """Returns what is called with the progress, and at the end."""
    if callable(progress):
        function = progress
        return (lambda told: function(IngestProgress(**known_fields(IngestProgress, told)))), lambda: None
    if not isinstance(progress, bool) and progress is not None:
        raise InvalidRequestError(f"progress is a {type(progress).__name__}; it must be a function, True or False")
    line = progress_line(progress)
    if line is None:
        return None, lambda: None
    return (lambda told: line.show(str(IngestProgress(**known_fields(IngestProgress, told))))), line.clear


def _in_words_of_python(message: str) -> str:
    """Returns a message of the command with its options as keywords: ``on_error="skip"`` for ``--on-error skip``."""

    def keyword(found: re.Match[str]) -> str:
        name = "kind" if found[1] == "as" else found[1].replace("-", "_")
        return f"{name}=" if found[2] is None else f'{name}="{found[2]}"'

    return _OPTION.sub(keyword, message).replace("run the same command again", "make the same call again")
