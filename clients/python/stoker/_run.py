"""Past steps of training runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from stoker._batch import Batch
from stoker._columns import imported, numbers
from stoker._errors import InvalidRequestError, NotFoundError
from stoker._numbers import whole
from stoker._rows import NO_ROW

if TYPE_CHECKING:
    from stoker._lake import Lake

__all__ = ["Run", "RunEntry"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class RunEntry:
    """The positions that a run had from a step on.

    Attributes:
        event: ``"epoch"``, ``"resume"``, ``"skip"`` or ``"weights"``.
        stream_id: The id of the stream.
        step: The first step.
        epoch: The epoch of this step, zero-based.
        position: The first position of this step.
        global_batch: The number of rows per global batch.
        last_batch: The policy for the last batch of the epoch.
        world_size: The number of ranks.
        time: The time when the entry was written, in UTC.
    """

    event: str
    stream_id: str
    step: int
    epoch: int
    position: int
    global_batch: int
    last_batch: str
    world_size: int
    time: datetime


class Run:
    """A training run that was streamed with ``run_id`` and ``run_log=True``. Made by :meth:`Lake.run`."""

    def __init__(self, lake: Lake, run_id: str) -> None:
        self._lake = lake
        self._run_id = run_id

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self._run_id

    def entries(self) -> list[RunEntry]:
        """Returns the log, oldest entry first; it also is the table ``stoker_run_log``."""
        return [_entry(entry) for entry in self._lake._native.run_entries(self._run_id)]

    def batch(self, step: int) -> Batch:
        """Returns the rows of all ranks at a step, in order of position, padded like the run's own batches.

        Args:
            step: The step, as in :attr:`Batch.step`. If a run went back to an earlier checkpoint, its last pass over
                the step counts.

        Raises:
            NotFoundError: The run has no log, or the step is not in it.
            InvalidRequestError: The step is not a whole number.

        Example:
            >>> query = lake.sql("SELECT image, label FROM digits")
            >>> seen = [batch["label"].tolist() for batch in query.stream(batch_size=8, run_id="exp-1", run_log=True)]
            >>> lake.run("exp-1").batch(1)["label"].tolist() == seen[1]
            True
        """
        step = whole("step", step, 0)
        batch = self._lake._native.replay_batch(self._run_id, step)
        if batch is None:
            raise NotFoundError(f"step {step} of run {self._run_id} has no rows")
        return Batch(batch)

    def rows(self, first_step: int, last_step: int | None = None) -> pa.Table:
        """Returns the addresses of the rows of the steps ``first_step`` to ``last_step``, without reading the rows.

        Args:
            first_step: The first step.
            last_step: The last step. Default: ``first_step``.

        Returns:
            A table with one row for each row of a step: ``step``, ``epoch``, ``position``, ``table``, ``version``, and
            ``row_id``, the row's address in that version of the table. To join it with losses and rows in SQL, write it
            into the lake with :meth:`Lake.create_table`, and read rows with their addresses from ``row_ids(table)``.

        Raises:
            NotFoundError: The run has no log, or one of the steps is not in the log.
            InvalidRequestError: The steps are not whole numbers in ascending order.
        """
        first = whole("first_step", first_step, 0)
        last = whole("last_step", first if last_step is None else last_step, 0)
        if last < first:
            raise InvalidRequestError(f"last_step is {last}; it must be at least first_step, {first}")
        return pa.concat_tables([self._step_rows(step) for step in range(first, last + 1)])

    def _step_rows(self, step: int) -> pa.Table:
        native = self._lake._native
        handle, (epoch, origin, first, size, _) = native.replay(self._run_id, step)
        start = origin + first * size
        end = min(start + size, handle.num_rows)
        addresses = [
            numbers(imported(addrs), np.dtype(np.uint64))
            for addrs in native.row_addrs(handle.stream_id, epoch, start, end)
        ]
        columns: list[dict[str, Any]] = []
        for (name, version), addrs in zip(handle.tables, addresses, strict=True):
            (rows,) = np.nonzero(addrs != NO_ROW)
            columns.append(
                {
                    "step": np.full(len(rows), step, dtype=np.int64),
                    "epoch": np.full(len(rows), epoch, dtype=np.int64),
                    "position": (start + rows).astype(np.int64),
                    "table": [name] * len(rows),
                    "version": np.full(len(rows), version, dtype=np.int64),
                    "row_id": addrs[rows],
                }
            )
        schema = pa.schema(
            [
                ("step", pa.int64()),
                ("epoch", pa.int64()),
                ("position", pa.int64()),
                ("table", pa.string()),
                ("version", pa.int64()),
                ("row_id", pa.uint64()),
            ]
        )
        parts = [pa.table(part, schema=schema) for part in columns]
        return pa.concat_tables(parts).sort_by("position") if parts else schema.empty_table()

    def __repr__(self) -> str:
        return f"Run({self._run_id!r})"


def _entry(entry: dict[str, Any]) -> RunEntry:
    time = _EPOCH + timedelta(microseconds=entry["time_micros"])
    kept = {key: value for key, value in entry.items() if key not in ("run_id", "time_micros")}
    return RunEntry(**kept, time=time)
