"""The statistics of a stream: which part of the work takes the time of its steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from conftest import Server
from fault_proxy import Faults, Head, S3Proxy
from s3_store import BUCKET, Store

import stoker

PARTS = {"storage", "decode", "network", "consumer"}
NUM_ROWS = 400
#: The delay, in seconds, that the proxy adds to each GET.
LATENCY_SECS = 0.2
#: The time, in seconds, that a slow consumer takes for each batch.
PAUSE_SECS = 0.05


class SlowS3(S3Proxy):
    """An S3 server with a high latency: each GET is delayed by `LATENCY_SECS`."""

    async def _forward(
        self, request: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: str | None
    ) -> bool:
        if request.method == "GET":
            await asyncio.sleep(LATENCY_SECS)
        return await super()._forward(request, reader, writer, fault)


@pytest.fixture(scope="module")
def far_lake(store: Store) -> Iterator[stoker.Lake]:
    """A lake on a store with a high latency, with a table whose images are read as plain bytes."""
    uri = f"s3://{BUCKET}/far"
    pixels = np.arange(NUM_ROWS, dtype=np.uint8)[:, None, None, None] * np.ones((1, 3, 32, 32), np.uint8)
    near = stoker.connect(uri, storage_options=store.options)
    near.create_table("samples", {"id": np.arange(NUM_ROWS), "image": pixels})
    with closing(SlowS3(int(store.endpoint.rpartition(":")[2]), Faults(0, {}))) as proxy:
        options = store.options_at(proxy.port)
        yield stoker.connect(uri, storage_options=options)


def largest(stalls: Mapping[str, stoker.Stall]) -> str:
    """Returns the part with the largest share, after checking that all shares are proportional to the seconds."""
    assert set(stalls) == PARTS
    assert sum(stall.share for stall in stalls.values()) == pytest.approx(1, abs=0.01)
    total = sum(stall.secs for stall in stalls.values())
    for stall in stalls.values():
        assert stall.share == pytest.approx(stall.secs / total, abs=0.01)
    return max(stalls, key=lambda name: stalls[name].share)


@pytest.mark.parametrize("where", ["in process", "through a server"])
def test_a_slow_consumer_is_what_takes_the_time(lake_path: str, server: Server, where: str) -> None:
    lake = stoker.connect(lake_path if where == "in process" else server.url)
    stream = lake.sql("SELECT id, image FROM samples").stream(batch_size=4, seed=1)
    assert {stall.secs for stall in stream.stats().stalls.values()} == {0.0}
    for _ in stream:
        time.sleep(PAUSE_SECS)
    stats = stream.stats()
    assert largest(stats.stalls) == largest(stats.last_stalls) == "consumer"
    assert stats.stalls["consumer"].secs > stats.wait_secs
    waited = sum(stats.stalls[part].secs for part in PARTS - {"consumer"})
    assert waited == pytest.approx(stats.wait_secs, abs=1e-3)


def test_a_store_far_away_is_what_takes_the_time(far_lake: stoker.Lake) -> None:
    query = far_lake.sql("SELECT id, image FROM samples")
    # The budget has memory for two batches of 150 kB, so that little is prefetched.
    stream = query.stream(batch_size=50, seed=1, memory_budget_bytes=400_000)
    first = None
    for _ in stream:
        first = first or stream.stats()
    assert first is not None
    assert largest(first.stalls) == largest(first.last_stalls) == "storage"
    assert first.stalls == first.last_stalls
    stats = stream.stats()
    assert (stats.rows, largest(stats.stalls)) == (NUM_ROWS, "storage")
    assert stats.stalls["network"].secs == 0


def test_a_server_tells_what_it_waited_for(server: Server) -> None:
    query = stoker.connect(server.url).sql("SELECT id, image FROM samples")
    waited = 0.0
    for _ in range(20):
        stream = query.stream(batch_size=4)
        for _ in stream:
            pass
        stalls = stream.stats().stalls
        largest(stalls)
        assert all(stalls[part].secs > 0 for part in PARTS - {"storage"})
        # Rows that are in the page cache may be read before the server waits for them.
        waited += stalls["storage"].secs
    assert waited > 0


def test_streams_of_a_connection_share_its_budget(lake_path: str) -> None:
    lake = stoker.connect(lake_path, memory_budget_bytes=10_000)
    query = lake.sql("SELECT id, image FROM samples")
    streams = [query.stream(batch_size=3, seed=2, rank=rank, world_size=8) for rank in range(8)]
    batches = zip(*streams, strict=True)
    rows = [row for step in batches for batch in step for row in batch["id"][batch.valid].tolist()]
    assert sorted(rows) == list(range(101))


def test_stalls_are_kept_after_the_stream(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    lake.create_table("samples", {"id": np.arange(30)})
    stream = lake.sql("SELECT id FROM samples").stream(batch_size=10)
    for _ in stream:
        break
    kept = stream.stats()
    assert kept.batches == 1
    assert largest(kept.stalls) != "network"
    assert kept.stalls == stream.stats().stalls
