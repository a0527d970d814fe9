"""The ledgers of the chaos job: ranks record each batch, and checks prove that every row came exactly once.

The bytes of a row are a function of its id, so the digests in a ledger prove which bytes were delivered.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

PAYLOAD_BYTES = 2_048

#: A cursor without its stream id, (epoch, position): where a resume begins.
Place = tuple[int, int]


def payload_of(row: int) -> bytes:
    """Returns the bytes of the tensor of the row with this id."""
    return hashlib.shake_128(b"row %d" % row).digest(PAYLOAD_BYTES)


def name_of(row: int) -> str:
    """Returns the text of the row with this id; the length varies from row to row."""
    return f"row {row} " + "x" * (row % 23)


def digest(name: str, payload: bytes) -> str:
    """Returns the digest of a row's bytes, as 16 hexadecimal digits."""
    return hashlib.blake2b(payload + name.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Entry:
    """A batch as a rank recorded it. Its rows are in the order of the batch, padding last."""

    epoch: int
    #: The number of the global batch since the start of the training.
    step: int
    #: The position of the cursor after the batch.
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
    """Returns all complete entries. An entry that a kill truncated can only be the last line, and is left out."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    entries = []
    for line in lines:
        fields = json.loads(line)
        fields["ids"], fields["digests"] = tuple(fields["ids"]), tuple(fields["digests"])
        entries.append(Entry(**fields))
    return entries


@dataclass(frozen=True)
class Step:
    """A global batch, of which every rank must get its share."""

    epoch: int
    #: The number of the step since the start of the training.
    number: int
    #: The half-open range of its positions.
    begin: int
    end: int
    #: The position where the epoch began or was resumed: rank r gets the positions p with (p - origin) mod world == r.
    origin: int


@dataclass(frozen=True)
class Phase:
    """The part of one run that counts: each rank's entries from the start of the run to the start of the next run."""

    start: Place
    end: Place
    first_step: int
    global_batch: int
    ledgers: Sequence[Sequence[Entry]]

    def cut(self) -> Phase:
        """Returns the phase without the batches that ranks got after the checkpoint at which the next run began."""
        return replace(
            self, ledgers=[[entry for entry in ledger if entry.place <= self.end] for ledger in self.ledgers]
        )

    def steps(self, num_rows: int) -> list[Step]:
        """Returns the steps from `start` to `end` for epochs of `num_rows` rows."""
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
    """Returns the faults in the ledgers of a job: none if each row of each epoch came exactly once and as ingested.

    Args:
        phases: The runs of the job, in order.
        order: For each epoch the ids of its rows in order of position, read without faults. The id of a row that
            substitutes a bad row occurs more than once.
    """
    return [*_rows(phases, order), *_bytes(phases), *_steps(phases, len(order[0])), *_order(phases, order)]


def _rows(phases: Sequence[Phase], order: Sequence[Sequence[int]]) -> list[str]:
    """Returns the epochs in which rows were lost or repeated, judged by the ids alone."""
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
    """Returns the batches whose bytes, padding included, differ from the ingested ones."""
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
    """Returns the ranks that did not get exactly the steps and cursors of their phase."""
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
    """Returns the batches that are not the rank's share of a global batch in order, or are padded from another one."""
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
