"""The measurement of first epochs measures what it claims to measure; no test here asserts a speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "bench" / "bench_python.py"
PATHS = ["s3, tokens, shuffled", "local, images, in order", "local, tokens, shuffled"]


def test_each_path_is_measured_beside_its_ceiling(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, str(SCRIPT), "--dir", str(tmp_path / "data"), "--json", str(report), "--divisor", "16"]
    what = ["--repeat", "1", "--epochs", "2", "--options", '{"order_version": 2}', "--paths", *PATHS]
    done = subprocess.run([*command, *what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    assert sorted(found) == sorted([*PATHS, "new memory", "profiles"])
    for path in PATHS:
        assert f"| {path} |" in done.stdout
        for system in ("stoker", "ceiling"):
            ((first, later),) = found[path][system]
            for epoch in (first, later):
                assert all(epoch[figure] > 0 for figure in ("first_secs", "bytes_per_sec", "cpu_secs_per_byte"))
            assert later["peak_bytes"] >= first["peak_bytes"] > 0
    assert all(rate > 0 for kind in ("huge", "small") for rate in found["new memory"][kind])
    missed = {line.split("|")[1].strip() for line in done.stdout.splitlines() if " missed |" in line}
    assert set(found["profiles"]) == (missed if "no profiles" not in done.stderr else set())
    assert all(functions and functions[0][0] > 2 for functions in found["profiles"].values())


@pytest.mark.parametrize("options", [{"shuffle_window_bytes": 0}, {"no_such_option": 1}])
def test_what_fails_is_told(tmp_path: Path, options: dict[str, int]) -> None:
    command = [sys.executable, str(SCRIPT), "--dir", str(tmp_path), "--divisor", "64", "--repeat", "1"]
    what = ["--options", json.dumps(options), "--paths", "local, tokens, shuffled"]
    done = subprocess.run([*command, *what], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert next(iter(options)) in done.stderr


def test_help_needs_nothing_but_python() -> None:
    done = subprocess.run([sys.executable, "-S", str(SCRIPT), "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--latency-ms" in done.stdout
