"""The checks at the end of a soak: functions that return a list of faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from soak_table import NUM_BASE_ROWS, Write, write_of

from stoker import EpochVerdict


def table_findings(name: str, writes: Sequence[Write], stored: Iterable[int]) -> list[str]:
    """Returns the faults in the ids of a table.

    Each row of the base and of each acknowledged write must be there exactly once. Of a write whose outcome is not
    known, either all rows must be there exactly once, or none.
    """
    times = Counter(stored)
    found = [f"{name}: row {row} is there {num} times" for row, num in times.items() if num > 1]
    found += [f"{name}: row {row} of the base is lost" for row in range(NUM_BASE_ROWS) if row not in times]
    num_stored = Counter(write_of(row) for row in times if row >= NUM_BASE_ROWS)
    for write in writes:
        num = num_stored.pop(write.key, 0)
        if num != write.num_rows and (write.outcome == "done" or num != 0):
            found.append(f"{name}: of {write.num_rows} rows of {write}, {num} are there")
    return found + [f"{name}: {num} rows are there of {key}, which nobody wrote" for key, num in num_stored.items()]


def epoch_findings(name: str, epochs: dict[int, list[int]], num_finished: int, expected: Iterable[int]) -> list[str]:
    """Returns the faults in the rows that a job got: each finished epoch must have each row of its snapshot once."""
    wanted, found = Counter(expected), []
    for epoch in range(num_finished):
        seen = Counter(epochs.get(epoch, []))
        wrong = {row: (seen[row], wanted[row]) for row in {*seen, *wanted} if seen[row] != wanted[row]}
        if wrong:
            some = dict(sorted(wrong.items())[:3])
            found.append(f"{name}, epoch {epoch}: {len(wrong)} rows lost or repeated, as {some} (times, times wanted)")
    return found


def verdict_findings(name: str, verdicts: Sequence[EpochVerdict], num_finished: int) -> list[str]:
    """Returns the finished epochs that a job's receipts do not prove to be exactly once."""
    proved = {verdict.epoch for verdict in verdicts if verdict.is_exactly_once}
    told = {verdict.epoch: verdict for verdict in verdicts}
    return [
        f"{name}, epoch {epoch}: its receipts prove {told.get(epoch, 'nothing')}"
        for epoch in range(num_finished)
        if epoch not in proved
    ]
