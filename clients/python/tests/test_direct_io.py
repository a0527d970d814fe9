"""Direct reads, which bypass the page cache, give the same batches as other reads."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.flight as flight
import pytest
from conftest import Server

import stoker

NUM_ROWS = 300
QUERY = "SELECT id, image FROM t"


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake with a table of tensors of 2,700 bytes, in several files."""
    path = str(tmp_path_factory.mktemp("lake"))
    image = np.random.default_rng(0).integers(0, 256, (NUM_ROWS, 3, 30, 30), dtype=np.uint8)
    stoker.connect(path).create_table("t", {"id": np.arange(NUM_ROWS), "image": image}, rows_per_fragment=128)
    return path


def whole_blocks(lake_path: str, bytes_read: float) -> bool:
    """Returns whether `bytes_read` is a number of whole blocks, as direct reads give.

    Always returns True if the file system refuses direct reads.
    """
    if not hasattr(os, "O_DIRECT"):
        return True
    data = next(Path(lake_path).glob("t.lance/data/*"))
    try:
        descriptor = os.open(data, os.O_RDONLY | os.O_DIRECT)
        try:
            os.preadv(descriptor, [mmap.mmap(-1, 4096)], 0)
        finally:
            os.close(descriptor)
    except OSError:
        return True
    return bytes_read > 0 and bytes_read % 4096 == 0


@pytest.mark.parametrize("shuffle", ["block", "full", False])
def test_batches_and_states_are_the_same(heavy: str, shuffle: str | bool) -> None:
    options = {"batch_size": 32, "seed": 7, "shuffle": shuffle, "rank": 0, "world_size": 1}
    plain = stoker.connect(heavy).sql(QUERY).stream(**options)
    direct = stoker.connect(heavy, direct_io=True).sql(QUERY).stream(**options)
    for expected, batch in zip(plain, direct, strict=True):
        np.testing.assert_array_equal(batch["id"], expected["id"])
        np.testing.assert_array_equal(batch["image"], expected["image"])
        assert batch.cursor == expected.cursor
        assert direct.state_dict() == plain.state_dict()
    assert direct.stats().verified_bytes >= NUM_ROWS * 2_700
    assert whole_blocks(heavy, direct.stats().bytes_read)


def test_a_loader_goes_on_from_a_state_of_the_other_kind(heavy: str) -> None:
    torch = pytest.importorskip("torch")
    plain = stoker.connect(heavy).sql(QUERY).torch(batch_size=32, seed=7)
    direct = stoker.connect(heavy, direct_io=True).sql(QUERY).torch(batch_size=32, seed=7)
    expected = list(plain)
    for step, batch in enumerate(direct):
        assert torch.equal(batch["image"], expected[step]["image"])
        if step == 3:
            break
    again = stoker.connect(heavy).sql(QUERY).torch(batch_size=32, seed=7)
    again.load_state_dict(direct.state_dict())
    rest = list(again)
    assert len(rest) == len(expected) - 4
    for batch, same in zip(rest, expected[4:], strict=True):
        assert torch.equal(batch["id"], same["id"])
        assert torch.equal(batch["image"], same["image"])


@pytest.mark.parametrize("setting", ["environment", "file"])
def test_a_server_may_read_so(heavy: str, tmp_path: Path, setting: str) -> None:
    file = tmp_path / "stoker.toml"
    file.write_text("direct_io = true\n")
    server = Server(heavy, {"STOKER_DIRECT_IO": "1"} if setting == "environment" else {"STOKER_CONFIG": str(file)})
    options = {"batch_size": 32, "seed": 7, "rank": 0, "world_size": 1}
    try:
        remote = stoker.connect(server.url).sql(QUERY).stream(**options)
        for expected, batch in zip(stoker.connect(heavy).sql(QUERY).stream(**options), remote, strict=True):
            np.testing.assert_array_equal(batch["image"], expected["image"])
        with flight.connect(server.url) as client:
            status: dict[str, float] = {"streams_ended": 0}
            while status["streams_ended"] == 0:
                (answer,) = client.do_action(flight.Action("status", b""))
                status = json.loads(answer.body.to_pybytes())
        assert whole_blocks(heavy, status["bytes_read"])
    finally:
        server.stop()


def test_it_is_refused_for_a_server() -> None:
    with pytest.raises(stoker.InvalidRequestError, match="direct_io is for lakes"):
        stoker.connect("grpc://127.0.0.1:1", direct_io=True)


def test_lakes_in_object_stores_do_without() -> None:
    lake = stoker.connect("memory://", direct_io=True)
    lake.create_table("t", {"image": np.ones((8, 3, 30, 30), dtype=np.uint8)})
    (batch,) = lake.sql("SELECT image FROM t").stream(batch_size=8, rank=0, world_size=1)
    assert batch["image"].all()


def test_the_command_line_takes_it(heavy: str) -> None:
    command = [os.environ["STOKER_BIN"], "stream", QUERY, "--batch-size", "32", "--direct-io"]
    subprocess.run([*command, "--lake", heavy], check=True, timeout=60)
    command += ["--server", "grpc://127.0.0.1:1"]
    refused = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60)
    assert refused.returncode != 0
    assert "direct_io is for lakes" in refused.stderr
