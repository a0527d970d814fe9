"""A writer of the soak that ingests Parquet files with `stoker ingest`, and repeats the command when it was killed."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
from conftest import stoker_bin
from soak_processes import Command
from soak_table import APPEND_ROWS_MAX, INGESTED, PAYLOAD, Ids, Record, Write, parquet_columns

PAUSE_SECS = (2.0, 8.0)
#: Seconds within which a file must be ingested in spite of kills and outages; and the timeout of one run, in seconds.
PATIENCE_SECS, RUN_SECS = 180.0, 120.0


class IngestWriter:
    """Writes Parquet files into a folder, one after the other, and ingests the folder after each."""

    def __init__(self, lake: str, writer: int, folder: Path, variables: dict[str, str]) -> None:
        self.record = Record(folder / f"writer-{writer}.record")
        self.command = Command(variables)
        self.num_repeated = 0
        self._lake = lake
        self._writer = writer
        self._source = folder / f"parquet-{writer}"
        self._source.mkdir()

    def write_files(self, draw: random.Random, over: threading.Event) -> None:
        """Ingests files until the load is over; an ingest that has begun is finished."""
        number = 0
        while not over.wait(draw.uniform(*PAUSE_SECS)):
            write = Write(self._writer, number, draw.randint(1, APPEND_ROWS_MAX), "begun")
            self.record.note(write)
            self.ingest(write.ids(), f"{number:06}", "append")
            self.record.note(replace(write, outcome="done"))
            number += 1

    def ingest(self, ids: Ids, name: str, mode: str) -> None:
        """Writes a file with these rows and ingests it; repeats the command after kills and outages."""
        pq.write_table(parquet_columns(ids), self._source / f"{name}.parquet")
        command = [stoker_bin(), "ingest", "parquet", str(self._source), INGESTED, "--mode", mode, "--quiet"]
        command += ["--vector", f"payload={PAYLOAD}", "--lake", self._lake]
        deadline = time.monotonic() + PATIENCE_SECS
        while True:
            status, said = self.command.run(command, RUN_SECS)
            if status == 0:
                return
            self.num_repeated += 1
            assert time.monotonic() < deadline, f"file {name} of writer {self._writer} is not ingested:\n{said}"
