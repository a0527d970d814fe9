"""The magic `%%stoker`, and the example notebook, in the shell of IPython."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import NUM_ROWS
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import stoker

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"


class Cells:
    """A shell of IPython that keeps what cells show."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.shown: list[dict[str, str]] = []
        shell.displayhook.write_format_data = lambda formats, metadata=None: self.shown.append(formats)

    def run(self, cell: str) -> Any:
        """Runs a cell, and returns its value."""
        self.shown.clear()
        result = self.shell.run_cell(cell)
        result.raise_error()
        return result.result

    def fail(self, cell: str) -> BaseException:
        """Runs a cell that must fail, and returns its error."""
        result = self.shell.run_cell(cell)
        assert result.error_before_exec is None
        assert result.error_in_exec is not None, f"{cell} succeeded"
        return result.error_in_exec

    @property
    def html(self) -> str:
        """What the last cell showed."""
        (formats,) = self.shown
        return formats["text/html"]

    @property
    def variables(self) -> dict[str, Any]:
        return self.shell.user_ns


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cells]:
    """A shell without the settings of a user, into which the extension is loaded."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    InteractiveShell.clear_instance()
    cells = Cells(InteractiveShell.instance(config=config))
    cells.run("%load_ext stoker")
    yield cells
    InteractiveShell.clear_instance()


@pytest.fixture
def over_lake(cells: Cells, lake: stoker.Lake) -> Cells:
    """The shell, with a lake."""
    cells.variables["lake"] = lake
    cells.run("%stoker lake")
    return cells


def test_a_lake_is_chosen_by_its_variable_or_by_connecting(cells: Cells, lake: stoker.Lake) -> None:
    cells.variables["mine"] = lake
    assert cells.run("%stoker mine") is lake
    assert "samples" in cells.html
    assert cells.run("%stoker") is lake
    connected = cells.run(f"%stoker connect '{lake.target}'")
    assert isinstance(connected, stoker.Lake)
    assert connected.tables() == ["samples"]
    assert cells.run("%stoker") is connected


def test_a_cell_shows_its_query(over_lake: Cells) -> None:
    query = over_lake.run("%%stoker\nSELECT id, name FROM samples\nWHERE id < 3 ORDER BY id;\n")
    assert isinstance(query, stoker.Query)
    assert "row 2<" in over_lake.html
    assert "3 rows" in over_lake.html
    assert over_lake.shown[0]["text/plain"].startswith("Query('SELECT id, name")
    assert query.to_arrow()["id"].to_pylist() == [0, 1, 2]
    assert "samples" in over_lake.run("%stoker SHOW TABLES").to_arrow()["table_name"].to_pylist()
    assert "<pre>" in over_lake.run("%%stoker\nEXPLAIN SELECT 1")._repr_html_()


def test_a_preview_runs_once(over_lake: Cells, lake: stoker.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    run = stoker.Query._run

    def counted(query: stoker.Query, *args: Any) -> Any:
        runs.append(query.sql)
        return run(query, *args)

    monkeypatch.setattr(stoker.Query, "_run", counted)
    query = over_lake.run("%%stoker\nSELECT id FROM samples WHERE id = 4")
    assert len(runs) == 1
    query._repr_html_()
    assert len(runs) == 2


def test_a_query_gets_a_name(over_lake: Cells) -> None:
    assert over_lake.run("%%stoker few <<\nSELECT id FROM samples WHERE id < 3") is None
    assert over_lake.shown == []
    assert over_lake.run("few.to_arrow().num_rows") == 3
    assert over_lake.run("%stoker many << SELECT id FROM samples") is None
    assert over_lake.run("many.to_arrow().num_rows") == NUM_ROWS


def test_variables_are_bound_and_never_become_sql(over_lake: Cells) -> None:
    over_lake.variables.update(
        word="row 3' OR true --", low=1, few=[2, 3], vector=np.array([50, 0, 1, -50], np.float32)
    )
    assert over_lake.run("%%stoker\nSELECT id FROM samples WHERE name = $word").to_arrow().num_rows == 0
    over_lake.variables["word"] = "row 3"
    query = over_lake.run(
        "%%stoker\nSELECT id, '$word' AS same -- $nothing\n"
        "FROM samples WHERE name = $word AND id > $low AND id IN ($few)"
    )
    assert query.to_arrow().to_pylist() == [{"id": 3, "same": "$word"}]
    assert query.params == ["row 3", 1, [2, 3]]
    assert query.sql.count("$1") == 1
    assert "$word" in query.sql
    line = over_lake.run("%stoker SELECT count(*) AS n FROM samples WHERE id <= $low")
    assert line.to_arrow().to_pylist() == [{"n": 2}]
    found = over_lake.run("%%stoker\nSELECT id FROM vector_search(samples, emb, $vector, k => 3)")
    assert found.to_arrow().num_rows == 3


def test_statements_that_change_the_lake_are_executed(cells: Cells) -> None:
    lake = stoker.connect("memory://")
    lake.create_table("t", {"id": np.arange(10)})
    cells.variables["lake"] = lake
    cells.run("%stoker lake")
    outcome = cells.run("%%stoker\nCREATE INDEX ON t USING btree (id)")
    assert (outcome.table, outcome.version) == ("t", lake.table("t").version)
    assert cells.run("%stoker done << DROP INDEX id_idx ON t") is None
    assert cells.variables["done"].version == lake.table("t").version > outcome.version


@pytest.mark.parametrize(
    ("cell", "kind", "message"),
    [
        ("%%stoker\nSELECT nothing FROM samples", "invalid_request", "nothing"),
        ("%%stoker\nSELECT id FROM missing", "not_found", "missing"),
        ("%%stoker\nSELECT 10 / (id - 5) FROM samples", "invalid_request", "zero"),
        ("%%stoker\nSELECT id FROM samples WHERE id = $absent", "invalid_request", "there is no variable absent"),
        ("%%stoker\nSELECT id FROM samples WHERE id = $1 AND id < $lake", "invalid_request", "$1 and $lake"),
        ("%%stoker\nSELECT id FROM samples WHERE id = $1", "invalid_request", "$1"),
        ("%%stoker class <<\nSELECT 1", "invalid_request", "class is no name of a variable"),
        ("%%stoker two words\nSELECT 1", "invalid_request", "two words"),
        ("%stoker absent", "invalid_request", "absent is no lake"),
        ("%stoker number", "invalid_request", "it is a int"),
        ("%stoker connect", "invalid_request", "write %stoker connect URI"),
        ("%stoker connect a b", "invalid_request", "write %stoker connect URI"),
        ("%stoker connect ftp://host", "invalid_request", "ftp"),
    ],
)
def test_an_error_is_one_line(
    over_lake: Cells, capsys: pytest.CaptureFixture[str], cell: str, kind: str, message: str
) -> None:
    over_lake.variables["number"] = 3
    capsys.readouterr()
    error = over_lake.fail(cell)
    assert isinstance(error, stoker.StokerError)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{kind}: ")
    assert message.lower() in line.lower()


def test_a_lake_must_be_chosen_first(cells: Cells, capsys: pytest.CaptureFixture[str]) -> None:
    for cell in ("%stoker", "%%stoker\nSELECT 1", "%stoker SELECT 1"):
        capsys.readouterr()
        assert isinstance(cells.fail(cell), stoker.InvalidRequestError)
        assert "no lake is chosen: write %stoker connect URI" in capsys.readouterr().out


def code_cells() -> list[tuple[str, str | None]]:
    """Returns the cells of the notebook with code, and the outputs of those that are compared."""
    notebook = json.loads(NOTEBOOK.read_text())
    found: list[tuple[str, str | None]] = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            expected = None
            if "compared" in cell["metadata"].get("tags", []):
                (output,) = cell["outputs"]
                expected = "".join(output["data"]["text/plain"])
            found.append(("".join(cell["source"]), expected))
    return found


def test_the_example_notebook_runs(cells: Cells) -> None:
    shown: list[str] = []
    num_compared = 0
    for source, expected in code_cells():
        cells.run(source)
        for formats in cells.shown:
            shown.append(formats.get("text/html", ""))
        if expected is not None:
            assert cells.shown[-1]["text/plain"] == expected, source
            num_compared += 1
    assert num_compared >= 4
    html = "".join(shown)
    for part in ("<svg", "<img ", "<pre>", 'class="stoker-bar"', 'class="stoker-grid"', "<b>pictures</b>", "_score"):
        assert part in html, part


def test_the_example_notebook_has_no_other_outputs() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    assert (notebook["nbformat"], notebook["metadata"]["language_info"]["name"]) == (4, "python")
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code" and "compared" not in cell["metadata"].get("tags", []):
            assert cell["outputs"] == [], "".join(cell["source"])
    assert NOTEBOOK.stat().st_size < 20_000
