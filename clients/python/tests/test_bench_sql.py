"""The measurement of SQL and search measures what it claims to measure; no test here asserts a speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "bench" / "bench_sql.py"
ROWS = ["--vector-rows", "4000", "--light-rows", "40000", "--text-rows", "4000"]
#: Lines without a turn of another side.
ALONE = ("SELECT 1", "row set")
#: The beginnings of lines, of each part one or more.
EXPECTED = (
    "build, ivf_pq",
    "ANN, uniform, 1 % filter, btree",
    "exact WHERE",
    "exact ORDER BY",
    "text_search, a phrase",
    "light rows, top 10",
    "point",
    "row set of 5 %",
    "UPDATE of 1 %",
    "DELETE of 1 %",
)


def test_each_line_has_figures_of_both_sides(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, str(SCRIPT), "--dir", str(tmp_path / "data"), "--json", str(report), *ROWS]
    what = ["--repeat", "2", "--build-repeat", "2", "--queries", "3"]
    done = subprocess.run([*command, *what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    left = [*tmp_path.glob("data/lake/copy_*"), *tmp_path.glob("data/pylance/*.lance.*")]
    assert not left, "copies of tables stay behind"
    found = json.loads(report.read_text())["lines"]
    lines = {line["what"]: line for line in found if "not_measured" not in line}
    assert {line["what"] for line in found} - set(lines) <= {"hybrid_search"}
    for name in EXPECTED:
        assert any(what.startswith(name) for what in lines), name
    for name, line in lines.items():
        assert f"| {name} |" in done.stdout
        assert all(figure > 0 for figure in line["ours"])
        if name.startswith(ALONE):
            assert line["theirs"] is None
        else:
            assert len(line["theirs"]) == len(line["ours"])
            assert line["ratio"] > 0


def test_help_needs_nothing_but_python() -> None:
    done = subprocess.run([sys.executable, "-S", str(SCRIPT), "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--build-repeat" in done.stdout
