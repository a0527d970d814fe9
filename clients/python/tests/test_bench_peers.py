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
from harness.dataset import Dataset, row_ids, touched_bytes  # noqa: E402
from harness.measure import Epoch, fault_of, first_epoch, further_epochs, measure  # noqa: E402
from harness.mixing import expected_distinct  # noqa: E402
from harness.plan import Line  # noqa: E402
from harness.progress import Progress  # noqa: E402
from harness.report import comparisons, tables  # noqa: E402
from harness.rows import IMAGES, ROW_KINDS, TOKENS, RowKind  # noqa: E402
from harness.store import StoreError, check_loopback  # noqa: E402
from harness.task import DataPath, Order, Place, Setting, Task  # noqa: E402
from peers import SYSTEMS  # noqa: E402

#: Several blocks of each kind of rows, and a smaller one.
NUM_ROWS = {IMAGES: 300, TOKENS: 10_000}
BATCH_SIZE = 64
every_kind = pytest.mark.parametrize("kind", ROW_KINDS.values(), ids=lambda kind: kind.name)
#: The systems whose libraries are installed in this environment.
SYSTEMS_HERE = ("ceiling", "stoker", "pylance-scan", "pylance-take", "pylance-blocks")


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[RowKind, Path]:
    """For each kind, a folder with the rows in the formats of these systems."""
    roots = {}
    for kind in ROW_KINDS.values():
        root = roots[kind] = tmp_path_factory.mktemp(kind.name)
        for data_format in ("flat", "stoker", "pylance"):
            (root / data_format).mkdir()
        dataset = Dataset.write(root / "flat", kind, NUM_ROWS[kind])
        for system in ("stoker", "pylance-scan"):
            SYSTEMS[system].write(dataset, root / SYSTEMS[system].data_format)
    return roots


def task(root: Path, kind: RowKind, system: str, path: str) -> Task:
    """Returns the task of measuring tiny data, for one epoch after the first."""
    return Task(system, path, Setting(), str(root), kind, NUM_ROWS[kind], BATCH_SIZE, 7, "", None, 60.0, 0.0)


@every_kind
@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("system", SYSTEMS_HERE)
def test_each_system_gives_every_row_exactly_once(
    roots: dict[RowKind, Path], kind: RowKind, system: str, order: Order
) -> None:
    path = DataPath(Place.LOCAL, order)
    if SYSTEMS[system].lacking(path):
        lacking = {
            ("pylance-take", Order.SEQUENTIAL),
            ("pylance-blocks", Order.SEQUENTIAL),
            ("pylance-blocks", Order.SUBSET),
        }
        assert (system, order) in lacking
        return
    rows = np.arange(NUM_ROWS[kind])
    if order is Order.SUBSET:
        rows = np.flatnonzero(np.random.default_rng(0).permutation(rows) % 100 < 5)
        assert len(rows) == NUM_ROWS[kind] // 20
    result = measure(Task.load(task(roots[kind], kind, system, str(path)).dump()))
    assert result["fault"] is None
    assert not result["is_cut"]
    assert result["num_rows_per_epoch"] == len(rows)
    assert result["label_sum"] == (rows * 100 // NUM_ROWS[kind]).sum()


def test_rows_have_the_sizes_of_the_comparison() -> None:
    assert [(str(kind), kind.row_bytes) for kind in (IMAGES, TOKENS)] == [
        ("uint8[3,224,224]", 150_528),
        ("int32[512]", 2_048),
    ]


@every_kind
def test_tensors_tell_their_rows_and_whether_their_bytes_came(tmp_path: Path, kind: RowKind) -> None:
    dataset = Dataset.write(tmp_path, kind, 200)
    tensors = np.array(dataset.tensors)
    assert (tensors.shape, str(tensors.dtype)) == ((200, *kind.shape), kind.dtype)
    assert row_ids(tensors[::-1]).tolist() == [*reversed(range(200))]
    assert touched_bytes(tensors).tolist() == dataset.touched.tolist()
    quarter = kind.row_bytes // 4
    for start in range(0, kind.row_bytes, quarter):
        broken = tensors.copy()
        broken.reshape(200, -1).view(np.uint8)[:, start : start + quarter] = 0
        assert np.mean(touched_bytes(broken) != dataset.touched) > 0.9, "a byte of random ones may be zero"


def test_a_run_reports_what_it_measured_and_what_is_missing(tmp_path: Path) -> None:
    report_file = tmp_path / "report.json"
    command = [sys.executable, str(BENCH / "bench_peers.py"), "--dir", str(tmp_path), "--json", str(report_file)]
    what = ["--peers", "stoker,pylance-take,webdataset", "--paths", "local-shuffled", "--workers", "0", "--repeat", "1"]
    sizes = ["--rows", "300", "--batch-size", str(BATCH_SIZE), "--measured-secs", "0"]
    done = subprocess.run([*command, *what, *sizes], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for kind in ROW_KINDS.values():
        assert f"{kind.name}: 2 measurements, 2 of all settings, then 0 of the best" in done.stderr
        assert f"[2 of 2, less than a minute left] {kind.name} local-shuffled pylance-take" in done.stderr
        assert f"{kind.name}: 300 rows of {kind} sorted by class, batches of 64" in done.stdout
        flat = tmp_path / f"stoker-peers-{kind.name}-300" / "flat" / "tensors.bin"
        assert flat.stat().st_size == 300 * kind.row_bytes
    report = json.loads(report_file.read_text())
    assert set(report) == {"machine", "versions", "options", "data", "results", "not_installed", "comparisons"}
    assert report["not_installed"] == {"webdataset": "not installed: pip install webdataset"}
    assert [(name, options["num_rows"]) for name, options in report["options"].items()] == [
        ("images", 300),
        ("tokens", 300),
    ]
    assert report["data"]["tokens"] == {"row_bytes": 2048, "dtype": "int32", "shape": [512], "subset": "score < 5"}
    assert {"numpy", "pylance", "stoker", "torch"} <= set(report["versions"])
    measured = [(result["kind"], result["system"]) for result in report["results"]]
    assert measured == [(kind, system) for kind in ("images", "tokens") for system in ("stoker", "pylance-take")]
    for result in report["results"]:
        assert (result["path"], result["lacking"], result["failed"]) == ("local-shuffled", None, []), done.stderr
        assert result["setting"] == {"num_workers": 0, "variant": ""}
        ((sample,),) = (setting["repetitions"] for setting in result["measured"])
        assert sample["fault"] is None
        for number in ("mb_per_sec", "first_epoch_mb_per_sec", "first_batch_secs", "mixing"):
            assert result[number] == sample[number] > 0, number
        assert f"| {result['title']} | 0 |" in done.stdout
    compared = [one for one in report["comparisons"] if one["among"] == "all peers" and one["is_first_epoch"]]
    assert [(one["kind"], one["path"], one["peer"], one["bar"]) for one in compared] == [
        ("images", "local-shuffled", "pylance-take", None),
        ("tokens", "local-shuffled", "pylance-take", None),
    ]
    assert "| tokens, local-shuffled | first | all peers | pylance-take |" in done.stdout


def line(kind: RowKind, system: str, path: str, mb_per_sec: float, mixing: float) -> Line:
    """Returns a line with one measurement."""
    numbers = {"mb_per_sec": 1.0, "first_epoch_mb_per_sec": mb_per_sec, "first_batch_secs": 1.0, "cpu_secs_per_gb": 1.0}
    sample = {**numbers, "mixing": mixing, "fault": None, "is_cut": False, "unclean_exit": None}
    return Line(kind, DataPath.parse(path), SYSTEMS[system], measured={Setting(): [sample]})


@pytest.mark.parametrize(
    ("kind", "path", "bar"),
    [
        (IMAGES, "local-sequential", 1.2),
        (TOKENS, "local-sequential", 1.2),
        (IMAGES, "local-shuffled", 1.6),
        (TOKENS, "local-shuffled", 2.0),
        *[(kind, f"s3-{order}", 2.0) for kind in (IMAGES, TOKENS) for order in ("sequential", "shuffled")],
    ],
)
def test_first_epochs_are_judged_by_the_strongest_peer_that_counts(kind: RowKind, path: str, bar: float) -> None:
    is_shuffled = path.endswith("shuffled")
    mixing = 1.0 if is_shuffled else 0.05
    # Where rows are shuffled, a peer that mixes them less does not count, however fast it is.
    unmixed = [line(kind, "pylance-scan", path, 1_000, 0.94)] if is_shuffled else []
    peers = [*unmixed, line(kind, "grain", path, 50, mixing), line(kind, "pylance-take", path, 100, mixing)]

    def judged(rate: float, stoker_mixing: float) -> tuple[str, bool]:
        lines = [line(kind, "stoker", path, rate, stoker_mixing), *peers]
        (found,) = (one for one in comparisons(lines) if one["bar"] is not None)
        assert (found["kind"], found["path"], found["is_first_epoch"]) == (kind.name, path, True)
        assert found["bar"] == bar
        assert found["ratio"] == pytest.approx(rate / 100)
        verdict = "met" if found["is_met"] else "missed"
        assert f"| {rate / 100:.2f} | {bar:g} {verdict} |" in tables(lines, [])
        return found["peer"], found["is_met"]

    assert judged(100 * bar + 1, mixing) == ("pylance-take", True)
    assert judged(100 * bar - 1, mixing) == ("pylance-take", False)
    if is_shuffled:
        assert judged(100 * bar + 1, 0.94) == ("pylance-take", False)


def test_a_subset_has_no_bar() -> None:
    lines = [line(IMAGES, system, "s3-subset", 100, 1.0) for system in ("stoker", "pylance-take")]
    assert [one["bar"] for one in comparisons(lines)] == [None] * 4


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
    assert "131072 of tokens" in " ".join(done.stdout.split())


@every_kind
def test_what_lies_between_epochs_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: RowKind) -> None:
    now = [0.0]
    monkeypatch.setattr("harness.measure.perf_counter", lambda: now[0])

    def epochs(number: int) -> Iterator[tuple[Any, Any]]:
        now[0] += 1
        yield torch.zeros((2, *kind.shape), dtype=getattr(torch, kind.dtype)), torch.zeros(2)

    one = replace(task(tmp_path, kind, "stoker", "local-shuffled"), measured_secs_min=7.5)
    first = first_epoch(one, epochs, 0.0)
    assert first.mb_per_sec == pytest.approx(2 * kind.row_bytes / 1e6)
    now[0] += 5  # In this time, a system may prefetch the next epoch.
    further = further_epochs(one, epochs, first)
    assert len(further.epochs) == 3
    assert further.mb_per_sec == pytest.approx(3 * 2 * kind.row_bytes / (5 + 3) / 1e6)


def epoch_of(dataset: Dataset, rows: list[int]) -> Epoch:
    """Returns an epoch that delivered these rows."""
    return Epoch(ids=[np.array(rows)], labels=[dataset.labels[rows]], touched=[dataset.touched[rows]])


@every_kind
def test_wrong_rows_are_told(tmp_path: Path, kind: RowKind) -> None:
    (tmp_path / "flat").mkdir()
    dataset = Dataset.write(tmp_path / "flat", kind, 40)
    every = list(range(40))
    shuffled, subset = (
        replace(task(tmp_path, kind, "stoker", path), num_rows=40) for path in ("local-shuffled", "local-subset")
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


def test_batches_of_another_kind_are_refused() -> None:
    with pytest.raises(TypeError, match=r"\(2, 512\) of torch.int32 on cpu; its rows are uint8\[3,224,224\]"):
        Epoch().take(IMAGES, torch.zeros((2, 512), dtype=torch.int32), torch.zeros(2))


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
