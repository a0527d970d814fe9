"""A lake for the tests of frameworks, in this process and through a server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

# Before JAX starts: four devices, so that shardings have something to divide.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import numpy as np
import pyarrow as pa
import pytest

import stoker

NUM_ROWS = 50


def tokens(row: int) -> list[int]:
    return [row * 10 + at for at in range(row % 7)]


@pytest.fixture(scope="session")
def lake_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a lake with a table of each kind of column that frameworks have tensors for."""
    rows = np.arange(NUM_ROWS)
    lake = stoker.connect(str(tmp_path_factory.mktemp("lake")))
    lake.create_table(
        "t",
        {
            "id": rows.astype(np.int32),
            "wide": rows,
            "image": (rows[:, None, None, None] + np.arange(48).reshape(3, 4, 4)).astype(np.uint8),
            "emb": (rows[:, None] + np.arange(8) / 8).astype(np.float32),
            "flag": rows % 3 == 0,
            "score": pa.array([None if row == 11 else row for row in rows.tolist()], pa.int32()),
            "tokens": pa.array([tokens(row) for row in rows.tolist()], pa.list_(pa.int32())),
            "name": [f"row {row}" for row in rows],
            "at": rows.astype("datetime64[s]"),
        },
        rows_per_fragment=20,
    )
    return lake.target


@pytest.fixture(params=["in process", "through a server"])
def lake(request: pytest.FixtureRequest, lake_path: str) -> Iterator[stoker.Lake]:
    """The lake, opened in this process and through a server."""
    yield from opened(lake_path, request.param)


def opened(lake_path: str, where: str) -> Iterator[stoker.Lake]:
    """Yields a lake, opened in this process or through a server that then stops."""
    if where == "in process":
        yield stoker.connect(lake_path)
        return
    command = [os.environ["STOKER_BIN"], "serve", "--lake", lake_path, "--listen", "127.0.0.1:0"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert running.stdout is not None
    found = next(filter(None, (re.search(r"listening on \S+://(127\.0\.0\.1:\d+)", line) for line in running.stdout)))
    yield stoker.connect(f"grpc://{found[1]}")
    running.send_signal(signal.SIGTERM)
    running.stdout.close()
    running.wait(timeout=30)


@pytest.fixture(scope="session")
def client() -> str:
    """The folder of the package `stoker`."""
    return str(Path(__file__).parent.parent)
