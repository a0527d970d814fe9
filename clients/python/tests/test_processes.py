"""Forked and spawned processes, ranks of torch.distributed, signals."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import NUM_ROWS, make_columns

import stoker

CLIENT = str(Path(__file__).parent.parent)


def ids_of(batch: stoker.Batch) -> list[int]:
    return batch["id"][batch.valid].tolist()


def in_fork(work: Any) -> str:
    """Runs a function in a forked child, and returns the text of its result or of its exception."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(work())
        except BaseException as failed:
            text = f"{type(failed).__name__}: {failed}"
        os.write(writable, text.encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as pipe:
        text = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return text


def test_a_forked_child_iterates(lake: stoker.Lake) -> None:
    stream = lake.sql("SELECT id, image FROM samples").stream(batch_size=10)
    running = iter(stream)
    first = ids_of(next(running))
    expected = sorted(set(range(NUM_ROWS)) - set(first))
    child = in_fork(lambda: sorted(row for batch in stream for row in ids_of(batch)))
    assert child == str(expected)
    assert in_fork(lambda: sorted(row for batch in running for row in ids_of(batch))) == str(expected)
    assert in_fork(lake.tables) == "['samples']"
    assert sorted(row for batch in running for row in ids_of(batch)) == expected


def test_a_memory_lake_does_not_fork() -> None:
    lake = stoker.connect("memory://")
    lake.create_table("t", make_columns(3))
    assert in_fork(lake.tables).startswith("InvalidRequestError: memory://")
    assert lake.tables() == ["t"]


def rows_of_rank(stream: stoker.Stream) -> list[int]:
    return [row for batch in stream for row in ids_of(batch)]


def test_spawned_ranks_get_every_row_once(lake: stoker.Lake) -> None:
    query = lake.sql("SELECT id FROM samples")
    streams = [query.stream(global_batch_size=7, rank=rank, world_size=3) for rank in range(3)]
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        rows = pool.map(rows_of_rank, streams)
    assert sorted(row for some in rows for row in some) == list(range(NUM_ROWS))


def python(code: str, *args: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        env={**os.environ, "PYTHONPATH": CLIENT, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ranks_agree_on_one_snapshot(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    lake = stoker.connect(str(tmp_path / "lake"))
    lake.create_table("t", make_columns(30))
    code = """
    import json, sys
    import torch.distributed as dist
    import stoker
    from conftest import make_columns

    path, store, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    lake = stoker.connect(path)
    errors = []
    try:
        lake.sql("SELECT count(*) AS n FROM t").stream(batch_size=2)
    except stoker.InvalidRequestError as refused:
        errors.append(str(refused))
    query = lake.sql("SELECT id FROM t")
    stream = query.stream(batch_size=4)
    version = stream.snapshots[0][1]
    dist.barrier()
    if rank == 0:
        lake.table("t").append(make_columns(5, start=30))
    dist.barrier()
    rows = [row for batch in stream for row in batch["id"][batch.valid].tolist()]
    loader = query.torch(batch_size=4)
    print(json.dumps([len(errors), stream.rank, stream.world_size, version, rows, loader.stream.stream_id]))
    dist.destroy_process_group()
    """
    store = str(tmp_path / "store")
    tests = str(Path(__file__).parent)
    path = f"{CLIENT}{os.pathsep}{tests}"
    ranks = [python(code, str(tmp_path / "lake"), store, str(rank), PYTHONPATH=path) for rank in range(2)]
    results = []
    for process in ranks:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        results.append(out.strip().splitlines()[-1])
    first, second = (json.loads(result) for result in results)
    assert first[:4] == [1, 0, 2, second[3]]
    assert second[:3] == [1, 1, 2]
    assert sorted(first[4] + second[4]) == list(range(30))
    assert first[5] == second[5]


def test_ctrl_c_ends_a_wait(tmp_path: Path) -> None:
    stoker.connect(str(tmp_path)).create_table("t", {"id": range(3000)})
    # A shell's background jobs ignore SIGINT, and their children inherit that, so the program sets the handler anew.
    code = """
    import signal
    import sys
    import stoker

    signal.signal(signal.SIGINT, signal.default_int_handler)
    query = stoker.connect(sys.argv[1]).sql("SELECT count(*) FROM t a, t b, t c, t d WHERE a.id * b.id = c.id + d.id")
    try:
        print("waiting", flush=True)
        query.to_arrow()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """
    process = python(code, str(tmp_path))
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert out == "interrupted\n", err
    assert process.returncode == 0


#: The beginning of a program whose eight daemon threads run queries and read streams.
BUSY_THREADS = """
import signal
import sys
import threading
import stoker

signal.signal(signal.SIGINT, signal.default_int_handler)
lake = stoker.connect(sys.argv[1])
query = lake.sql("SELECT count(*) FROM t a, t b, t c, t d WHERE a.id * b.id = c.id + d.id")

def stream():
    for _ in range(10_000):
        for batch in lake.sql("SELECT id FROM t").stream(batch_size=7):
            batch["id"].sum()

for work in (query.to_arrow, stream) * 4:
    threading.Thread(target=work, daemon=True).start()
"""


def test_ctrl_c_ends_a_wait_while_queries_keep_all_threads_busy(tmp_path: Path) -> None:
    stoker.connect(str(tmp_path)).create_table("t", {"id": range(3000)})
    process = python(
        BUSY_THREADS
        + """
try:
    print("waiting", flush=True)
    query.to_arrow()
except KeyboardInterrupt:
    print("interrupted", flush=True)
""",
        str(tmp_path),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("interrupted\n", 0), err


def test_a_process_ends_while_daemon_threads_read(tmp_path: Path) -> None:
    stoker.connect(str(tmp_path)).create_table("t", {"id": range(3000)})
    for _ in range(5):
        process = python(BUSY_THREADS + "print(len(lake.tables()))", str(tmp_path))
        out, err = process.communicate(timeout=60)
        assert (out, process.returncode) == ("1\n", 0), err
