"""The ledgers of the chaos job: what ranks note of each batch, and whether that is every row exactly once.

A row is a function of its id, so that a ledger proves with digests which bytes were delivered.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

PAYLOAD_BYTES = 2_048

#: Epoch and position: where a resume begins.
Place = tuple[int, int]


def payload_of(row: int) -> bytes:
    """The tensor of the row with this id."""
    return hashlib.shake_128(b"row %d" % row).digest(PAYLOAD_BYTES)


def name_of(row: int) -> str:
    """The text of the row with this id; its length varies."""
    return f"row {row} " + "x" * (row % 23)


def digest(name: str, payload: bytes) -> str:
    """The digest of a row's bytes."""
    return hashlib.blake2b(payload + name.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Entry:
    """A batch as a rank noted it. Rows are in order; those that are padding come last."""

    epoch: int
    #: The number of the global batch since the start of the training.
    step: int
    #: The cursor after the batch.
    position: int
    num_valid: int
    ids: tuple[int, ...]
    digests: tuple[str, ...]

    @property
    def place(self) -> Place:
        return self.epoch, self.position

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def read_ledger(path: Path) -> list[Entry]:
    """All entries. What a kill cut off is the last one and does not count."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    entries = []
    for line in lines:
        fields = json.loads(line)
        fields["ids"], fields["digests"] = tuple(fields["ids"]), tuple(fields["digests"])
        entries.append(Entry(**fields))
    return entries


@dataclass(frozen=True)
class Step:
    """A global batch that all ranks must get their shares of."""

    epoch: int
    #: Its number since the start of the training.
    number: int
    #: Its positions.
    begin: int
    end: int
    #: The position from which ranks take turns.
    origin: int


@dataclass(frozen=True)
class Phase:
    """What counts of one run of the job: the entries of each rank from where it began to where the next run began."""

    start: Place
    end: Place
    first_step: int
    global_batch: int
    ledgers: Sequence[Sequence[Entry]]

    def cut(self) -> Phase:
        """Leaves out what ranks got after the checkpoint at which the next run began."""
        return replace(
            self, ledgers=[[entry for entry in ledger if entry.place <= self.end] for ledger in self.ledgers]
        )

    def steps(self, num_rows: int) -> list[Step]:
        """The steps from start to end."""
        steps: list[Step] = []
        (epoch, origin), begin = self.start, self.start[1]
        while (epoch, begin) < self.end:
            if begin < num_rows:
                end = min(begin + self.global_batch, num_rows)
                steps.append(Step(epoch, self.first_step + len(steps), begin, end, origin))
                begin = end
            else:
                epoch, origin, begin = epoch + 1, 0, 0
        return steps


def findings(phases: Sequence[Phase], order: Sequence[Sequence[int]]) -> list[str]:
    """What is wrong with the ledgers of a job; nothing, if it got the rows of each epoch exactly once and as ingested.

    Args:
        phases: The runs of the job, in order.
        order: For each epoch the ids of its rows in order of position, read without faults. A row that stands for a bad
            one is there more than once.
    """
    return [*_rows(phases, order), *_bytes(phases), *_steps(phases, len(order[0])), *_order(phases, order)]


def _rows(phases: Sequence[Phase], order: Sequence[Sequence[int]]) -> list[str]:
    """Rows that did not come as often as they should, judged by nothing but their ids."""
    entries = [entry for phase in phases for ledger in phase.ledgers for entry in ledger]
    found = []
    for epoch, ids in enumerate(order):
        seen = Counter(row for entry in entries if entry.epoch == epoch for row in entry.ids[: entry.num_valid])
        wanted = Counter(ids)
        wrong = {row: (seen[row], wanted[row]) for row in {*wanted, *seen} if seen[row] != wanted[row]}
        if wrong:
            some = dict(sorted(wrong.items())[:5])
            found.append(f"epoch {epoch}: {len(wrong)} rows lost or repeated, as {some} (row: times, times wanted)")
    return found


def _bytes(phases: Sequence[Phase]) -> list[str]:
    """Batches with other bytes than were ingested, padding included."""
    expected: dict[int, str] = {}
    found = []
    for phase in phases:
        for rank, ledger in enumerate(phase.ledgers):
            for entry in ledger:
                for row in entry.ids:
                    if row not in expected:
                        expected[row] = digest(name_of(row), payload_of(row))
                if entry.digests != tuple(expected[row] for row in entry.ids):
                    found.append(f"rank {rank} of {len(phase.ledgers)}, {entry.place}: other bytes than were ingested")
    return found


def _steps(phases: Sequence[Phase], num_rows: int) -> list[str]:
    """Ranks that did not get the steps and cursors that all must get."""
    found = []
    for phase in phases:
        expected = [(step.epoch, step.number, step.end) for step in phase.steps(num_rows)]
        for rank, ledger in enumerate(phase.ledgers):
            steps = [(entry.epoch, entry.step, entry.position) for entry in ledger]
            if steps != expected:
                odd = sorted(set(steps) ^ set(expected))[:3]
                found.append(f"rank {rank} of {len(phase.ledgers)}: {len(steps)} steps of {len(expected)}, as {odd}")
    return found


def _order(phases: Sequence[Phase], order: Sequence[Sequence[int]]) -> list[str]:
    """Batches that are not this rank's rows of their global batch in order, and padding that is not from it."""
    found = []
    for phase in phases:
        world_size = len(phase.ledgers)
        steps = {(step.epoch, step.end): step for step in phase.steps(len(order[0]))}
        for rank, ledger in enumerate(phase.ledgers):
            for entry in ledger:
                step = steps.get(entry.place)
                if step is None:
                    found.append(f"rank {rank} of {world_size}, {entry.place}: no step ends there")
                    continue
                rows = order[step.epoch][step.begin : step.end]
                share = [row for at, row in enumerate(rows, step.begin - step.origin) if at % world_size == rank]
                if list(entry.ids[: entry.num_valid]) != share:
                    found.append(f"rank {rank} of {world_size}, {entry.place}: other rows than without faults")
                elif not set(entry.ids[entry.num_valid :]) <= set(rows):
                    found.append(f"rank {rank} of {world_size}, {entry.place}: padding from another batch")
    return found
