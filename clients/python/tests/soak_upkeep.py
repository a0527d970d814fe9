"""Compactions and cleanups of a soak, as operators run them during the load."""

from __future__ import annotations

import json
import random
import re
import sys
import threading
from collections import Counter
from pathlib import Path

from conftest import stoker_bin
from s3_store import BUCKET, Store
from soak_processes import Command
from soak_schedule import Happening
from soak_table import APPENDED, INGESTED
from test_service import environment

#: Seconds after which a compaction or a cleanup is killed.
UPKEEP_SECS = 60.0
ROWS_PER_FRAGMENT = [500, 2_000, 100_000]


class Upkeep:
    """Runs at most one compaction and one cleanup at a time. Each may fail in an outage; a later event repeats it."""

    def __init__(self, lake: str, store: Store, port: int, folder: Path) -> None:
        self.counts: Counter[str] = Counter()
        self.compaction = Command(environment({}))
        self._lake, self._store, self._port, self._folder = lake, store, port, folder
        self._turns = {"compact": threading.Lock(), "clean up": threading.Lock()}

    def compact(self, event: Happening) -> None:
        """Compacts one of the tables with pylance."""
        table = [APPENDED, INGESTED][event.turn % 2]
        num_rows = random.Random(event.seed).choice(ROWS_PER_FRAGMENT)
        program = str(Path(__file__).with_name("soak_compaction.py"))
        options = json.dumps(self._store.options_at(self._port))
        command = [sys.executable, program, f"{self._lake}/{table}.lance", str(num_rows), options]
        self._run(self.compaction, command, "compact")

    def clean_up(self, port: int) -> str:
        """Runs a cleanup through the store or proxy on this port; returns its output.

        The lock of a cleanup that failed in an outage stays in the lake. If this cleanup refuses to run because of such
        a lock, the lock is deleted, as the error message advises, so that the next cleanup can run.
        """
        options = {name.upper(): value for name, value in self._store.options_at(port).items()}
        cleanup = Command(environment(options))
        said = self._run(cleanup, [stoker_bin(), "cleanup", "--keep", "1d", "--lake", self._lake], "clean up")
        if (lock := re.search(r"delete (_stoker/cleanup/\d+) if it was killed", said)) is not None:
            self.counts["clean up: lock of a failed one deleted"] += 1
            key = f"{self._lake.removeprefix(f's3://{BUCKET}/')}/{lock[1]}"
            self._store.client.delete_object(Bucket=BUCKET, Key=key)
        return said

    def _run(self, runner: Command, command: list[str], kind: str) -> str:
        """Runs a command and returns its output; returns an empty text at once if one of its kind runs already."""
        if not self._turns[kind].acquire(blocking=False):
            return ""
        try:
            status, said = runner.run(command, UPKEEP_SECS)
        finally:
            self._turns[kind].release()
        self.counts[f"{kind}: {'done' if status == 0 else 'failed'}"] += 1
        with (self._folder / f"{kind.replace(' ', '-')}.log").open("a") as log:
            log.write(f"{status}: {said.strip()[-600:]}\n")
        return said
