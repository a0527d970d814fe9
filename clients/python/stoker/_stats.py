"""The counters of streams, and how the time of their steps was spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Stall", "StreamStats", "stream_stats"]

#: The parts into which the time of a step is divided.
_STALLS = ("storage", "decode", "network", "consumer")


@dataclass(frozen=True)
class Stall:
    """One part of the time of steps.

    Attributes:
        secs: The seconds of this part.
        share: The share of this part in the time of these steps, from 0 to 1.
    """

    secs: float = 0.0
    share: float = 0.0


def _no_stalls() -> dict[str, Stall]:
    return dict.fromkeys(_STALLS, Stall())


@dataclass(frozen=True)
class StreamStats:
    """The counters of a stream since the iteration began.

    A step lasts from one batch to the next. The time in which the loop's body runs counts for the consumer. The time in
    which the loop waits counts for what the batch needed: reads from storage, decoding, the network on the way from a
    server. Work that is done before the loop waits delays nothing and is not counted.

    Attributes:
        rows: The number of delivered rows, padding included.
        batches: The number of delivered batches.
        bytes: The number of bytes of the delivered columns.
        bytes_read: The number of bytes that range reads returned; bytes from the cache do not count. With
            ``direct_io``, whole blocks of the disk count.
        requests: The number of range reads.
        retries: The number of reads that were retried after transient faults.
        hedges: The number of second requests for reads that were slow compared with others.
        request_limit: The number of concurrent requests to object stores that all streams of the process may have now.
            It is adapted to the measured latency and bandwidth. 0 for a stream from a server, which reports its own
            limit in the action ``status``.
        verified_bytes: The number of bytes whose checksums were verified.
        cache_hit_bytes: The number of bytes of chunks that were read from ``cache_dir`` instead of the object store. A
            server counts its own.
        cache_miss_bytes: The number of bytes of chunks that were not in ``cache_dir``.
        cache_damaged: The number of chunks that were damaged in ``cache_dir``: they were removed, and read from the
            object store.
        wait_secs: Seconds for which the caller waited for batches.
        first_batch_secs: Seconds from opening to the first batch, or ``None`` before it.
        stalls: The time of the steps of this epoch, in parts: ``"storage"``, ``"decode"``, ``"network"`` and
            ``"consumer"``, each with seconds and share. The shares add up to 1 after the first step. Columns that
            Lance's decoder reads count as storage if they are in an object store, and as decode if they are on a local
            disk; decoding images counts as decode.
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


def stream_stats(native: Mapping[str, Any]) -> StreamStats:
    """Converts the native counters, with their times in seconds."""
    counters = dict(native)
    stalls, last_stalls = _stalls(counters.pop("stalls")), _stalls(counters.pop("last_step"))
    wait, first = counters.pop("wait_nanos"), counters.pop("first_batch_nanos")
    return StreamStats(
        **counters,
        wait_secs=wait / 1e9,
        first_batch_secs=None if first is None else first / 1e9,
        stalls=stalls,
        last_stalls=last_stalls,
    )


def _stalls(native: Mapping[str, Mapping[str, int]]) -> dict[str, Stall]:
    """Returns the parts of the time of some steps. A native time has whole seconds, and nanoseconds for the rest."""
    nanos = {name: native[name]["secs"] * 10**9 + native[name]["nanos"] for name in _STALLS}
    total = sum(nanos.values())
    return {name: Stall(value / 1e9, value / total if total else 0.0) for name, value in nanos.items()}
