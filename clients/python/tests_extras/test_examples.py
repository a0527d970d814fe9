"""The examples for JAX and TensorFlow, with real processes: a stop, a resume, and receipts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stoker

NUM_TRAIN, NUM_TEST = 203, 41
CLIENT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a lake with a table `digits` like that of the demo."""
    rng = np.random.default_rng(0)
    num_rows = NUM_TRAIN + NUM_TEST
    lake = stoker.connect(str(tmp_path_factory.mktemp("digits")))
    columns = {
        "image": rng.integers(0, 255, (num_rows, 1, 8, 8), dtype=np.uint8),
        "label": rng.integers(0, 10, num_rows).astype(np.int32),
        "split": ["train"] * NUM_TRAIN + ["test"] * NUM_TEST,
    }
    lake.create_table("digits", columns)
    return lake.target


def start(example: str, lake: str, *options: str) -> subprocess.Popen[str]:
    script = str(CLIENT / "examples" / f"train_{example}.py")
    environment = {**os.environ, "PYTHONPATH": str(CLIENT), "XLA_FLAGS": ""}
    command = [sys.executable, script, "--lake", lake, *options]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(job: subprocess.Popen[str]) -> str:
    said, errors = job.communicate(timeout=280)
    assert job.returncode == 0, said[-2000:] + errors[-4000:]
    return said


@pytest.mark.parametrize("example", ["jax", "tensorflow"])
def test_an_example_stops_and_continues(example: str, digits: str, tmp_path: Path) -> None:
    checkpoint = ["--checkpoint", str(tmp_path / "checkpoint")]
    assert "epoch" not in finish(start(example, digits, *checkpoint, "--stop-after-steps", "2"))
    said = finish(start(example, digits, *checkpoint))
    assert [line.split(":")[0] for line in said.splitlines() if line.startswith("epoch")] == ["epoch 0", "epoch 1"]
    assert said.count(f"on {NUM_TEST} rows") == 2


def test_two_processes_of_jax_read_each_row_once(digits: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{taken.getsockname()[1]}"
    options = ["--checkpoint", str(tmp_path / "c"), "--receipts", str(tmp_path / "receipts"), "--epochs", "1"]
    options += ["--coordinator", coordinator, "--num-processes", "2", "--process"]
    jobs = [start("jax", digits, *options, str(process)) for process in range(2)]
    said = [[line for line in finish(job).splitlines() if line.startswith("epoch")] for job in jobs]
    assert said[0] == said[1]
    assert f"on {NUM_TEST} rows" in said[0][0]
    receipts = [json.loads(file.read_text()) for file in sorted((tmp_path / "receipts").iterdir())]
    assert len(receipts) == 2
    (verdict,) = stoker.connect(digits).verify(receipts)
    assert verdict.is_exactly_once
