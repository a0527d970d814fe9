"""The list of open streams, from Python and from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from test_safe_defaults import TOKENS, tokens_file
from test_service import cli, serving

import stoker

#: The rows of a rank of two take more than a client receives ahead, which is the window of 32 MiB.
NUM_ROWS, ROW_BYTES = 24_000, 4_096
BATCH = 10


@pytest.fixture
def own_lake(tmp_path: Path) -> str:
    path = str(tmp_path / "lake")
    images = np.zeros((NUM_ROWS, ROW_BYTES), dtype=np.uint8)
    stoker.connect(path).create_table("samples", {"image": images})
    return path


def test_a_server_lists_the_streams_of_all_clients(own_lake: str, tmp_path: Path) -> None:
    file = tokens_file(tmp_path)
    with serving("--lake", own_lake, "--listen", "127.0.0.1:0", "--tokens-file", str(file)) as url:
        admin = stoker.connect(url, token=TOKENS["admin"])
        assert admin.streams() == []
        query = stoker.connect(url, token=TOKENS["read"]).sql("SELECT image FROM samples")
        stream = query.stream(batch_size=BATCH, seed=3, rank=1, world_size=2, memory_budget_bytes=1)
        with stream:
            batches = iter(stream)
            next(batches)
            (opened,) = admin.streams()
            assert opened["stream_id"] == stream.stream_id
            assert opened["client"].startswith("reader at 127.0.0.1")
            assert (opened["epoch"], opened["rank"], opened["world_size"], opened["first_step"]) == (0, 1, 2, 0)
            assert BATCH <= opened["rows"] <= NUM_ROWS // 2
            assert opened["bytes"] > 0
            assert opened["secs"] >= 0
            listed = cli("ps", "--json", STOKER_SERVER=url, STOKER_CLIENT_TOKEN=TOKENS["admin"])
            assert [line["stream_id"] for line in json.loads(listed.stdout)] == [stream.stream_id]
            table = cli("ps", STOKER_SERVER=url, STOKER_CLIENT_TOKEN=TOKENS["admin"]).stdout.splitlines()
            assert table[0].split()[:4] == ["stream_id", "client", "epoch", "rank"]
            assert table[1].startswith(stream.stream_id)
        refused = cli("ps", STOKER_SERVER=url, STOKER_CLIENT_TOKEN=TOKENS["read"])
        assert refused.returncode == 1
        assert "needs the role admin" in refused.stderr
        with pytest.raises(stoker.PermissionDeniedError, match="needs the role admin"):
            stoker.connect(url, token=TOKENS["read"]).streams()


def test_a_connection_lists_its_own_streams(own_lake: str) -> None:
    lake = stoker.connect(own_lake)
    with lake.sql("SELECT image FROM samples").stream(batch_size=BATCH) as stream:
        assert lake.streams() == [], "a stream is open once a loop reads it"
        batches = iter(stream)
        next(batches)
        assert [opened["client"] for opened in lake.streams()] == ["local"]
    assert lake.streams() == []
