"""Counts of streams, and where the time of their steps went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Stall", "StreamStats", "stream_stats"]

#: What the time of a step may go to.
_STALLS = ("storage", "decode", "network", "consumer")


@dataclass(frozen=True)
class Stall:
    """A part of the time of steps.

    Attributes:
        secs: Its seconds.
        share: Its share of the time of these steps, from 0 to 1.
    """

    secs: float = 0.0
    share: float = 0.0


def _no_stalls() -> dict[str, Stall]:
    return dict.fromkeys(_STALLS, Stall())


@dataclass(frozen=True)
class StreamStats:
    """What a stream did since iteration began.

    A step lasts from one batch to the next. While the loop's body runs, its time is the consumer's. While the loop
    waits, it goes to what the batch was made of: reading from storage, decoding, the network on the way from a server.
    What happens ahead of the loop delays nobody and is not counted.

    Attributes:
        rows: Rows delivered, padding included.
        batches: Batches delivered.
        bytes: Bytes of the delivered columns.
        bytes_read: Bytes that range reads brought; what comes from the cache is not read. With ``direct_io``, whole
            blocks of the disk.
        requests: Range reads.
        retries: Reads repeated after transient faults.
        hedges: Second requests for reads that were slow beyond their peers.
        request_limit: Requests to object stores that all streams of the process may have under way now. It follows the
            latency and the bandwidth that they have. 0 for a stream from a server, which tells its own in the action
            ``status``.
        verified_bytes: Bytes that were compared with their checksums.
        cache_hit_bytes: Bytes of chunks that came from ``cache_dir`` in place of the object store. A server counts its
            own.
        cache_miss_bytes: Bytes of chunks that were not there.
        cache_damaged: Chunks that were damaged there: they were removed, and read from the object store.
        wait_secs: Seconds that the caller waited for batches.
        first_batch_secs: Seconds from opening to the first batch, or ``None`` before it.
        stalls: Where the time of the steps of this epoch went: ``"storage"``, ``"decode"``, ``"network"`` and
            ``"consumer"``, each with seconds and share. The shares add up to 1 once there was a step. Columns that
            Lance's decoder reads from an object store count as storage, from a local disk as decode, as does decoding
            images.
        last_stalls: The same for the last step.
    """

    rows: int = 0
    batches: int = 0
    bytes: int = 0
    bytes_read: int = 0
    requests: int = 0
    retries: int = 0
    hedges: int = 0
    request_limit: int = 0
    verified_bytes: int = 0
    cache_hit_bytes: int = 0
    cache_miss_bytes: int = 0
    cache_damaged: int = 0
    wait_secs: float = 0.0
    first_batch_secs: float | None = None
    stalls: Mapping[str, Stall] = field(default_factory=_no_stalls)
    last_stalls: Mapping[str, Stall] = field(default_factory=_no_stalls)


def stream_stats(native: Mapping[str, int | None]) -> StreamStats:
    """Returns the native counters with their times in seconds."""
    counters = dict(native)
    stalls, last_stalls = _stalls(counters, "stall"), _stalls(counters, "last_step")
    wait, first = counters.pop("wait_nanos", 0), counters.pop("first_batch_nanos", None)
    whole = {name: value or 0 for name, value in counters.items()}
    return StreamStats(
        **whole,
        wait_secs=(wait or 0) / 1e9,
        first_batch_secs=None if first is None else first / 1e9,
        stalls=stalls,
        last_stalls=last_stalls,
    )


def _stalls(counters: dict[str, int | None], prefix: str) -> dict[str, Stall]:
    """Takes the parts of the time of some steps out of the counters."""
    nanos = {name: counters.pop(f"{prefix}_{name}_nanos", 0) or 0 for name in _STALLS}
    total = sum(nanos.values())
    return {name: Stall(value / 1e9, value / total if total else 0.0) for name, value in nanos.items()}
