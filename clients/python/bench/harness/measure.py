"""Makes one measurement in a process of its own: ``python -m harness.measure TASK RESULT``.

The time of the first batch begins when the system opens the data and ends when the consumer has a batch. Libraries are
imported before.

The rate is that of whole epochs after a first epoch for warming up, in which persistent worker processes start. It is
the number of bytes in these epochs, divided by the time from the end of the first epoch to the end of the last one. The
time between epochs counts, because a system may use it for the next epoch. Stoker prefetches the first batches of an
epoch while the consumer takes the last ones of the previous epoch. So the time begins with some batches in memory and
ends with equally many batches prefetched that nobody takes.

A system that keeps a copy of what it reads from S3, on disk or in memory, would read this copy after the first epoch.
For such a system, the rate is that of the first epoch, from the request for an iterator to the last batch, with no copy
at the beginning.

The consumer reads a byte of each page of the tensors, and at least four of each row, so that the whole tensors must be
in memory, and records ids and labels. After each epoch these must be the rows of the path, each exactly once, with the
right labels and bytes.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from harness.cpu import tree_cpu_secs
from harness.dataset import Array, row_ids, touched_bytes
from harness.mixing import expected_distinct
from harness.rows import RowKind
from harness.task import Epochs, Order, Place, Task
from peers import SYSTEMS

#: The maximum number of epochs that are measured after the first one.
_EPOCHS_MAX = 50


@dataclass
class Epoch:
    """The rows that came in an epoch, with an array for each batch."""

    first_batch_secs: float = 0.0
    is_cut: bool = False
    ids: list[Array] = field(default_factory=list)
    labels: list[Array] = field(default_factory=list)
    touched: list[Array] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        """The number of rows that came."""
        return sum(map(len, self.ids))

    def take(self, kind: RowKind, tensors: Any, labels: Any) -> None:
        """Reads the bytes of a batch of rows of a kind, and records its ids and labels."""
        found = (tuple(tensors.shape[1:]), str(tensors.dtype), tensors.device.type)
        if found != (kind.shape, f"torch.{kind.dtype}", "cpu"):
            shape, dtype, device = tuple(tensors.shape), tensors.dtype, tensors.device
            raise TypeError(f"a batch has the shape {shape} of {dtype} on {device}; its rows are {kind} on the CPU")
        array = tensors.numpy()
        self.touched.append(touched_bytes(array))
        self.ids.append(row_ids(array))
        self.labels.append(labels.numpy().astype(np.int64).reshape(-1))


class Moment(NamedTuple):
    """A time in seconds, and the processor time in seconds that was used until then."""

    secs: float
    cpu_secs: float


@dataclass(frozen=True)
class Span:
    """Consecutive epochs, and the time that they took together, with the time between them."""

    epochs: list[Epoch]
    begin: Moment
    end: Moment
    row_bytes: int

    @property
    def mb_per_sec(self) -> float:
        """The rate in 10^6 bytes of tensors per second."""
        return self._num_bytes / (self.end.secs - self.begin.secs) / 1e6

    @property
    def cpu_secs_per_gb(self) -> float:
        """The processor seconds of this process and all its descendants per 10^9 bytes of tensors."""
        return (self.end.cpu_secs - self.begin.cpu_secs) / self._num_bytes * 1e9

    @property
    def _num_bytes(self) -> int:
        return sum(epoch.num_rows for epoch in self.epochs) * self.row_bytes


def run_epoch(task: Task, epochs: Epochs, number: int, opened_at: float | None = None) -> Epoch:
    """Iterates over an epoch, or over the part of it that arrives within the task's time limit.

    Args:
        task: The measurement.
        epochs: The function that gives the system's batches.
        number: The number of the epoch, zero-based.
        opened_at: The time at which the wait for the first batch began. Default: now.
    """
    epoch = Epoch()
    begin = perf_counter()
    for tensors, labels in epochs(number):
        if not epoch.ids:
            epoch.first_batch_secs = perf_counter() - (opened_at or begin)
        epoch.take(task.kind, tensors, labels)
        if perf_counter() - begin > task.epoch_secs_max:
            epoch.is_cut = True
            break
    return epoch


def first_epoch(task: Task, epochs: Epochs, opened_at: float) -> Span:
    """Iterates over the first epoch of a system that began to open the data at ``opened_at``."""
    cpu_secs = tree_cpu_secs()
    begin = Moment(perf_counter(), cpu_secs)
    epoch = run_epoch(task, epochs, 0, opened_at)
    return Span([epoch], begin, _now(), task.kind.row_bytes)


def further_epochs(task: Task, epochs: Epochs, before: Span) -> Span:
    """Iterates over the epochs that are measured; their time begins at the end of the span before."""
    begin, further = before.end, []
    for number in range(1, _EPOCHS_MAX + 1):
        further.append(run_epoch(task, epochs, number))
        if perf_counter() - begin.secs >= task.measured_secs_min or further[-1].is_cut:
            break
    return Span(further, begin, _now(), task.kind.row_bytes)


def measure(task: Task) -> dict[str, Any]:
    """Makes the measurement, and returns its result as a dict for JSON."""
    system = SYSTEMS[task.system]
    for module in ("torch", *system.modules):
        importlib.import_module(module)
    opened_at = perf_counter()
    epochs = system.open(task)
    first = first_epoch(task, epochs, opened_at)
    reads_copy_next = system.keeps_copy and task.place is Place.S3
    measured = first if first.epochs[0].is_cut or reads_copy_next else further_epochs(task, epochs, first)
    return {
        "first_batch_secs": first.epochs[0].first_batch_secs,
        "mb_per_sec": measured.mb_per_sec,
        "cpu_secs_per_gb": measured.cpu_secs_per_gb,
        "mixing": _mixing(task, measured.epochs),
        "num_epochs": len(measured.epochs),
        "num_rows_per_epoch": measured.epochs[0].num_rows,
        "label_sum": int(sum(labels.sum() for labels in measured.epochs[0].labels)),
        "is_cut": any(epoch.is_cut for epoch in measured.epochs),
        "first_epoch_mb_per_sec": first.mb_per_sec,
        "fault": next(filter(None, (fault_of(task, epoch) for epoch in [*first.epochs, *measured.epochs])), None),
    }


def fault_of(task: Task, epoch: Epoch) -> str | None:
    """Returns what is wrong with the rows of an epoch, or None if they are the right rows, each exactly once."""
    ids = np.concatenate(epoch.ids)
    dataset = task.dataset
    if ids.min() < 0 or ids.max() >= task.num_rows:
        return "tensors that are in no row"
    counts = np.bincount(ids, minlength=task.num_rows)
    wanted = np.zeros(task.num_rows, bool)
    wanted[_selected(task)] = True
    found = {
        "lost": 0 if epoch.is_cut else int((wanted & (counts == 0)).sum()),
        "repeated": int(np.maximum(counts[wanted] - 1, 0).sum()),
        "not selected": int(counts[~wanted].sum()),
        "with another label": int((np.concatenate(epoch.labels) != dataset.labels[ids]).sum()),
        "with other bytes": int((np.concatenate(epoch.touched) != dataset.touched[ids]).sum()),
    }
    faults = [f"{number} rows {what}" for what, number in found.items() if number]
    return ", ".join(faults) or None


def _now() -> Moment:
    """Returns the present moment. The time is taken first, because reading the processor time takes milliseconds."""
    return Moment(perf_counter(), tree_cpu_secs())


def _selected(task: Task) -> Array:
    return task.dataset.subset if task.order is Order.SUBSET else np.arange(task.num_rows)


def _mixing(task: Task, epochs: list[Epoch]) -> float:
    labels = task.dataset.labels[_selected(task)]
    batches = [batch for epoch in epochs for batch in epoch.labels]
    expected = {size: expected_distinct(labels, size) for size in {len(batch) for batch in batches}}
    return float(sum(len(np.unique(batch)) for batch in batches) / sum(expected[len(batch)] for batch in batches))


def main() -> None:
    """Makes the measurement, and writes its result as JSON in one atomic rename."""
    result = measure(Task.load(Path(sys.argv[1]).read_text()))
    unfinished = Path(f"{sys.argv[2]}.tmp")
    unfinished.write_text(json.dumps(result))
    unfinished.replace(sys.argv[2])


if __name__ == "__main__":
    main()
