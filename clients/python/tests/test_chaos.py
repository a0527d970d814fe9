"""A job loses no row although ranks and replicas are killed, the world size changes, and store and network fail.

    ranks ── fault proxies ──► replica a, replica b ── fault proxy ──► S3
      └ rank 0 of each run connects to the replicas directly

The stored bytes of one row in a hundred are damaged. The job has three epochs in three runs, on 4, 3 and 6 ranks, each
rank a process. The first two runs are killed with SIGKILL, and the next run resumes from the newest checkpoint that all
ranks have saved. `STOKER_CHAOS_SEED` chooses the faults.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chaos_job import GRPC_FAULTS, LAKE, NUM_EPOCHS, QUERY, S3_FAULTS, STREAM, Chaos, Checkpoint, Run
from chaos_ledger import Phase, findings, name_of, payload_of, read_ledger
from s3_store import BUCKET, Store

import stoker

pytestmark = pytest.mark.alone

NUM_ROWS = 3_001
ROWS_PER_FRAGMENT = 1_100
#: Rows whose stored bytes are damaged.
POISONED = range(17, NUM_ROWS, 100)
#: An epoch has 94 steps of 32 rows. The first run is killed after about a tenth of the second epoch, and the second run
#: near the end of that epoch.
RUNS = [
    Run(4, {"batch_size": 8}, 32, kill_at_step=105),
    Run(3, {"batch_size": 7}, 21, num_endpoints=2, kill_at_step=117),
    Run(6, {"global_batch_size": 37, "last_batch": "uneven"}, 37),
]


@pytest.fixture(scope="module")
def store(store: Store) -> Store:
    """The store with the table `samples`, in three fragments and two versions, with damaged rows."""
    lake = stoker.connect(LAKE, storage_options=store.options)
    lake.create_table("samples", columns(range(2_000)), rows_per_fragment=ROWS_PER_FRAGMENT)
    lake.table("samples").append(columns(range(2_000, NUM_ROWS)))
    poison(store)
    return store


def columns(rows: range) -> dict[str, Any]:
    """Returns the rows with these ids."""
    payloads = np.frombuffer(b"".join(map(payload_of, rows)), np.uint8)
    return {"id": np.array(rows), "name": [name_of(row) for row in rows], "payload": payloads.reshape(len(rows), 2, -1)}


def poison(store: Store) -> None:
    """Flips one bit of each row of `POISONED` in the objects of the store."""
    num_found = 0
    objects = store.client.list_objects_v2(Bucket=BUCKET, Prefix="chaos/samples.lance/data/")["Contents"]
    for key in (found["Key"] for found in objects):
        stored = bytearray(store.client.get_object(Bucket=BUCKET, Key=key)["Body"].read())
        places = [at for at in (stored.find(payload_of(row)) for row in POISONED) if at >= 0]
        for at in places:
            stored[at + 1_000] ^= 0x40
        if places:
            store.client.put_object(Bucket=BUCKET, Key=key, Body=bytes(stored))
        num_found += len(places)
    assert num_found == len(POISONED)


def address_of(row: int) -> int:
    """Returns the row address of the row with this id: its fragment, and its offset in the fragment."""
    fragment = 2 if row >= 2_000 else row // ROWS_PER_FRAGMENT
    return (fragment << 32) + row - (0, ROWS_PER_FRAGMENT, 2_000)[fragment]


def order_without_faults(lake: stoker.Lake) -> tuple[str, list[list[int]]]:
    """Reads the stream in this process; returns its stream id, and for each epoch the ids of the rows in order.

    At the position of each damaged row, the order has the id of its substitute.
    """
    stream = lake.sql(QUERY).stream(**STREAM, batch_size=500, last_batch="uneven", rank=0, world_size=1)
    order = []
    for _ in range(NUM_EPOCHS):
        order.append([row for batch in stream for row in batch["id"].tolist()])
    return stream.stream_id, order


def test_no_row_is_lost_or_repeated(store: Store, tmp_path: Path) -> None:
    seed = int(os.environ.get("STOKER_CHAOS_SEED", "1"))
    lake = stoker.connect(LAKE, storage_options=store.options)
    stream_id, order = order_without_faults(lake)
    assert all(set(ids) == {*range(NUM_ROWS)} - {*POISONED} and len(ids) == NUM_ROWS for ids in order)
    with ExitStack() as stack:
        chaos = Chaos(store, tmp_path, seed, stack)
        stack.enter_context(chaos.reported())
        phases, receipts = [], []
        start, first_step, state = (0, 0), 0, None
        for number, run in enumerate(RUNS):
            ranks = chaos.run(number, run, state)
            assert [rank.process.returncode for rank in ranks] == [-9 if run.kill_at_step else 0] * run.world_size
            checkpoint = Checkpoint.newest(ranks)
            assert checkpoint.state["stream_id"] == stream_id
            ledgers = [read_ledger(rank.ledger) for rank in ranks]
            phases.append(Phase(start, checkpoint.place, first_step, run.global_batch, ledgers).cut())
            num_again = sum(map(len, ledgers)) - sum(map(len, phases[-1].ledgers))
            print(f"run {number}: {run.world_size} ranks, {start} to {checkpoint.place}, {num_again} batches again")
            if run.kill_at_step is not None:
                assert num_again > 0, "a kill costs what came after the checkpoint"
                assert len(set(map(len, ledgers))) > 1, "ranks were killed in different places"
            receipts += checkpoint.receipts
            start, state = checkpoint.place, checkpoint.state
            first_step += len(phases[-1].ledgers[0])
        assert start == (NUM_EPOCHS, 0)
        assert findings(phases, order) == []
        verdicts = lake.verify(receipts)
        assert [(verdict.epoch, verdict.is_exactly_once) for verdict in verdicts] == [(0, True), (1, True), (2, True)]
        for verdict in verdicts:
            bad = [row["row_addrs"] for row in verdict.substituted]
            assert sorted(bad) == [[address_of(row)] for row in POISONED], (
                "all ranks and replicas found the same rows bad"
            )
        assert not all(verdict.is_exactly_once for verdict in lake.verify(receipts[1:])), "a receipt is not there"
        print(chaos.report())
        assert set(chaos.s3_faults.fired) == set(S3_FAULTS), "each kind of fault came to pass"
        assert set(GRPC_FAULTS) <= set(chaos.grpc_faults.fired)
        assert chaos.grpc_faults.fired["lost_in_message"] > 0, "replicas were killed in the middle of a message"
        assert min(replica.num_kills for replica in chaos.replicas) > 1
