"""The measurement of SQL and search measures what it claims to measure; no test here asserts a speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "bench" / "bench_sql.py"
ROWS = ["--vector-rows", "4000", "--light-rows", "40000", "--text-rows", "4000", "--result-rows", "5000"]
INDEXES = ("ivf_pq", "ivf_hnsw_sq", "btree", "bitmap", "inverted", "label_list", "ngram")
PARTS = ("builds", "vectors", "distances", "texts", "hybrid", "light", "lookups", "select1", "adbc", "row_sets")
#: Lines without a turn of another side.
ALONE = ("SELECT 1", "row set", *([] if find_spec("lancedb") else ["hybrid_search"]))
#: The beginnings of lines, of each part one or more.
EXPECTED = (
    *(f"build, {kind}" for kind in INDEXES),
    "ANN, uniform, 1 % filter, btree",
    "exact WHERE",
    "exact ORDER BY",
    "text_search, a phrase",
    "hybrid_search",
    "light rows, top 10",
    "point",
    "SELECT 1, served",
    "ADBC, 5,000 rows",
    "row set of 5 %",
    "first batch of a hybrid sample",
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
    assert not [line for line in found if "not_measured" in line]
    lines = {line["what"]: line for line in found}
    for name in EXPECTED:
        assert any(what.startswith(name) for what in lines), name
    for name, line in lines.items():
        assert f"| {name} |" in done.stdout
        assert all(figure > 0 for figure in line["ours"])
        if name.startswith(ALONE):
            assert line["theirs"] is None
            # A bar of the ratio says nothing without another side; a bar of the figure does.
            assert (line["is_met"] is None) == (line["judged"] == "ratio")
        else:
            assert len(line["theirs"]) == len(line["ours"])
            assert line["ratio"] > 0
            assert line["is_met"] is not None


def test_help_needs_nothing_but_python() -> None:
    command = [sys.executable, "-S", str(SCRIPT), "--help"]
    wide = {**os.environ, "COLUMNS": "500"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=wide)
    assert done.returncode == 0, done.stderr
    assert "--build-repeat" in done.stdout
    assert ", ".join([*PARTS, "first-batch", "writes"]) in done.stdout


def test_a_line_alone_is_not_judged_by_its_ratio() -> None:
    code = "from sql_parts.line import Line; print(Line('a', 1.0, [2.0]).row(), Line('b', 1.0, [2.0], [1.0]).row())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=SCRIPT.parent)
    assert "≤ 1 not judged" in done.stdout
    assert "≤ 1 missed" in done.stdout
