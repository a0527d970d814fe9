"""The rows of the soak: an id contains the writer and the write, and all other values are functions of the id."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

#: The tables to which writers append: with the library, and with `stoker ingest`.
APPENDED, INGESTED = "samples", "ingested"
#: The number of rows of each of these tables before the load, and the tag of that version of `APPENDED`.
NUM_BASE_ROWS, BASE_TAG = 3_000, "base"
#: The number of floats in a payload. A payload has more than 1 KiB, so it is read as dense bytes.
PAYLOAD = 320
#: The most rows of one append.
APPEND_ROWS_MAX = 40
NUM_LABELS = 7

Ids = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Write:
    """The rows that a writer wrote, or tried to write, in one commit."""

    writer: int
    number: int
    num_rows: int
    #: `begun`, then `done` or `unknown`. It stays `begun` if the writer was killed before the response.
    outcome: str
    said: str = ""

    @property
    def key(self) -> tuple[int, int]:
        return self.writer, self.number

    def ids(self) -> Ids:
        """Returns the ids of the rows. All ids of writers are larger than those of the base, which have writer 0."""
        return np.arange(self.num_rows, dtype=np.int64) + (self.writer << 40 | self.number << 10)


def write_of(row: int) -> tuple[int, int]:
    """Returns the writer and the number of the write that an id contains."""
    return row >> 40, row >> 10 & (1 << 30) - 1


def columns(ids: Ids) -> dict[str, Any]:
    """Returns the rows with these ids."""
    return {
        "id": ids,
        "label": (ids % NUM_LABELS).astype(np.int32),
        "name": names(ids),
        "payload": ((ids[:, None] * 31 + np.arange(PAYLOAD)) % 1009).astype(np.float32),
    }


def names(ids: Iterable[int]) -> list[str]:
    return [f"row {row}" for row in ids]


def parquet_columns(ids: Ids) -> pa.Table:
    """Returns the rows with these ids as a table without extension types."""
    values = columns(ids)
    payload = pa.FixedSizeListArray.from_arrays(pa.array(values.pop("payload").ravel()), PAYLOAD)
    return pa.table({**values, "payload": payload})


class Record:
    """The file in which a writer records its writes and their outcomes; it survives a kill of the writer."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, write: Write) -> None:
        """Appends a line with one system call, without a buffer in this process that a kill would lose."""
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, json.dumps(asdict(write)).encode() + b"\n")
        finally:
            os.close(file)

    def writes(self) -> list[Write]:
        """Returns all writes in order, each with its last outcome."""
        lines = self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []
        writes = [Write(**json.loads(line)) for line in lines]
        return list({write.key: write for write in writes}.values())
