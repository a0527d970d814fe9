"""A request for a blob column of Lance is an error that names the column; the table's other columns can be read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from conftest import Server

import stoker


def write_blobs(root: str, kind: str) -> None:
    """Writes the table `t` with the columns `id` and `x`, where `x` has blobs of the given kind."""
    values = [bytes([row]) * 5_000 for row in range(4)]
    if kind == "by metadata":
        field = pa.field("x", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        table = pa.table([pa.array(range(4)), pa.array(values, field.type)], pa.schema([("id", pa.int64()), field]))
        lance.write_dataset(table, f"{root}/t.lance")
        return
    schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("x")])
    table = pa.table([pa.array(range(4)), lance.blob_array(values)], schema)
    lance.write_dataset(table, f"{root}/t.lance", data_storage_version="2.2")


@pytest.fixture(params=["by metadata", "by type"])
def blob_path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    write_blobs(str(tmp_path), request.param)
    return str(tmp_path)


@pytest.fixture(params=["in process", "served"])
def target(request: pytest.FixtureRequest, blob_path: str) -> Iterator[str]:
    if request.param == "in process":
        yield blob_path
        return
    server = Server(blob_path)
    yield server.url
    server.stop()


def test_blobs_are_named_at_every_door(target: str) -> None:
    lake = stoker.connect(target)
    calls = [
        lambda: lake.sql("SELECT id, x FROM t").to_arrow(),
        lambda: lake.sql("SELECT * FROM t").to_arrow(),
        lambda: lake.sql("SELECT id FROM t WHERE x IS NOT NULL").to_arrow(),
        lambda: lake.sql("SELECT id, x FROM t").stream(batch_size=2),
        lambda: lake.sql("SELECT id, x FROM t").torch(batch_size=2),
    ]
    for call in calls:
        with pytest.raises(stoker.InvalidRequestError) as refused:
            call()
        text = str(refused.value)
        assert all(word in text for word in ("column x of table t", "blob column of Lance", "take_blobs")), text
    assert lake.sql("SELECT sum(id) AS n FROM t").to_arrow().to_pylist() == [{"n": 6}]
    assert lake.sql("SELECT id FROM t").stream(batch_size=4).num_rows == 4
    table = lake.table("t")
    assert [layout.kind for layout in table.describe()] == ["scalar", "blob"]
    assert [(finding.column, finding.code) for finding in table.doctor()] == [
        ("x", "blob"),
        (None, "unchecked_columns"),
    ]


@pytest.mark.parametrize("command", [["sql", "SELECT * FROM t"], ["stream", "SELECT x FROM t", "--batch-size", "2"]])
def test_the_command_names_blobs(blob_path: str, command: list[str]) -> None:
    done = subprocess.run(
        [os.environ["STOKER_BIN"], *command, "--lake", blob_path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "panicked" not in done.stderr
    assert all(word in done.stderr for word in ("column x of table t", "blob column of Lance")), done.stderr
