"""The canary of the soak: a stream that is read all the time, and the times for which it waited for its batches.

A wait begins when the loop asks for a batch and ends when it has it. Between two batches the loop pauses for a moment,
so that it leaves the machine to the load; the stream reads at most `MEMORY_BYTES` and what sockets hold ahead.
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
#: Waits from this time on are kept one by one.
KEPT_SECS = 0.1
#: From this time on, the log tells what the stream did.
TOLD_SECS = 1.0


@dataclass(frozen=True)
class CanaryJob:
    """What the canary has to do."""

    server: str
    token: str
    #: A file with a line for each long wait: when it began and when it ended, by the monotonic clock of the machine.
    waits: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def image_of(ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The images of rows, one value for each."""
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
