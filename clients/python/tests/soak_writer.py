"""A writer of the soak: appends rows, and notes each append before it begins and after its answer."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from soak_child import connected, told_to_end
from soak_table import APPEND_ROWS_MAX, APPENDED, Record, Write, columns

import stoker

#: Seconds between two appends, at least and at most.
PAUSE_SECS = (4.0, 14.0)


@dataclass(frozen=True)
class WriterJob:
    """What one life of a writer has to do."""

    lake: str
    writer: int
    record: str
    seed: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def append(table: stoker.Table, write: Write) -> Write:
    """Tries one append; returns it with its outcome. Only storage that is away leaves it unknown."""
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
