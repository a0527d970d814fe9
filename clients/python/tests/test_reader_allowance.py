"""The limits of the objects and bytes that readers may leave in a server's lake in a day."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import make_columns
from pyarrow import flight
from test_safe_defaults import TOKENS, authorized, tokens_file, watched

import stoker

QUERY = "SELECT id, image FROM samples"


@pytest.fixture
def own_lake(tmp_path: Path) -> str:
    path = str(tmp_path / "lake")
    stoker.connect(path).create_table("samples", make_columns(40), rows_per_fragment=16)
    return path


@contextmanager
def served(tmp_path: Path, lake: str, **limits: int) -> Iterator[str]:
    """Runs a server with these limits, and gives its URL."""
    options = [text for name, limit in limits.items() for text in (f"--{name.replace('_', '-')}", str(limit))]
    listen = ["--listen", "127.0.0.1:0", "--tokens-file", str(tokens_file(tmp_path))]
    with watched(tmp_path, "--lake", lake, *listen, *options) as server:
        yield server.url


def left(lake: str) -> set[str]:
    """Returns the names of the objects with a lake's specifications, row sets and runs."""
    root = Path(lake) / "_stoker"
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith("probes/")}


def rows(stream: stoker.Stream) -> int:
    return sum(batch.num_valid for batch in stream)


def test_objects(tmp_path: Path, own_lake: str) -> None:
    with served(tmp_path, own_lake, reader_objects_per_day=4) as url:
        reader, writer = (stoker.connect(url, token=TOKENS[role]) for role in ("read", "write"))
        query = reader.sql(QUERY)
        num_rows = rows(query.stream(batch_size=8, seed=1))
        assert len(left(own_lake)) == 3, "a specification, a row set and its page"
        assert rows(query.stream(batch_size=8, seed=2)) == num_rows
        before = left(own_lake)
        refused = r"reader has used up its 4 objects per day.*to the lake.*in 24 h.*--reader-objects-per-day"
        with pytest.raises(stoker.ResourceExhaustedError, match=refused):
            query.stream(batch_size=8, seed=3)
        with pytest.raises(stoker.ResourceExhaustedError, match=refused):
            query.stream(batch_size=8, seed=1, run_id="mine")
        assert left(own_lake) == before
        assert rows(query.stream(batch_size=8, seed=1)) == num_rows, "streams that were planned before go on"
        assert rows(writer.sql(QUERY).stream(batch_size=8, seed=3)) == num_rows, "others are not limited"
        assert rows(query.stream(batch_size=8, seed=3)) == num_rows


def test_row_sets_that_grew_old_cost_nothing(tmp_path: Path, own_lake: str) -> None:
    with served(tmp_path, own_lake, reader_objects_per_day=3) as url:
        query = stoker.connect(url, token=TOKENS["read"]).sql(QUERY)
        num_rows = rows(query.stream(batch_size=8, seed=1))
        for path in (Path(own_lake) / "_stoker" / "rowsets").rglob("*"):
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 13 * 3600))
        assert rows(query.stream(batch_size=8, seed=1)) == num_rows


def test_specifications_of_a_readers_own_making(tmp_path: Path, own_lake: str) -> None:
    stream_id = stoker.connect(own_lake).sql(f"{QUERY} ORDER BY id").stream(batch_size=4, seed=5).stream_id
    spec = json.loads((Path(own_lake) / "_stoker" / "specs" / stream_id).read_text())
    source = spec["sources"][0]
    with served(tmp_path, own_lake, reader_objects_per_day=4) as url, flight.connect(url) as client:
        before = left(own_lake)
        for number in range(1, 8):
            made_up = source | {"sql": f"{QUERY} WHERE id <> {number} ORDER BY id", "row_set": f"{number:064x}"}
            body = {
                "spec": json.dumps(spec | {"sources": [made_up]}),
                "epoch": 0,
                "beside": [{"position": 0, "offset": 1}],
            }
            with pytest.raises((flight.FlightError, OSError, KeyError, ValueError, MemoryError)) as refused:
                list(
                    client.do_action(
                        flight.Action("rows_beside", json.dumps(body).encode()), authorized(TOKENS["read"])
                    )
                )
        assert "reader has used up its 4 objects per day" in str(refused.value)
        assert len(left(own_lake) - before) <= 4


def test_bytes(tmp_path: Path, own_lake: str) -> None:
    with served(tmp_path, own_lake, reader_bytes_per_day=300) as url:
        reader = stoker.connect(url, token=TOKENS["read"])
        with pytest.raises(stoker.ResourceExhaustedError, match="reader has used up its 300 bytes per day"):
            reader.sql(f"{QUERY} ORDER BY id").stream(batch_size=8)
        writer = stoker.connect(url, token=TOKENS["write"])
        writer.sql(f"{QUERY} ORDER BY id").stream(batch_size=8, run_id="theirs")
        assert rows(reader.sql(f"{QUERY} ORDER BY id").stream(batch_size=8, run_id="theirs")) > 0


def test_logs_of_runs(tmp_path: Path, own_lake: str) -> None:
    with served(tmp_path, own_lake, reader_objects_per_day=10) as url:
        lake = stoker.connect(url, token=TOKENS["read"])
        stream = lake.sql(QUERY).stream(batch_size=8, run_id="mine", run_log=True)
        for epoch in range(2):
            stream.set_epoch(epoch)
            rows(stream)
        assert len(lake.run("mine").entries()) == 2
        stream.set_epoch(2)
        with pytest.raises(stoker.ResourceExhaustedError, match="reader has used up its 10 objects per day"):
            rows(stream)
        assert len(lake.run("mine").entries()) == 2
