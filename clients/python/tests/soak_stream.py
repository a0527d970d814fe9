"""A training job of the soak: streams some epochs on some ranks, saves checkpoints, and begins the next stream.

All ranks of the job are in this process and go in step. After a kill, the next life of the job resumes from the last
checkpoint, on another number of ranks and with other batches.
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

#: Queries, and the labels that they select: all, or those below a number.
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
#: Seconds between two steps while the load lasts. The test's store, which is Python, serves some 100 requests a second.
PACE_SECS = 0.3
#: Bytes that all ranks of a job hold.
MEMORY_BYTES = 32 << 20


@dataclass(frozen=True)
class StreamJob:
    """What one life of a job has to do."""

    server: str
    token: str
    #: Where its files go: `<prefix>.json` is what is under way, `<prefix>.<number>.done` what was finished.
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
    #: The receipts of all ranks, of lives that were killed too.
    receipts: list[dict[str, Any]] = field(default_factory=list)
    #: Bytes of the ledger that count: what a killed life got after its checkpoint does not.
    ledger_bytes: int = 0
    num_finished: int = 0
    num_lives: int = 1

    def write(self, path: Path) -> None:
        """Replaces the file, which is there as a whole or as it was."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self)))
        partial.replace(path)

    @classmethod
    def read(cls, path: Path) -> Progress:
        return cls(**json.loads(path.read_text()))


def read_ledger(path: Path, num_bytes: int) -> dict[int, list[int]]:
    """The ids of each epoch, in the order in which they came."""
    epochs: dict[int, list[int]] = {}
    for line in path.read_bytes()[:num_bytes].splitlines():
        epoch, *ids = map(int, line.split())
        epochs.setdefault(epoch, []).extend(ids)
    return epochs


class Job:
    """The streams of all ranks, and the files that tell of them."""

    def __init__(self, job: StreamJob) -> None:
        self.lake = connected(job.server, token=job.token, memory_budget_bytes=MEMORY_BYTES)
        self.seed = job.seed
        self.prefix = Path(job.prefix)
        self.path = self.prefix.with_suffix(".json")
        self.draw = random.Random(f"{job.seed}/{job.life}")
        self.past: list[dict[str, Any]] = []

    def begin(self) -> None:
        """Resumes what a killed life left, or begins another stream."""
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
        """Writes a checkpoint: the same place on all ranks, and a ledger up to there."""
        states = [stream.state_dict() for stream in self.streams]
        assert all(state == states[0] for state in states), f"ranks have other states: {states}"
        self.progress.state = states[0]
        self.progress.receipts = [*self.past, *(stream.receipt() for stream in self.streams)]
        self.progress.ledger_bytes = self.ledger_path.stat().st_size
        self.progress.num_finished = self.streams[0].epoch
        self.progress.write(self.path)

    def note(self, batches: Sequence[stoker.Batch]) -> None:
        """Adds what all ranks got in a step to the ledger."""
        ids = [row for batch in batches for row in batch["id"][: batch.num_valid].tolist()]
        with self.ledger_path.open("ab") as ledger:
            ledger.write(" ".join(map(str, [batches[0].cursor.epoch, *ids])).encode() + b"\n")

    def finish(self) -> None:
        """Ends the stream; what it got is kept under its number."""
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
