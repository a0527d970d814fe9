"""The measurements of media, codecs and tokens measure what they claim to measure; no test here asserts a speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
CODECS = ("pco", "byte_stream_split", "zstd")


def measured(folder: Path, script: str, *what: str) -> tuple[dict[str, list[list[dict[str, float]]]], str]:
    """Runs a program; returns the figures of both sides in each turn, by path, and what it printed."""
    file = folder / "report.json"
    command = [sys.executable, str(BENCH / script), "--dir", str(folder / "data"), "--json", str(file), "--repeat", "1"]
    done = subprocess.run([*command, *what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    for name, turns in found.items():
        (line,) = (line for line in done.stdout.splitlines() if line.startswith(f"| {name} |"))
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        assert len(cells) == 9
        assert cells[5] == "-" or cells[5].endswith((" met", " missed"))
        ((mine, other),) = turns
        assert mine["value"] > 0
        assert other["value"] > 0
    return found, done.stdout


def test_tokens_have_a_line_for_each_order(tmp_path: Path) -> None:
    found, printed = measured(tmp_path, "bench_tokens.py", "--mib", "8")
    paths = ("lists", "packs", "weights")
    assert sorted(found) == sorted(f"{path}, {order}" for path in paths for order in ("in order", "shuffled"))
    assert "packs are filled to 0.9" in printed


def test_limited_storage_is_the_limit(tmp_path: Path) -> None:
    what = ["--divisor", "64", "--mb-per-sec", "20", "--only", "limited storage"]
    found, _ = measured(tmp_path, "bench_media.py", *what)
    pairs = [("plain", "GETs of the same bytes")]
    pairs += [(codec, beside) for codec in CODECS for beside in ("the plain column", "GETs of the same bytes")]
    assert list(found) == [f"limited storage, {name}, beside {beside}" for name, beside in pairs]
    # The server never sends faster than its limit, except for the 10 ms that it may catch up.
    ((plain, gets),) = found["limited storage, plain, beside GETs of the same bytes"]
    assert max(plain["value"], gets["value"]) < 20 * 1.2


def test_sound_is_decoded_beside_soundfile(tmp_path: Path) -> None:
    found, printed = measured(tmp_path, "bench_media.py", "--divisor", "40", "--only", "FLAC")
    assert list(found) == ["FLAC, 10 s", "FLAC, 1 s of 10"]
    assert "| rows/s |" in printed


@pytest.mark.parametrize("script", ["bench_media.py", "bench_tokens.py", "bench_frameworks.py"])
def test_help_needs_nothing_but_python(script: str) -> None:
    command = [sys.executable, "-S", str(BENCH / script), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--repeat" in done.stdout
