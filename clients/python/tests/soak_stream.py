"""A training job of the soak: streams some epochs on some ranks, saves checkpoints, and begins the next stream.

All ranks of the job are in this process and take their steps together. After a kill, the next life of the job resumes
from the last checkpoint, with a new random choice of the number of ranks and of the batch size.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from soak_child import admitted, connected, told_to_end
from soak_table import APPENDED, BASE_TAG, INGESTED

import stoker

#: Queries, each with the bound of the labels that it selects: labels below this number, or all labels (None).
QUERIES: list[tuple[str, int | None]] = [
    (f"SELECT id, name, payload FROM {APPENDED}", None),
    (f"SELECT id, label FROM {APPENDED} WHERE label < 3", 3),
    (f"SELECT id, payload, label FROM {APPENDED} WHERE label < 5 ORDER BY id", 5),
    (f"SELECT id, payload FROM {APPENDED} AT (TAG => '{BASE_TAG}')", None),
    (f"SELECT id, name, payload FROM {INGESTED}", None),
]
WORLD_SIZES = [1, 2, 3, 4]
GLOBAL_BATCHES = [48, 64, 90]
NUM_EPOCHS = [1, 2, 3]
CHECKPOINT_STEPS = 8
#: Seconds between two steps during the load. The test's store is written in Python and serves about 100 requests/s.
PACE_SECS = 0.3
#: The memory budget of a job's connection, which all its ranks share, in bytes.
MEMORY_BYTES = 32 << 20


@dataclass(frozen=True)
class StreamJob:
    """The arguments of one life of a job."""

    server: str
    token: str
    #: The path prefix of the job's files: `<prefix>.json` has the progress of the running stream,
    #: `<prefix>.<number>.done` that of a finished one, and `<prefix>.<number>.ledger` the ids that a stream delivered.
    prefix: str
    seed: str
    life: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass
class Progress:
    """A stream as of its last checkpoint."""

    number: int
    query: int
    num_epochs: int
    state: dict[str, Any]
    stream_id: str
    snapshots: list[tuple[str, int]]
    #: The receipts of all ranks, those of killed lives included.
    receipts: list[dict[str, Any]] = field(default_factory=list)
    #: The length of the valid part of the ledger in bytes. Rows that a killed life got after its last checkpoint do not
    #: count.
    ledger_bytes: int = 0
    num_finished: int = 0
    num_lives: int = 1

    def write(self, path: Path) -> None:
        """Replaces the file atomically."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self)))
        partial.replace(path)

    @classmethod
    def read(cls, path: Path) -> Progress:
        return cls(**json.loads(path.read_text()))


def read_ledger(path: Path, num_bytes: int) -> dict[int, list[int]]:
    """Returns the ids of each epoch in the order of delivery, from the first `num_bytes` bytes of a ledger."""
    epochs: dict[int, list[int]] = {}
    for line in path.read_bytes()[:num_bytes].splitlines():
        epoch, *ids = map(int, line.split())
        epochs.setdefault(epoch, []).extend(ids)
    return epochs


class Job:
    """The streams of all ranks, and the files with their progress."""

    def __init__(self, job: StreamJob) -> None:
        self.lake = connected(job.server, token=job.token, memory_budget_bytes=MEMORY_BYTES)
        self.seed = job.seed
        self.prefix = Path(job.prefix)
        self.path = self.prefix.with_suffix(".json")
        self.draw = random.Random(f"{job.seed}/{job.life}")
        self.past: list[dict[str, Any]] = []

    def begin(self) -> None:
        """Resumes the stream that a killed life left, or begins another one."""
        self.progress = Progress.read(self.path) if self.path.exists() else admitted(self._planned)
        self.past = list(self.progress.receipts)
        self.progress.num_lives += bool(self.past)
        self.streams = admitted(lambda: self._ranks(self.progress.state))
        self.ledger_path = Path(f"{self.prefix}.{self.progress.number}.ledger")
        self.ledger_path.touch()
        os.truncate(self.ledger_path, self.progress.ledger_bytes)

    def _planned(self) -> Progress:
        number = len(list(self.prefix.parent.glob(f"{self.prefix.name}.*.done")))
        draw = random.Random(f"{self.seed}/stream {number}")
        query, num_epochs = draw.randrange(len(QUERIES)), draw.choice(NUM_EPOCHS)
        options: dict[str, Any] = {"seed": draw.randrange(1 << 32), "shuffle": draw.choice(["block", "block", False])}
        stream = self.lake.sql(QUERIES[query][0]).stream(**options, global_batch_size=64, rank=0, world_size=1)
        return Progress(number, query, num_epochs, stream.state_dict(), stream.stream_id, stream.snapshots)

    def _ranks(self, state: dict[str, Any]) -> list[stoker.Stream]:
        world_size, size = self.draw.choice(WORLD_SIZES), self.draw.choice(GLOBAL_BATCHES)
        return [
            self.lake.resume(state, global_batch_size=size, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]

    def save(self) -> None:
        """Writes a checkpoint: the state, which must be the same on all ranks, and the length of the ledger."""
        states = [stream.state_dict() for stream in self.streams]
        assert all(state == states[0] for state in states), f"ranks have other states: {states}"
        self.progress.state = states[0]
        self.progress.receipts = [*self.past, *(stream.receipt() for stream in self.streams)]
        self.progress.ledger_bytes = self.ledger_path.stat().st_size
        self.progress.num_finished = self.streams[0].epoch
        self.progress.write(self.path)

    def note(self, batches: Sequence[stoker.Batch]) -> None:
        """Appends the ids that all ranks got in a step to the ledger."""
        ids = [row for batch in batches for row in batch["id"][: batch.num_valid].tolist()]
        with self.ledger_path.open("ab") as ledger:
            ledger.write(" ".join(map(str, [batches[0].cursor.epoch, *ids])).encode() + b"\n")

    def finish(self) -> None:
        """Closes the streams, and renames the file with their progress to `<prefix>.<number>.done`."""
        for stream in self.streams:
            stream.close()
        self.path.replace(f"{self.prefix}.{self.progress.number}.done")


def main() -> None:
    job, over = Job(StreamJob(**json.loads(sys.argv[1]))), told_to_end()
    while not over.is_set() or job.path.exists():
        job.begin()
        job.save()
        while job.streams[0].epoch < job.progress.num_epochs:
            for step, batches in enumerate(zip(*job.streams, strict=True), 1):
                job.note(batches)
                if step % CHECKPOINT_STEPS == 0:
                    job.save()
                over.wait(PACE_SECS)
            job.save()
            if over.is_set():
                break
        job.finish()


if __name__ == "__main__":
    main()
