"""The measurement of JAX and TensorFlow beside NumPy measures all paths; no test here asserts a speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "bench" / "bench_frameworks.py"


def test_each_framework_is_measured_beside_numpy(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, str(SCRIPT), "--dir", str(tmp_path / "data"), "--json", str(report), "--repeat", "1"]
    what = ["--epochs", "1", "--divisor", "4", "--mib", "2", "--only", "in order"]
    done = subprocess.run([*command, *what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    paths = [f"{name}, {data}, in order" for data in ("tensors", "padded tokens") for name in ("jax", "tensorflow")]
    assert list(found) == paths
    for path in paths:
        assert f"| {path} | NumPy |" in done.stdout
        ((mine, numpy),) = found[path]
        assert mine["value"] > 0
        assert numpy["value"] > 0
