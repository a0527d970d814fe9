"""`stoker stream` and the Python stream are one session: equal receipts, run logs and bad rows."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import Server
from damaged_lake import NUM_ROWS, QUERY, damaged_lake
from test_outages import PATIENCE, WordProxy

import stoker


@pytest.fixture
def own_lake(tmp_path: Path) -> stoker.Lake:
    """A lake whose table has three damaged rows."""
    return damaged_lake(tmp_path / "lake")


def cli(place: stoker.Lake, *args: str) -> dict[str, Any]:
    """Runs `stoker stream`; returns its report."""
    door = "--server" if place.target.startswith("grpc") else "--lake"
    command = [os.environ["STOKER_BIN"], "stream", *args, "--json", door, place.target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def rows_of(place: stoker.Lake, table: str, run_id: str) -> list[dict[str, Any]]:
    """Returns the rows of a run in a table, without the columns that differ between runs."""
    found = place.sql(f"SELECT * FROM {table} WHERE run_id = $1", params=[run_id]).to_arrow().to_pylist()
    kept = [{name: value for name, value in row.items() if name not in ("run_id", "time")} for row in found]
    return sorted(kept, key=str)


@pytest.mark.parametrize("last_batch", ["pad", "drop", "uneven"])
def test_the_command_line_leaves_what_the_python_stream_leaves(
    place: stoker.Lake, tmp_path: Path, last_batch: Any
) -> None:
    def names(rank: int) -> list[str]:
        return [f"{by}-{rank}" for by in ("cli", "python")]

    streams = []
    for rank in range(2):
        receipt = tmp_path / f"receipt{rank}"
        ranks = ["--rank", str(rank), "--world-size", "2", "--last-batch", last_batch]
        logged = ["--run-id", names(rank)[0], "--run-log", "--bad-rows", "substitute", "--receipt", str(receipt)]
        report = cli(place, QUERY, "--batch-size", "40", "--seed", "3", "--epochs", "2", *ranks, *logged)
        stream = place.sql(QUERY).stream(
            batch_size=40,
            seed=3,
            rank=rank,
            world_size=2,
            last_batch=last_batch,
            bad_rows="substitute",
            run_id=names(rank)[1],
            run_log=True,
        )
        steps = sum(1 for _ in range(2) for _ in stream)
        assert report["steps"] == steps
        assert json.loads(receipt.read_text()) == stream.receipt()
        assert report["substituted_rows"] >= len(stream.substituted())
        streams.append(stream)
    assert any(stream.substituted() for stream in streams)
    for rank, stream in enumerate(streams):
        for table, num_rows in (("stoker_run_log", 2 * (rank == 0)), ("stoker_bad_rows", len(stream.substituted()))):
            by_cli, by_python = (rows_of(place, table, run_id) for run_id in names(rank))
            assert by_cli == by_python, table
            assert len(by_cli) == num_rows, table


def test_the_command_line_goes_on_over_epochs_from_a_state(place: stoker.Lake, tmp_path: Path) -> None:
    stream = place.sql(QUERY).stream(batch_size=40, seed=3, bad_rows="substitute", rank=0, world_size=1)
    for batch in stream:
        if batch.step == 2:
            break
    state, receipt = json.dumps(stream.state_dict()), tmp_path / "receipt"
    options = ["--batch-size", "25", "--bad-rows", "substitute", "--receipt", str(receipt)]
    report = cli(place, "--state", state, "--epochs", "2", *options)
    assert (report["steps"], report["rows"]) == (8 + 12, NUM_ROWS - 120 + NUM_ROWS)
    assert (report["state"]["epoch"], report["state"]["position"], report["state"]["step"]) == (1, NUM_ROWS, 3 + 20)
    verdicts = place.verify([stream.receipt(), json.loads(receipt.read_text())])
    assert [verdict.is_exactly_once for verdict in verdicts] == [True, True]
    resumed = place.resume(report["state"], batch_size=25)
    assert (resumed.epoch, resumed.step) == (2, 23)


class Gate(WordProxy):
    """Holds requests that contain the word until the gate is open."""

    def __init__(self, server: Server, word: bytes) -> None:
        self.is_asked, self.is_open = threading.Event(), threading.Event()
        super().__init__(server, word)

    def notice(self) -> bool:
        self.is_asked.set()
        assert self.is_open.wait(PATIENCE)
        return False


def test_a_close_while_another_thread_loads_the_stream_counts(own_lake: stoker.Lake) -> None:
    server = Server(own_lake.target)
    # Only requests that load a stream have its row set.
    with closing(Gate(server, b"row_set")) as gate:
        stream = stoker.connect(f"grpc://127.0.0.1:{gate.port}").sql(QUERY).stream(batch_size=40, seed=3)
        copy = pickle.loads(pickle.dumps(stream))._session
        turn = copy.turn
        with ThreadPoolExecutor(1) as pool:
            loading = pool.submit(lambda: copy.schema)
            try:
                assert gate.is_asked.wait(PATIENCE)
                copy.close()
            finally:
                gate.is_open.set()
            loading.result(PATIENCE)
        assert copy.turn == turn + 1
    server.stop()
