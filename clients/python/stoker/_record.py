"""The records of a stream: receipts, entries of the run log, and bad rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stoker import _native
from stoker._place import Place
from stoker._rows import NO_ROW

if TYPE_CHECKING:
    from stoker._lake import Lake

__all__ = ["Receipts", "log_bad_rows", "log_place"]

#: The version of a receipt without parts.
_VERSION_MIN = 2


class Receipts:
    """What loops received in finished passes, and what was left out on purpose."""

    def __init__(self) -> None:
        self.version = _VERSION_MIN
        self.parts: list[dict[str, Any]] = []
        self.skipped: list[dict[str, int]] = []
        self.dropped: list[dict[str, int]] = []

    def add(self, stream: _native.SampleStream, handed: int) -> None:
        """Adds the receipt of a finished pass, in which the loop got all steps before ``handed``."""
        found = json.loads(stream.receipt(handed))
        self.version = max(self.version, found["version"])
        self.parts += found["parts"]
        self.dropped += found.get("dropped", [])

    def skip(self, epoch: int, start: int, end: int) -> None:
        """Records positions that are left out."""
        self.skipped.append({"epoch": epoch, "start": start, "end": end})

    def document(self, stream_id: str, running: _native.SampleStream | None, handed: int) -> dict[str, Any]:
        """Returns the receipt as JSON values, with what the running pass has delivered so far."""
        found = {} if running is None else json.loads(running.receipt(handed))
        dropped = [*self.dropped, *found.get("dropped", [])]
        receipt: dict[str, Any] = {
            "version": max(self.version, found.get("version", _VERSION_MIN)),
            "stream_id": stream_id,
            "parts": [*self.parts, *found.get("parts", [])],
        }
        if self.skipped:
            receipt["skipped"] = list(self.skipped)
        if dropped:
            receipt["dropped"] = dropped
        return receipt


def log_place(lake: Lake, run_id: str, event: str, stream_id: str, place: Place, policy: tuple[str, int]) -> None:
    """Adds an entry to the run log: the positions that the run has from a step on.

    Args:
        lake: The lake.
        run_id: The run.
        event: The reason why the steps do not follow from the entry before: ``"epoch"``, ``"resume"``, ``"skip"``,
            ``"weights"``.
        stream_id: The stream.
        place: The progress of the stream.
        policy: The last-batch policy, and the number of ranks.
    """
    last_batch, world_size = policy
    entry = {
        "run_id": run_id,
        "event": event,
        "stream_id": stream_id,
        "step": place.first_step,
        "epoch": place.epoch,
        "position": place.origin,
        "global_batch": place.log[-1][2],
        "last_batch": last_batch,
        "world_size": world_size,
        "time_micros": 0,
    }
    lake._native.log_run(entry)


def log_bad_rows(lake: Lake, run_id: str, handle: _native.StreamHandle, epoch: int, receipt: dict[str, Any]) -> None:
    """Adds the rows that the receipt says were substituted in an epoch to the table of bad rows."""
    tables = [table for tables in handle.row_tables for table in tables]
    rows = [
        {
            "run_id": run_id,
            "stream_id": handle.stream_id,
            "epoch": epoch,
            "position": row["position"],
            "table": table,
            "version": version,
            "row_addr": address,
            "reason": row["reason"],
        }
        for part in receipt["parts"]
        if part["epoch"] == epoch
        for row in part.get("substituted", [])
        for (table, version), address in zip(tables, row["row_addrs"], strict=True)
        if address != NO_ROW
    ]
    if rows:
        lake._native.log_bad_rows(rows)
