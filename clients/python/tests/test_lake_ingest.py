"""``lake.ingest``: the command ``stoker ingest`` in Python, with its options, its progress and its errors."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Server, stoker_bin
from PIL import Image

import stoker
from stoker._progress_line import ProgressLine, progress_line


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with two classes of three photos, and a file of notes."""
    folder = tmp_path / "photos"
    for number in range(6):
        place = folder / ("cats" if number % 2 else "dogs") / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 6, 3), number, np.uint8)).save(place)
    (folder / "notes.txt").write_text("notes")
    return folder


@pytest.fixture
def lake(tmp_path: Path) -> stoker.Lake:
    return stoker.connect(str(tmp_path / "lake"))


def test_a_folder_of_photos(lake: stoker.Lake, photos: Path) -> None:
    told: list[stoker.IngestProgress] = []
    report = lake.ingest(photos, "photos", size=(4, 4), progress=told.append)
    assert (report.kind, report.num_rows, report.version, report.num_files) == ("imagefolder", 6, 1, 6)
    assert (report.table, report.left_out, report.skipped) == ("photos", {".txt": 1}, [])
    assert stoker.tensor_shape(lake.table("photos").schema.field("image")) == (3, 4, 4)
    assert (told[-1].rows_done, told[-1].files_done, told[-1].files_total) == (6, 6, 6)
    assert "6 of 6 files, 6 rows" in str(told[-1])
    again = lake.ingest(photos, "photos", size=(4, 4), mode="append", progress=False)
    assert (again.already_ingested or again.num_known_files == 6) is True
    assert lake.table("photos").num_rows == 6
    Image.fromarray(np.zeros((8, 6, 3), np.uint8)).save(photos / "cats" / "new.png")
    assert lake.ingest(str(photos), "photos", size="4x4", mode="append").num_rows == 1
    assert lake.table("photos").num_rows == 7


def test_options_are_those_of_the_command(lake: stoker.Lake, tmp_path: Path) -> None:
    rows = [{"a.b": row, "label": row % 3, "note": "x", "emb": [0.5, row]} for row in range(20)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options: dict[str, Any] = {
        "rename": {"a.b": "b"},
        "cast": {"label": "int32", "emb": "float32[2]"},
        "drop": ["note"],
    }
    report = lake.ingest([tmp_path / "rows.jsonl"], "t", kind="jsonl", **options)
    assert report.num_rows == 20
    schema = lake.table("t").schema
    assert schema.names == ["b", "label", "emb"]
    assert schema.field("label").type == pa.int32()
    command = [stoker_bin(), "ingest", str(tmp_path / "rows.jsonl"), "u", "--as", "jsonl", "--rename", "a.b=b"]
    command += ["--cast", "label=int32", "--cast", "emb=float32[2]", "--drop", "note", "--lake", lake.target]
    subprocess.run(command, check=True, capture_output=True)
    query = "SELECT * FROM {} ORDER BY b"
    assert lake.sql(query.format("t")).to_arrow() == lake.sql(query.format("u")).to_arrow()
    pq.write_table(pa.table({"x": [[1, 2, 3, 4]] * 5, "y": range(5)}), tmp_path / "a.parquet")
    report = lake.ingest(
        tmp_path / "a.parquet", "p", tensor={"x": "int64[2,2]"}, columns=["x"], compress={"x": "zstd:3"}
    )
    assert (report.kind, lake.table("p").describe()[0].kind) == ("parquet", "tensor int64[2, 2] (zstd)")


def test_a_dry_run_writes_nothing(lake: stoker.Lake, photos: Path) -> None:
    found = lake.ingest(photos, "photos", dry_run=True, images="encoded")
    assert (found.kind, found.num_files, found.rows.num_rows, found.left_out) == ("imagefolder", 6, 6, {".txt": 1})
    assert found.schema.names[:2] == ["image", "label"]
    assert found.table_bytes > 0
    assert not Path(lake.target).exists()
    (photos / "dogs" / "z.png").write_bytes(b"no image")
    found = lake.ingest(photos, "photos", dry_run=True, on_error="skip")
    assert [Path(skipped.path).name for skipped in found.skipped] == ["z.png"]


def test_bad_files_end_the_ingest_or_are_skipped(lake: stoker.Lake, photos: Path) -> None:
    (photos / "cats" / "bad.png").write_bytes(b"no image")
    with pytest.raises(stoker.DataCorruptError, match=r'bad.png: .* leave such files out with on_error="skip"'):
        lake.ingest(photos, "photos")
    assert lake.tables() == []
    report = lake.ingest(photos, "photos", on_error="skip")
    assert report.num_rows == 6
    (skipped,) = report.skipped
    assert (Path(skipped.path).name, skipped.row) == ("bad.png", None)
    assert str(skipped).endswith(skipped.reason)


def test_refusals_are_in_words_of_python(lake: stoker.Lake, photos: Path, tmp_path: Path) -> None:
    lake.create_table("photos", {"a": [1]})
    cases: list[tuple[dict[str, Any], type[stoker.StokerError], str]] = [
        ({"colour": "red"}, stoker.InvalidRequestError, "unexpected argument 'colour=' found"),
        ({"mode": "replace"}, stoker.InvalidRequestError, "invalid value 'replace' for 'mode= <MODE>'"),
        ({"kind": "nothing"}, stoker.InvalidRequestError, "invalid value 'nothing' for 'kind= <KIND>'"),
        ({"cast": {"a": "int32"}}, stoker.InvalidRequestError, "cast= are not for sources of the kind imagefolder"),
        ({}, stoker.AlreadyExistsError, 'add the rows with mode="append" or replace it with mode="overwrite"'),
        ({"size": "big"}, stoker.InvalidRequestError, "invalid value 'big' for 'size= <HxW>'"),
        ({"progress": 3}, stoker.InvalidRequestError, "progress is a int; it must be a function, True or False"),
    ]
    for options, kind, message in cases:
        with pytest.raises(kind) as failed:
            lake.ingest(photos, "photos", **options)
        assert message in str(failed.value)
    with pytest.raises(stoker.NotFoundError, match="no such"):
        lake.ingest(tmp_path / "no such folder", "u")
    # A path that is named like a kind of source, or like an option, is a path.
    for name in ("parquet", "--mode"):
        with pytest.raises(stoker.NotFoundError):
            lake.ingest(name, "u")
    wrong: list[Any] = [b"bytes", 3, [], [3], ""]
    for sources in wrong:
        with pytest.raises(stoker.InvalidRequestError, match="sources is"):
            lake.ingest(sources, "u")
    with pytest.raises(stoker.InvalidRequestError, match="table name"):
        lake.ingest(photos, "../u")
    with pytest.raises(stoker.InvalidRequestError, match="table is a int"):
        lake.ingest(photos, 3)  # type: ignore[call-overload]


def test_a_server_says_what_to_do(lake: stoker.Lake, photos: Path) -> None:
    lake.create_table("t", {"a": [1]})
    server = Server(lake.target, {"STOKER_ALLOW_WRITES": "true"})
    remote = stoker.connect(server.url)
    with pytest.raises(
        stoker.InvalidRequestError, match=r"needs a connection to the lake itself.*`stoker ingest`.*append"
    ):
        remote.ingest(photos, "photos")
    assert remote.ingest(photos, "photos", dry_run=True).num_files == 6
    assert server.stop() == 0


def test_an_exception_of_the_progress_ends_the_ingest(lake: stoker.Lake, tmp_path: Path) -> None:
    rows = "\n".join(json.dumps({"id": row, "text": "x" * 900}) for row in range(40_000))
    (tmp_path / "rows").mkdir()
    for number in range(4):
        (tmp_path / "rows" / f"{number}.jsonl").write_text(rows)

    def stop(_: stoker.IngestProgress) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        lake.ingest(tmp_path / "rows", "t", progress=stop, unit_mib=1)
    report = lake.ingest(tmp_path / "rows", "t", unit_mib=1)
    assert lake.table("t").num_rows == 160_000
    assert [version.version for version in lake.table("t").versions()] == [report.version]


INTERRUPTED = """
import signal, sys, stoker
signal.signal(signal.SIGINT, signal.default_int_handler)
lake = stoker.connect(sys.argv[1])
begun = False
def tell(progress):
    global begun
    if not begun:
        begun = True
        print("begun", flush=True)
        sys.stdin.readline()
try:
    lake.ingest(sys.argv[2], "t", progress=tell, unit_mib=1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_the_ingest(lake: stoker.Lake, tmp_path: Path) -> None:
    rows = "\n".join(json.dumps({"id": row, "text": "x" * 900}) for row in range(40_000))
    (tmp_path / "rows").mkdir()
    for number in range(4):
        (tmp_path / "rows" / f"{number}.jsonl").write_text(rows)
    command = [sys.executable, "-c", INTERRUPTED, lake.target, str(tmp_path / "rows")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "begun\n"
        job.send_signal(2)
        printed, _ = job.communicate("\n", timeout=120)
    assert (printed, job.returncode) == ("interrupted\n", 0)
    assert lake.tables() == []
    assert lake.ingest(tmp_path / "rows", "t", unit_mib=1).num_rows == 160_000


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_of_progress_is_shown_in_terminals(
    lake: stoker.Lake, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    lake.ingest(photos, "photos")
    assert "\r" in out.getvalue()
    assert "6 of 6 files, 6 rows" in out.getvalue()
    assert out.getvalue().endswith("\r"), "the line is removed at the end"
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert progress_line(None) is None
    assert isinstance(progress_line(True), ProgressLine)
    monkeypatch.setattr(sys, "stderr", out)
    assert progress_line(False) is None


def test_a_notebook_shows_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    import IPython

    class ZMQInteractiveShell:
        """Stands for the shell of a kernel, which has this name."""

    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert progress_line(None) is None
    monkeypatch.setattr(IPython, "get_ipython", ZMQInteractiveShell)
    assert progress_line(None) is not None


def test_sources_are_paths_of_any_class(lake: stoker.Lake, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos.parent)
    assert lake.ingest("photos", "a").num_rows == 6
    assert lake.ingest([photos / "cats", str(photos / "dogs")], "b", kind="files").num_rows == 6
