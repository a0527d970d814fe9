"""A compressed stream or result has the same rows in fewer bytes."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import Server
from pyarrow import flight
from test_bad_input import message, sql_command, stream_command

import stoker

NUM_ROWS = 240
ALL = "SELECT id, mask, tokens, photo, name, tags, score FROM samples"
MASKS = "SELECT mask FROM samples"
CODECS = ["lz4", "zstd"]
#: The least factor by which compression must shrink the masks.
RATIO = 8


@pytest.fixture(scope="module")
def masks_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake whose table has tensors that compress well, tensors that do not, and columns that are no tensors."""
    rng = np.random.default_rng(5)
    ids = np.arange(NUM_ROWS)
    mask = np.zeros((NUM_ROWS, 64, 64), np.uint8)
    mask[:, 16:48, 16:48] = ids[:, None, None]
    columns = {
        "id": ids,
        "mask": mask,
        "tokens": rng.integers(0, 50, (NUM_ROWS, 512), np.int32),
        "photo": rng.integers(0, 256, (NUM_ROWS, 3, 32, 32), np.uint8),
        "name": pa.array([None if row % 3 == 0 else f"row {row} " * (row % 40) for row in range(NUM_ROWS)]),
        "tags": pa.array([[f"tag {tag}" for tag in range(row % 5)] for row in range(NUM_ROWS)]),
        "score": pa.array([None if row % 7 == 0 else row / 3 for row in range(NUM_ROWS)]),
    }
    path = str(tmp_path_factory.mktemp("masks"))
    stoker.connect(path).create_table("samples", columns, rows_per_fragment=100)
    return path


@contextmanager
def serving(lake_path: str) -> Iterator[Server]:
    """Runs a fresh server, whose counters are 0."""
    running = Server(lake_path)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def masks_server(masks_path: str) -> Iterator[Server]:
    with serving(masks_path) as running:
        yield running


def bytes_sent(url: str) -> int:
    """Waits until all streams of a server have ended; returns the bytes that it sent to them."""
    with flight.connect(url) as client:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            (answer,) = client.do_action(flight.Action("status", b""))
            status = json.loads(answer.body.to_pybytes())
            if status["streams_running"] == 0 and status["streams_ended"] > 0:
                return status["bytes_sent"]
    raise AssertionError(f"a stream does not end: {status}")


@pytest.mark.parametrize("num_endpoints", [1, 3])
@pytest.mark.parametrize("compression", CODECS)
def test_batches_are_those_without_compression(
    masks_path: str, masks_server: Server, compression: str, num_endpoints: int
) -> None:
    remote = stoker.connect(masks_server.url, num_endpoints=num_endpoints)
    here = stoker.connect(masks_path).sql(ALL).stream(batch_size=50, seed=7)
    there = remote.sql(ALL).stream(batch_size=50, seed=7, compression=compression)
    assert there.stream_id == here.stream_id
    for mine, theirs in zip(here, there, strict=True):
        assert theirs.to_arrow().equals(mine.to_arrow())
        assert theirs.cursor == mine.cursor
        np.testing.assert_array_equal(theirs.row_ids, mine.row_ids)
    assert there.state_dict() == here.state_dict()
    there.close()


@pytest.mark.parametrize("compression", CODECS)
def test_a_lake_in_this_process_ignores_it(masks_path: str, compression: str) -> None:
    query = stoker.connect(masks_path).sql(ALL)
    plain, compressed = (query.stream(batch_size=50, compression=codec) for codec in (None, compression))
    for mine, theirs in zip(plain, compressed, strict=True):
        assert theirs.to_arrow().equals(mine.to_arrow())
    assert query.to_arrow(compression=compression) == query.to_arrow()


@pytest.mark.parametrize("compression", CODECS)
def test_fewer_bytes_are_sent(masks_path: str, compression: str) -> None:
    sent = []
    for codec in (None, compression):
        with serving(masks_path) as running:
            with stoker.connect(running.url).sql(MASKS).stream(batch_size=40, compression=codec) as stream:
                masks = np.concatenate([batch["mask"][batch.valid] for batch in stream])
            sent.append(bytes_sent(running.url))
        assert sorted(masks[:, 20, 20].tolist()) == list(range(NUM_ROWS))
    assert sent[0] > NUM_ROWS * 64 * 64
    assert sent[1] * RATIO < sent[0]


def test_a_stock_client_reads_compressed_streams_and_results(masks_path: str) -> None:
    sent: dict[str, int] = {}
    masks: dict[str, pa.Table] = {}
    streams: dict[str, pa.Table] = {}
    results: dict[str, pa.Table] = {}
    for codec in ("", *CODECS):
        with serving(masks_path) as running, flight.connect(running.url) as client:
            read = {7: message({4: codec})} if codec else {}
            for sql, found in ((MASKS, masks), (ALL, streams)):
                query = message({1: sql, 4: "full"})
                descriptor = stream_command({1: query, **read}, {2: 1, 3: 50, 5: "uneven"})
                (endpoint,) = client.get_flight_info(descriptor).endpoints
                found[codec] = client.do_get(endpoint.ticket).read_all()
                sent.setdefault(codec, bytes_sent(running.url))  # Counts the masks only, which come first.
            ordered = message({1: f"{ALL} ORDER BY id", **({3: codec} if codec else {})})
            descriptor = flight.FlightDescriptor.for_command(message({1: 1, 3: ordered}))
            (endpoint,) = client.get_flight_info(descriptor).endpoints
            results[codec] = client.do_get(endpoint.ticket).read_all()
    assert streams[""].num_rows == results[""].num_rows == NUM_ROWS
    for codec in CODECS:
        streams[codec].validate(full=True)
        assert masks[codec].equals(masks[""])
        assert streams[codec].equals(streams[""])
        assert results[codec].equals(results[""])
        assert sent[codec] * RATIO < sent[""]


@pytest.mark.parametrize("compression", CODECS)
def test_results_are_those_without_compression(masks_path: str, masks_server: Server, compression: str) -> None:
    sql = f"{ALL} WHERE id % 3 < 2 ORDER BY id"
    query = stoker.connect(masks_server.url).sql(sql)
    expected = stoker.connect(masks_path).sql(sql).to_arrow()
    assert query.to_arrow(compression=compression) == query.to_arrow() == expected
    assert query.to_reader(compression=compression).read_all() == expected


def test_it_may_change_at_a_resume(masks_server: Server) -> None:
    query = stoker.connect(masks_server.url).sql(ALL)
    rows: list[int] = []
    with query.stream(batch_size=32, seed=3, compression="lz4") as stream:
        for batch in stream:
            rows += batch["id"][batch.valid].tolist()
            if batch.step == 2:
                break
        state = stream.state_dict()
    with query.stream(batch_size=25, seed=3, compression="zstd") as stream:
        stream.load_state_dict(state)
        for batch in stream:
            rows += batch["id"][batch.valid].tolist()
    assert sorted(rows) == list(range(NUM_ROWS))


def test_tensors_of_a_compressed_stream(masks_server: Server) -> None:
    pytest.importorskip("torch")
    loader = stoker.connect(masks_server.url).sql(ALL).torch(batch_size=60, seed=2, compression="zstd")
    seen = 0
    for batch in loader:
        assert batch["mask"][:, 16:48, 16:48].amin(dim=(1, 2)).tolist() == batch["id"].tolist()
        seen += batch.num_valid
    loader.close()
    assert seen == NUM_ROWS


def test_an_unknown_codec_is_refused(masks_path: str, masks_server: Server) -> None:
    query = stoker.connect(masks_path).sql(ALL)
    for call in (
        lambda: query.stream(batch_size=4, compression="gzip"),  # type: ignore[arg-type]
        lambda: query.to_arrow(compression="gzip"),  # type: ignore[arg-type]
        lambda: query.to_reader(compression="gzip"),  # type: ignore[arg-type]
    ):
        with pytest.raises(stoker.InvalidRequestError, match="compression is 'gzip'; it must be 'lz4', 'zstd' or None"):
            call()
    with flight.connect(masks_server.url) as client:
        for descriptor in (
            stream_command({1: message({1: ALL}), 7: message({4: "gzip"})}),
            flight.FlightDescriptor.for_command(message({1: 1, 3: message({1: ALL, 3: "gzip"})})),
        ):
            with pytest.raises(pa.ArrowInvalid, match='compression is "gzip"; use lz4 or zstd'):
                client.get_flight_info(descriptor)
        assert len(client.get_flight_info(sql_command(ALL)).endpoints) == 1


def test_the_command_line_takes_it(tmp_path: Path, masks_server: Server) -> None:
    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [os.environ["STOKER_BIN"], *args, "--server", masks_server.url]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    logs = []
    for codec in (None, *CODECS):
        option = [] if codec is None else ["--compression", codec]
        log = tmp_path / f"{codec}.jsonl"
        done = run("stream", ALL, "--batch-size", "50", "--log", str(log), *option)
        assert done.returncode == 0, done.stderr
        logs.append(log.read_text())
        printed = run("sql", f"{ALL} ORDER BY id LIMIT 3", *option)
        assert printed.returncode == 0, printed.stderr
    assert logs[0].count("\n") == 5
    assert logs[0] == logs[1] == logs[2]
    refused = run("stream", ALL, "--compression", "gzip")
    assert refused.returncode == 2
    assert "possible values: lz4, zstd" in refused.stderr
