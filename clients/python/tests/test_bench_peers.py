"""The comparison with other loaders measures what it claims to measure; no test here asserts a speed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

BENCH = Path(__file__).parents[1] / "bench"
sys.path.insert(0, str(BENCH))

from harness.child import ChildError, environment, run_module  # noqa: E402
from harness.dataset import Dataset  # noqa: E402
from harness.measure import Epoch, fault_of, first_epoch, further_epochs, measure  # noqa: E402
from harness.mixing import expected_distinct  # noqa: E402
from harness.progress import Progress  # noqa: E402
from harness.rows import IMAGE_BYTES, IMAGE_SHAPE  # noqa: E402
from harness.store import StoreError, check_loopback  # noqa: E402
from harness.task import DataPath, Order, Place, Setting, Task  # noqa: E402
from peers import SYSTEMS  # noqa: E402

NUM_ROWS = 300
BATCH_SIZE = 64
#: The systems whose libraries are installed in this environment.
SYSTEMS_HERE = ("ceiling", "stoker", "pylance-scan", "pylance-take", "pylance-blocks")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rows in the formats of these systems."""
    root = tmp_path_factory.mktemp("data")
    for data_format in ("flat", "stoker", "pylance"):
        (root / data_format).mkdir()
    dataset = Dataset.write(root / "flat", NUM_ROWS)
    for system in ("stoker", "pylance-scan"):
        SYSTEMS[system].write(dataset, root / SYSTEMS[system].data_format)
    return root


def task(root: Path, system: str, path: str) -> Task:
    """Returns the task of measuring tiny data, for one epoch after the first."""
    return Task(system, path, Setting(), str(root), NUM_ROWS, BATCH_SIZE, 7, "", None, 60.0, 0.0)


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("system", SYSTEMS_HERE)
def test_each_system_gives_every_row_exactly_once(root: Path, system: str, order: Order) -> None:
    path = DataPath(Place.LOCAL, order)
    if SYSTEMS[system].lacking(path):
        lacking = {
            ("pylance-take", Order.SEQUENTIAL),
            ("pylance-blocks", Order.SEQUENTIAL),
            ("pylance-blocks", Order.SUBSET),
        }
        assert (system, order) in lacking
        return
    rows = np.arange(NUM_ROWS)
    if order is Order.SUBSET:
        rows = np.flatnonzero(np.random.default_rng(0).permutation(rows) % 100 < 5)
        assert len(rows) == NUM_ROWS // 20
    result = measure(task(root, system, str(path)))
    assert result["fault"] is None
    assert not result["is_cut"]
    assert result["num_rows_per_epoch"] == len(rows)
    assert result["label_sum"] == (rows * 100 // NUM_ROWS).sum()


def test_a_run_reports_what_it_measured_and_what_is_missing(tmp_path: Path) -> None:
    report_file = tmp_path / "report.json"
    command = [sys.executable, str(BENCH / "bench_peers.py"), "--dir", str(tmp_path), "--json", str(report_file)]
    what = ["--peers", "stoker,pylance-take,webdataset", "--paths", "local-shuffled", "--workers", "0", "--repeat", "1"]
    sizes = ["--rows", str(NUM_ROWS), "--batch-size", str(BATCH_SIZE), "--measured-secs", "0"]
    done = subprocess.run([*command, *what, *sizes], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 measurements: 2 of all settings, then 0 of the best" in done.stderr
    assert "[2 of 2, less than a minute left] local-shuffled pylance-take" in done.stderr
    report = json.loads(report_file.read_text())
    assert set(report) == {"machine", "versions", "options", "data", "results", "not_installed", "comparisons"}
    assert report["not_installed"] == {"webdataset": "not installed: pip install webdataset"}
    assert report["options"]["num_rows"] == NUM_ROWS
    assert {"numpy", "pylance", "stoker", "torch"} <= set(report["versions"])
    assert [result["system"] for result in report["results"]] == ["stoker", "pylance-take"]
    for result in report["results"]:
        assert (result["path"], result["lacking"], result["failed"]) == ("local-shuffled", None, []), done.stderr
        assert result["setting"] == {"num_workers": 0, "variant": ""}
        ((sample,),) = (setting["repetitions"] for setting in result["measured"])
        assert sample["fault"] is None
        for number in ("mb_per_sec", "first_epoch_mb_per_sec", "first_batch_secs", "mixing"):
            assert result[number] == sample[number] > 0, number
        assert f"| {result['title']} | 0 |" in done.stdout
    compared = report["comparisons"][0]
    assert (compared["path"], compared["among"], compared["peer"]) == ("local-shuffled", "all peers", "pylance-take")


def test_progress_counts_measurements_and_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("harness.progress.perf_counter", lambda: now[0])
    progress = Progress(11)
    now[0] += 30
    assert progress.done() == "1 of 11, about 5 min left"
    progress.leave_out()
    now[0] += 90
    assert progress.done() == "2 of 10, about 8 min left"
    for _ in range(7):
        progress.done()
    assert progress.done() == "10 of 10, less than a minute left"


def test_help_needs_nothing_but_python() -> None:
    command = [sys.executable, "-S", str(BENCH / "bench_peers.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--epoch-secs" in done.stdout


def test_what_lies_between_epochs_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("harness.measure.perf_counter", lambda: now[0])

    def epochs(number: int) -> Iterator[tuple[Any, Any]]:
        now[0] += 1
        yield torch.zeros((2, *IMAGE_SHAPE), dtype=torch.uint8), torch.zeros(2)

    one = replace(task(tmp_path, "stoker", "local-shuffled"), measured_secs_min=7.5)
    first = first_epoch(one, epochs, 0.0)
    assert first.mb_per_sec == pytest.approx(2 * IMAGE_BYTES / 1e6)
    now[0] += 5  # In this time, a system may prefetch the next epoch.
    further = further_epochs(one, epochs, first)
    assert len(further.epochs) == 3
    assert further.mb_per_sec == pytest.approx(3 * 2 * IMAGE_BYTES / (5 + 3) / 1e6)


def epoch_of(dataset: Dataset, rows: list[int]) -> Epoch:
    """Returns an epoch that delivered these rows."""
    return Epoch(ids=[np.array(rows)], labels=[dataset.labels[rows]], touched=[dataset.touched[rows]])


def test_wrong_rows_are_told(tmp_path: Path) -> None:
    (tmp_path / "flat").mkdir()
    dataset = Dataset.write(tmp_path / "flat", 40)
    every = list(range(40))
    shuffled, subset = (
        replace(task(tmp_path, "stoker", path), num_rows=40) for path in ("local-shuffled", "local-subset")
    )
    whole = epoch_of(dataset, every)
    assert fault_of(shuffled, whole) is None
    assert fault_of(shuffled, epoch_of(dataset, [*every[1:], 7])) == "1 rows lost, 1 rows repeated"
    assert fault_of(shuffled, replace(epoch_of(dataset, every[:9]), is_cut=True)) is None
    assert fault_of(shuffled, replace(whole, labels=[dataset.labels + 1])) == "40 rows with another label"
    assert fault_of(shuffled, replace(whole, touched=[dataset.touched[::-1]])) == "40 rows with other bytes"
    selected = dataset.subset.tolist()
    assert fault_of(subset, epoch_of(dataset, selected)) is None
    assert fault_of(subset, whole) == f"{40 - len(selected)} rows not selected"


def test_the_expected_mixing_is_that_of_random_batches() -> None:
    labels = np.arange(1_000) * 20 // 1_000
    random = np.random.default_rng(3)
    drawn = [len(np.unique(random.choice(labels, 30, replace=False))) for _ in range(2_000)]
    assert expected_distinct(labels, 30) == pytest.approx(np.mean(drawn), rel=0.01)
    assert expected_distinct(labels, 1_000) == 20
    assert expected_distinct(labels, 1) == pytest.approx(1)


def test_what_hangs_or_fails_is_told() -> None:
    with pytest.raises(ChildError, match="not done within 1 s"):
        run_module("http.server", ["0", "--bind", "127.0.0.1"], environment(None), 1)
    with pytest.raises(ChildError, match=r"exit status 1\n.*no_such_module"):
        run_module("harness.no_such_module", [], environment(None), 60)


def test_s3_is_on_the_loopback_interface() -> None:
    assert check_loopback("http://127.0.0.1:9000/") == "http://127.0.0.1:9000"
    with pytest.raises(StoreError, match="loopback"):
        check_loopback("https://s3.amazonaws.com")
