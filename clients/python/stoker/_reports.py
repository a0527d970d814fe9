"""What a lake and its tables tell of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal

__all__ = ["ColumnLayout", "EpochVerdict", "Finding", "TableSize", "VersionInfo", "known_fields"]


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
class TableSize:
    """What a version of a table takes in storage.

    Attributes:
        bytes: The bytes of all data files, without indexes and older versions.
        num_fragments: The number of fragments.
        num_deleted_rows: The number of rows that are in the data files and are marked as deleted.
    """

    bytes: int
    num_fragments: int
    num_deleted_rows: int


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
        codec: How the rows of compressed tensors and of lossy columns are written, such as ``"pco:8"`` and
            ``"float16"``; ``None`` for other columns.
        plain_bytes: The number of bytes of the tensors of all rows, before they were compressed.
        decode_bytes_per_sec: The bytes of tensors that one thread decodes in a second, measured on the first rows.
        max_abs_error: The largest absolute error of an element of a lossy column, as it was measured when rows were
            written.
        has_nulls: Whether some rows are null; ``None`` if the data files do not say it.
        indexes: The indexes over the column, with their kinds.
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
    has_nulls: bool | None = None
    indexes: list[str] = field(default_factory=list)
    codec: str | None = None
    plain_bytes: int | None = None
    decode_bytes_per_sec: int | None = None
    max_abs_error: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times as large as on disk the tensors are; ``None`` for columns without a codec."""
        return None if self.plain_bytes is None else self.plain_bytes / max(self.bytes, 1)

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


def known_fields(kind: type, told: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values that a dataclass has as fields; a later server may tell more."""
    names = {known.name for known in fields(kind)}
    return {name: value for name, value in told.items() if name in names}
