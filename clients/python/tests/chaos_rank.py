"""A rank of the chaos job: streams epochs, records every batch in its ledger, and saves checkpoints.

The rank may begin one step for each byte on its standard input, and ends at the end of the input.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaos_ledger import Entry, digest

import stoker


@dataclass(frozen=True)
class RankJob:
    """The work of one rank in one run."""

    target: str
    num_endpoints: int
    query: str
    #: Options of the stream, rank and world size included.
    options: dict[str, Any]
    num_epochs: int
    #: The path prefix of the output: `<prefix>.ledger` and `<prefix>.<epoch>.<position>.checkpoint`.
    prefix: str
    #: Steps from one checkpoint to the next.
    checkpoint_steps: int
    #: The state from which the rank resumes, or None at the start of the job.
    state: dict[str, Any] | None

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def entry_of(batch: stoker.Batch) -> Entry:
    """Returns the ledger entry of a batch."""
    rows = zip(batch["name"], batch["payload"], strict=True)
    return Entry(
        epoch=batch.cursor.epoch,
        step=batch.step,
        position=batch.cursor.position,
        num_valid=batch.num_valid,
        ids=tuple(batch["id"].tolist()),
        digests=tuple(digest(name, payload.tobytes()) for name, payload in rows),
    )


def save(stream: stoker.Stream, job: RankJob) -> None:
    """Writes a checkpoint atomically: the file exists as a whole or not at all."""
    state = stream.state_dict()
    path = Path(f"{job.prefix}.{state['epoch']}.{state['position']}.checkpoint")
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump({"state": state, "receipt": stream.receipt()}, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def main() -> None:
    job = RankJob(**json.loads(sys.argv[1]))
    lake = stoker.connect(job.target, num_endpoints=job.num_endpoints)
    stream = lake.sql(job.query).stream(**job.options)
    if job.state is not None:
        stream.load_state_dict(job.state)
    with Path(f"{job.prefix}.ledger").open("ab") as ledger:
        while stream.epoch < job.num_epochs:
            for batch in stream:
                if not os.read(sys.stdin.fileno(), 1):
                    return
                ledger.write(entry_of(batch).to_line())
                ledger.flush()
                os.fsync(ledger.fileno())
                if (batch.step + 1) % job.checkpoint_steps == 0:
                    save(stream, job)
            save(stream, job)


if __name__ == "__main__":
    main()
