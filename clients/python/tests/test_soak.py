"""A soak test: everything runs at once for a while, and at the end nothing is lost, repeated, wrong, or left behind.

    8 writers (6 append, 2 ingest) ───────────────┐
    compaction by pylance, `stoker cleanup` ──────┤
    8 jobs of 1 to 4 ranks, canary, questions ─┐  ├─► proxy with outages ──► S3
    attacks with a token and without one ──────┴► server ─┘

Jobs, writers, ingests, compactions and the server are killed with SIGKILL and run again. Environment variables:

- `STOKER_SOAK_SECS` is the length of the load in seconds (default: 120);
- `STOKER_SOAK_SEED` chooses what happens when (default: random; the test prints it);
- `STOKER_SOAK_STORE=http://KEY_ID:SECRET@127.0.0.1:PORT` names a running S3 store, which replaces moto. Moto is one
  Python process, and the first part that this load overloads on a machine with few processors.

One hour: `STOKER_SOAK_SECS=3600 pytest -s test_soak.py`, with `STOKER_BIN` as `cargo xtask test` sets it.
"""

from __future__ import annotations

import json
import os
import random
import resource
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import lance
import numpy as np
import pytest
from pyarrow import flight
from s3_store import RunningStore, Store
from soak_attacks import POOL_BYTES
from soak_checks import epoch_findings, table_findings, verdict_findings
from soak_outages import longest_outside
from soak_processes import STREAM_BYTES, Usage, open_files, token_of
from soak_run import LAKE, NUM_OLD_VERSIONS, NUM_STREAMS, Soak
from soak_stream import QUERIES, Progress, read_ledger
from soak_table import APPENDED, INGESTED, NUM_LABELS, columns

LOAD_SECS = float(os.environ.get("STOKER_SOAK_SECS", "120"))
HOUR_SECS = 3600.0
#: The limit of the canary's waits for a batch outside outages. A shared machine stalls programs for seconds, so short
#: runs only check that the canary does not hang.
GAP_SECS_MAX = 2.0 if LOAD_SECS >= HOUR_SECS else 30.0
#: The time within which the server must release the resources that the load took. The store's client closes connections
#: that were idle for `POOL_IDLE_SECS`, and looks for them as often.
QUIET_SECS = 240.0
THREADS_SLACK, FILES_SLACK = 8, 16
#: The memory that an idle server may keep beside that of its queries: metadata caches, and pages of its allocator.
MEMORY_SLACK_BYTES = 256 << 20
#: The memory that a server under attack may use beside its budgets at its peak; the same limit as in
#: `test_hostile_statements.py`.
PEAK_SLACK_BYTES = 512 << 20


@pytest.fixture
def soak_store(request: pytest.FixtureRequest) -> Store:
    """The store that `STOKER_SOAK_STORE` names, or else the store of all tests."""
    url = os.environ.get("STOKER_SOAK_STORE")
    return RunningStore(url) if url else request.getfixturevalue("store")


@contextmanager
def many_files() -> Iterator[None]:
    """Raises the limit of open files to the hard limit of this process, and restores it at the end."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextmanager
def reported(soak: Soak) -> Iterator[None]:
    """Prints the soak's report at the end, and after a failure also the last lines of all logs."""
    try:
        yield
    except BaseException:
        print(soak.logs())
        raise
    finally:
        print(soak.report(), flush=True)


@pytest.mark.timeout(2 * LOAD_SECS + 900)
def test_nothing_is_lost_or_left_behind(soak_store: Store, tmp_path: Path) -> None:
    seed = int(os.environ.get("STOKER_SOAK_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"\nSTOKER_SOAK_SEED={seed} STOKER_SOAK_SECS={LOAD_SECS:.0f}", flush=True)
    with many_files(), ExitStack() as stack:
        soak = Soak(soak_store, tmp_path, seed, LOAD_SECS, stack)
        with reported(soak):
            before = soak.prepare()
            soak.start_children()
            soak.start_threads()
            soak.play()
            soak.end()
            found = [
                *usage_findings(soak, before),
                *stored_findings(soak),
                *cleanup_findings(soak),
                *stream_findings(soak),
            ]
            found += [*canary_findings(soak), *coverage_findings(soak)]
            assert not found, f"with STOKER_SOAK_SEED={seed}: " + "\n".join(found)


def usage_findings(soak: Soak, before: Usage) -> list[str]:
    """Returns which limits the last server still exceeds after the load, and which servers exceeded the peak memory."""

    def judged(now: Usage) -> list[str]:
        limits = [
            ("threads", now.num_threads, before.num_threads + THREADS_SLACK),
            ("files", now.num_files, before.num_files + FILES_SLACK),
            ("bytes", now.resident_bytes, before.resident_bytes + POOL_BYTES + MEMORY_SLACK_BYTES),
        ]
        return [f"the server holds {held} {what}, more than {limit}" for what, held, limit in limits if held > limit]

    deadline = time.monotonic() + QUIET_SECS
    while judged(now := soak.server.usage()) and time.monotonic() < deadline:
        threading.Event().wait(0.5)
    found = judged(now)
    print(f"server: {before} before the load, {now} after it", flush=True)
    if found:
        found.append(f"open files, the store at port {soak.proxy.port}: {dict(open_files(soak.server.pid))}")
    # At the peak, queries and streams may use their whole budgets, and plans and connections use the slack.
    limit = before.resident_bytes + POOL_BYTES + STREAM_BYTES + PEAK_SLACK_BYTES
    for usage in [*soak.server.peaks, now]:
        if usage.peak_bytes > limit:
            found.append(f"a server held {usage.peak_bytes >> 20} MiB at its peak, more than {limit >> 20}")
    if (num := streams_running(soak)) != 0:
        found.append(f"{num} streams run on for nobody")
    return found


def streams_running(soak: Soak) -> int:
    """Returns the number of streams that the server is sending."""
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token_of('operator')}".encode())])
    with flight.connect(soak.server.url) as client:
        (answer,) = client.do_action(flight.Action("status", b""), options)
        return int(json.loads(answer.body.to_pybytes())["streams_running"])


def stored_findings(soak: Soak) -> list[str]:
    """Returns what is wrong with the tables, whose rows are read by pylance and through the server."""
    found = []
    for table in (APPENDED, INGESTED):
        stored = lance.dataset(f"{LAKE}/{table}.lance", storage_options=soak.store.options).to_table()
        ids = stored["id"].to_numpy()
        served = soak.connect("jobs").sql(f"SELECT id FROM {table} ORDER BY id").to_arrow()["id"].to_pylist()
        if served != sorted(ids.tolist()):
            found.append(f"{table}: the server tells other rows than pylance")
        wanted = columns(ids)
        payload = stored["payload"].combine_chunks().flatten().to_numpy().reshape(wanted["payload"].shape)
        if stored["name"].to_pylist() != wanted["name"] or not np.array_equal(payload, wanted["payload"]):
            found.append(f"{table}: rows have other values than were written")
        writes = soak.writes(table)
        found += table_findings(table, writes, ids.tolist())
        outcomes = Counter(write.outcome for write in writes)
        print(f"{table}: {len(ids)} rows, writes {dict(outcomes)}", flush=True)
        if outcomes["done"] == 0:
            found.append(f"{table}: no write was acknowledged")
    return found


def cleanup_findings(soak: Soak) -> list[str]:
    """Returns an error where the cleanups did not remove exactly the old versions.

    It runs two last cleanups, because the first may find the lock of a cleanup that an outage ended.
    """
    said = [soak.upkeep.clean_up(soak.aged_proxy.port) for _ in range(2)]
    dataset = lance.dataset(f"{LAKE}/{APPENDED}.lance", storage_options=soak.store.options)
    versions = sorted(version["version"] for version in dataset.versions())
    if versions == list(range(NUM_OLD_VERSIONS + 1, dataset.version + 1)):
        return []
    return [f"of versions 1 to {dataset.version}, cleanups left {versions}; the last ones said: {said}"]


def stream_findings(soak: Soak) -> list[str]:
    """Returns what is wrong with the rows and the receipts of the jobs."""
    found = []
    lake = soak.connect("jobs")
    num_epochs = num_lives = num_streams = 0
    for path in sorted(soak.folder.glob("stream-*.done")):
        progress = Progress.read(path)
        num_streams, num_lives = num_streams + 1, num_lives + progress.num_lives
        num_epochs += progress.num_finished
        epochs = read_ledger(path.with_suffix(".ledger"), progress.ledger_bytes)
        found += epoch_findings(path.name, epochs, progress.num_finished, snapshot_ids(soak, progress))
        found += verdict_findings(path.name, lake.verify(progress.receipts), progress.num_finished)
    print(f"jobs: {num_streams} streams, {num_epochs} epochs proved, {num_lives} lives", flush=True)
    if num_streams < NUM_STREAMS or num_lives == num_streams:
        found.append(f"{num_streams} streams in {num_lives} lives are too few to tell anything")
    return found


def snapshot_ids(soak: Soak, progress: Progress) -> list[int]:
    """Returns the ids that a job must get, which pylance reads from the job's snapshot."""
    ((table, version),) = progress.snapshots
    dataset = lance.dataset(f"{LAKE}/{table}.lance", version=version, storage_options=soak.store.options)
    below = QUERIES[progress.query][1]
    ids: list[int] = dataset.to_table(columns=["id"])["id"].to_pylist()
    return ids if below is None else [row for row in ids if row % NUM_LABELS < below]


def canary_findings(soak: Soak) -> list[str]:
    """Returns an error where the canary waited too long outside outages. Prints the events around its longest wait."""
    waits = soak.waits()
    secs, at = longest_outside(waits, soak.windows)
    longest = max((end - begin for begin, end in waits), default=0.0)
    away = sum(window.end - window.begin for window in soak.windows)
    print(f"canary: waited {secs:.2f} s outside {len(soak.windows)} outages ({away:.0f} s), {longest:.2f} s in all")
    near = [f"{when - at:+.1f} s {what}" for when, what in sorted(soak.journal) if -15 < when - at < secs]
    near += [f"{window.begin - at:+.1f} to {window.end - at:+.1f} s {window.kind}" for window in soak.windows]
    print(f"canary: from the beginning of that wait: {near}", flush=True)
    if secs <= GAP_SECS_MAX:
        return []
    return [f"the canary waited {secs:.1f} s for a batch, more than {GAP_SECS_MAX} s: {near}"]


def coverage_findings(soak: Soak) -> list[str]:
    """Returns the kinds of events that never happened in the soak, though they should have."""
    counts = soak.counts + soak.upkeep.counts
    wanted = ["kill server", "kill stream", "kill writer", "compact: done", "clean up: done", "attack", "answers"]
    return [f"{what}: it never came to pass" for what in wanted if counts[what] == 0]
