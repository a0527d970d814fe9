"""The progress of a stream: the batches of an epoch that a loop has got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["LogEntry", "Place"]

#: A global batch size (rows), and the step and position from which it was used: (step, position, rows).
LogEntry = tuple[int, int, int]


@dataclass(frozen=True)
class Place:
    """The progress in the epochs of a stream. It is immutable, so that a single assignment moves a loop on.

    Attributes:
        epoch: The epoch, zero-based.
        origin: The position at which the epoch or the last resume began.
        position: The next position.
        first_step: The number of the global batch at ``origin``, counted from the start of the training.
        next_step: The number of global batches that the loop has got since ``origin``.
        log: The global batch sizes of the epoch so far; the first entry is the start of the epoch.
    """

    epoch: int
    origin: int
    position: int
    first_step: int
    next_step: int
    log: tuple[LogEntry, ...]

    @classmethod
    def start_of(cls, epoch: int, step: int, global_batch: int) -> Place:
        """Returns the start of an epoch; ``step`` is the number of its first step."""
        return cls(epoch, 0, 0, step, 0, ((step, 0, global_batch),))

    @classmethod
    def resumed(cls, epoch: int, position: int, step: int, log: Sequence[LogEntry], global_batch: int) -> Place:
        """Returns a position within an epoch; ``log`` has the sizes of the batches before it."""
        before = [entry for entry in log if entry[1] < position or entry[0] < step]
        if not before or before[-1][2] != global_batch or _position_at(before[-1], step) != position:
            before.append((step, position, global_batch))
        return cls(epoch, position, position, step, 0, tuple(before))

    @property
    def step(self) -> int:
        """The number of the next global batch, counted from the start of the training."""
        return self.first_step + self.next_step

    @property
    def steps_before_origin(self) -> int:
        """The number of global batches of this epoch before the origin."""
        return self.first_step - self.log[0][0]

    @property
    def is_begun(self) -> bool:
        """Whether a batch of the epoch was delivered or skipped, or the epoch was resumed from a state."""
        return bool(self.origin or self.next_step)

    def after(self, step: int, position: int) -> Place:
        """Returns the progress after global batch ``step``, counted from the origin."""
        return replace(self, next_step=step + 1, position=position)


def _position_at(entry: LogEntry, step: int) -> int:
    return entry[1] + (step - entry[0]) * entry[2]
