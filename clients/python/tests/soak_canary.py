"""The canary of the soak: a process that reads a stream all the time, and records long waits for batches.

A wait begins when the loop asks for a batch and ends when the loop has it. The loop pauses for `PACE_SECS` between two
batches, to leave the processors to the load. The stream prefetches at most `MEMORY_BYTES`, and the sockets' buffers
hold some more, so a wait shows soon that the server does not send.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from soak_child import admitted, connected, told_to_end

TABLE, NUM_ROWS, SHAPE = "canary", 1_000, (3, 64, 64)
BATCH_SIZE = 8
MEMORY_BYTES = 256 << 10
PACE_SECS = 0.02
#: Waits of at least this many seconds are written to the file of waits.
KEPT_SECS = 0.1
#: For waits of at least this many seconds, the log also has the stream's counters.
TOLD_SECS = 1.0


@dataclass(frozen=True)
class CanaryJob:
    """The arguments of the canary's process."""

    server: str
    token: str
    #: The path of a file with a line for each long wait: its begin and its end, by the machine's monotonic clock.
    waits: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def image_of(ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the images of rows; all elements of an image have the same value, a function of the id."""
    return np.broadcast_to((ids % 251).astype(np.uint8).reshape(-1, 1, 1, 1), (len(ids), *SHAPE))


def main() -> None:
    job, over = CanaryJob(**json.loads(sys.argv[1])), told_to_end()
    lake = connected(job.server, token=job.token)
    query = lake.sql(f"SELECT id, image FROM {TABLE}")
    stream = admitted(lambda: query.stream(batch_size=BATCH_SIZE, seed=1, memory_budget_bytes=MEMORY_BYTES))
    num_batches = 0
    with Path(job.waits).open("a", buffering=1) as waits:
        while not over.is_set():
            seen: list[int] = []
            batches = iter(stream)
            asked = time.monotonic()
            while (batch := next(batches, None)) is not None:
                got = time.monotonic()
                num_batches += 1
                if got - asked >= KEPT_SECS:
                    waits.write(f"{asked} {got}\n")
                if got - asked >= TOLD_SECS:
                    print(f"{asked:.1f}: waited {got - asked:.1f} s, {stream.stats()}", flush=True)
                assert (batch["image"] == image_of(batch["id"])).all(), f"other bytes at {batch.cursor}"
                seen += batch["id"].tolist()
                if over.wait(PACE_SECS):
                    break
                asked = time.monotonic()
            assert over.is_set() or sorted(seen) == list(range(NUM_ROWS)), f"epoch {stream.epoch} is not exact"
    print(f"{num_batches} batches, {stream.epoch} epochs", flush=True)


if __name__ == "__main__":
    main()
