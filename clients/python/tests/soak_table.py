"""The rows of the soak: who wrote a row tells what it must hold."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

#: The tables that writers append to: through the library, and with `stoker ingest`.
APPENDED, INGESTED = "samples", "ingested"
#: Rows of each of these tables before the load, and the tag of that version.
NUM_BASE_ROWS, BASE_TAG = 3_000, "base"
#: Numbers in a payload. It has more than 1 KiB, so that it is read as dense bytes.
PAYLOAD = 320
#: Rows of an append at most.
APPEND_ROWS_MAX = 40
NUM_LABELS = 7

Ids = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Write:
    """Something that a writer wrote, or tried to write, in one commit."""

    writer: int
    number: int
    num_rows: int
    #: `begun`, then `done` or `unknown`; a kill may come in between.
    outcome: str
    said: str = ""

    @property
    def key(self) -> tuple[int, int]:
        return self.writer, self.number

    def ids(self) -> Ids:
        """The ids of its rows. Those of the base are from writer 0, and smaller than all of these."""
        return np.arange(self.num_rows, dtype=np.int64) + (self.writer << 40 | self.number << 10)


def write_of(row: int) -> tuple[int, int]:
    """The writer of a row, and the number of its write."""
    return row >> 40, row >> 10 & (1 << 30) - 1


def columns(ids: Ids) -> dict[str, Any]:
    """The rows with these ids."""
    return {
        "id": ids,
        "label": (ids % NUM_LABELS).astype(np.int32),
        "name": names(ids),
        "payload": ((ids[:, None] * 31 + np.arange(PAYLOAD)) % 1009).astype(np.float32),
    }


def names(ids: Iterable[int]) -> list[str]:
    return [f"row {row}" for row in ids]


def parquet_columns(ids: Ids) -> pa.Table:
    """The same rows as a table without extension types."""
    values = columns(ids)
    payload = pa.FixedSizeListArray.from_arrays(pa.array(values.pop("payload").ravel()), PAYLOAD)
    return pa.table({**values, "payload": payload})


class Record:
    """What a writer began and what it was told, in a file that outlives it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, write: Write) -> None:
        """Adds a line, which a kill of this process cannot take back."""
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, json.dumps(asdict(write)).encode() + b"\n")
        finally:
            os.close(file)

    def writes(self) -> list[Write]:
        """All writes with their last outcome, in order."""
        lines = self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []
        writes = [Write(**json.loads(line)) for line in lines]
        return list({write.key: write for write in writes}.values())
