"""A writer of the soak: appends rows, and records each append before it begins and after it has ended."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from soak_child import connected, told_to_end
from soak_table import APPEND_ROWS_MAX, APPENDED, Record, Write, columns

import stoker

#: The least and the most seconds between two appends.
PAUSE_SECS = (4.0, 14.0)


@dataclass(frozen=True)
class WriterJob:
    """The arguments of one life of a writer."""

    lake: str
    writer: int
    record: str
    seed: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def append(table: stoker.Table, write: Write) -> Write:
    """Appends the rows of a write; returns it with its outcome, which is `unknown` if the store is unavailable."""
    try:
        table.append(columns(write.ids()))
    except stoker.UnavailableError as error:
        return replace(write, outcome="unknown", said=str(error))
    return replace(write, outcome="done")


def main() -> None:
    job = WriterJob(**json.loads(sys.argv[1]))
    over, draw, record = told_to_end(), random.Random(job.seed), Record(Path(job.record))
    table = connected(job.lake).table(APPENDED)
    number = len(record.writes())
    while not over.wait(draw.uniform(*PAUSE_SECS)):
        write = Write(job.writer, number, draw.randint(1, APPEND_ROWS_MAX), "begun")
        record.note(write)
        record.note(append(table, write))
        number += 1


if __name__ == "__main__":
    main()
