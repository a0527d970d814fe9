"""Results as Parquet files: from Python and from the command line, complete or not at all."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import NUM_ROWS, SHAPE, Server, expected_image, stoker_bin
from test_service import cli, environment, refused

import stoker

ALL = "SELECT * FROM samples ORDER BY id"
#: A query that fails after some rows.
TORN = "SELECT id, 10 / (id - 50) AS x FROM samples"
#: A query whose result has a null vector, a null list, and null numbers and texts.
NULLS = (
    "SELECT a.id, b.id AS num, b.name AS word, b.{vector} AS emb, b.items AS items FROM samples a "
    "LEFT JOIN (SELECT id, name, emb, make_array(id, NULL) AS items FROM samples WHERE id <> 2) b ON a.id = b.id "
    "WHERE a.id < 4 ORDER BY a.id"
)


@pytest.fixture(params=["in process", "through a server"])
def place(request: pytest.FixtureRequest, lake_path: str, server: Server) -> stoker.Lake:
    """The lake, opened in this process and through a server."""
    return stoker.connect(lake_path if request.param == "in process" else server.url)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in which no hidden file is left."""
    yield tmp_path
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_rows_come_back_with_their_types(place: stoker.Lake, folder: Path) -> None:
    path = folder / "samples.parquet"
    query = place.sql(ALL)
    assert query.to_parquet(path) == NUM_ROWS
    found = pq.read_table(path)
    assert found.equals(query.to_arrow())
    assert isinstance(found.schema.field("image").type, pa.FixedShapeTensorType)
    assert found.schema.field("emb").type == query.schema.field("emb").type
    assert stoker.tensor_shape(found.schema.field("image")) == SHAPE
    np.testing.assert_array_equal(found["image"].combine_chunks().to_numpy_ndarray()[7], expected_image(7))
    assert [name.name for name in folder.iterdir()] == ["samples.parquet"]


def test_no_rows_are_a_file_too(lake: stoker.Lake, folder: Path) -> None:
    query = lake.sql("SELECT * FROM samples WHERE id < 0")
    assert query.to_parquet(str(folder / "none.parquet")) == 0
    found = pq.read_table(folder / "none.parquet")
    assert (found.num_rows, found.schema.names) == (0, ["id", "image", "label", "name", "emb"])
    assert isinstance(found.schema.field("image").type, pa.FixedShapeTensorType)


def test_nulls(lake: stoker.Lake, folder: Path) -> None:
    query = lake.sql(NULLS.format(vector="emb"))
    with pytest.raises(stoker.InvalidRequestError, match=r'column emb has nulls.*WHERE "emb" IS NOT NULL'):
        query.to_parquet(folder / "nulls.parquet")
    assert list(folder.iterdir()) == []
    lists = lake.sql(NULLS.format(vector="emb::FLOAT[]"))
    assert lists.to_parquet(folder / "nulls.parquet") == 4
    found = pq.read_table(folder / "nulls.parquet").to_pylist()
    assert found == query.to_arrow().to_pylist()
    assert found[2] == {"id": 2, "num": None, "word": None, "emb": None, "items": None}
    assert found[3]["items"] == [3, None]


def test_row_groups_and_codecs(lake: stoker.Lake, folder: Path) -> None:
    path = folder / "a.parquet"

    def written(**options: object) -> tuple[list[int], str]:
        assert lake.sql(ALL).to_parquet(path, **options) == NUM_ROWS  # type: ignore[arg-type]
        file = pq.ParquetFile(path).metadata
        counts = [file.row_group(index).num_rows for index in range(file.num_row_groups)]
        return counts, file.row_group(0).column(0).compression

    assert written() == ([NUM_ROWS], "ZSTD")
    assert written(row_group_rows=40, compression="snappy") == ([40, 40, 21], "SNAPPY")
    assert written(row_group_rows=101, compression="none") == ([NUM_ROWS], "UNCOMPRESSED")


def test_a_query_that_fails_leaves_no_file(place: stoker.Lake, folder: Path) -> None:
    with pytest.raises(stoker.InvalidRequestError, match="zero"):
        place.sql(TORN).to_parquet(folder / "torn.parquet")
    assert list(folder.iterdir()) == []
    kept = folder / "kept.parquet"
    kept.write_bytes(b"as it was")
    with pytest.raises(stoker.InvalidRequestError, match="zero"):
        place.sql(TORN).to_parquet(kept)
    assert kept.read_bytes() == b"as it was"
    assert place.sql("SELECT 1 AS a").to_parquet(kept) == 1
    assert pq.read_table(kept).to_pylist() == [{"a": 1}]


def test_paths(lake: stoker.Lake, folder: Path) -> None:
    query = lake.sql("SELECT 1 AS a")
    for path in (folder / "missing" / "a.parquet", folder / "a.parquet" / "b"):
        (folder / "a.parquet").touch()
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            query.to_parquet(path)
    for path, reason in ((folder, "is a folder"), ("", "must be the path"), (b"a", "must be the path")):
        with pytest.raises(stoker.InvalidRequestError, match=reason):
            query.to_parquet(path)  # type: ignore[arg-type]
    for name in ("a\0b", "x" * 10_000):
        with pytest.raises(stoker.InvalidRequestError, match="no file can have this name"):
            query.to_parquet(folder / name)
    for options in ({"compression": "lzo"}, {"row_group_rows": 0}, {"row_group_rows": "8"}):
        with pytest.raises(stoker.InvalidRequestError, match=f"{next(iter(options))} is"):
            query.to_parquet(folder / "b.parquet", **options)  # type: ignore[arg-type]
    link = folder / "link.parquet"
    link.symlink_to(folder / "a.parquet")
    assert query.to_parquet(link) == 1
    assert link.is_symlink()
    assert pq.read_table(folder / "a.parquet").num_rows == 1
    assert query.to_parquet("/dev/null") == 1
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert sorted(path.name for path in folder.iterdir()) == ["a.parquet", "link.parquet"]


def test_files_from_the_command_line(lake: stoker.Lake, lake_path: str, server: Server, folder: Path) -> None:
    expected = lake.sql(ALL).to_arrow()
    for index, target in enumerate((["--lake", lake_path], ["--server", server.url])):
        path = folder / f"{index}.parquet"
        done = cli("sql", ALL, "--format", "parquet", "--output", str(path), *target)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        found = pq.read_table(path)
        assert found.equals(expected)
        assert isinstance(found.schema.field("image").type, pa.FixedShapeTensorType)
    assert pq.ParquetFile(folder / "0.parquet").metadata.row_group(0).column(0).compression == "ZSTD"
    piped = subprocess.run(
        [stoker_bin(), "sql", ALL, "--format", "parquet", "--lake", lake_path],
        env=environment({}),
        capture_output=True,
        timeout=120,
    )
    assert piped.returncode == 0, piped.stderr
    assert pq.read_table(pa.BufferReader(piped.stdout)).equals(expected)
    csv = folder / "rows.csv"
    assert (
        cli(
            "sql", "SELECT id FROM samples WHERE id < 2 ORDER BY id", "--format", "csv", "-o", str(csv), *target
        ).returncode
        == 0
    )
    assert csv.read_text() == "id\n0\n1\n"
    lines = cli("sql", "SELECT id FROM samples WHERE id < 2 ORDER BY id", "--format", "jsonl", *target)
    assert lines.stdout == '{"id":0}\n{"id":1}\n'


def test_the_command_leaves_no_file_of_a_query_that_fails(lake_path: str, folder: Path) -> None:
    target = ["--lake", lake_path]
    path = folder / "rows.parquet"
    for output_format in ("parquet", "csv", "arrow"):
        error = refused("sql", TORN, "--format", output_format, "--output", str(path), *target)
        assert "zero" in error
    nulls = refused("sql", NULLS.format(vector="emb"), "--format", "parquet", "--output", str(path), *target)
    assert "column emb has nulls" in nulls
    assert "is a folder" in refused("sql", "SELECT 1", "--output", str(folder), *target)
    assert "cannot write" in refused("sql", "SELECT 1", "--output", str(folder / "missing" / "a"), *target)
    assert list(folder.iterdir()) == []
    for wrong in (["--output", str(path)], ["SELECT 1", "--output", str(path), "--explain"], ["--explain"]):
        assert cli("sql", *wrong, *target).returncode == 2
    assert "the rows of one query" in refused("sql", "--format", "parquet", *target)


def test_an_interrupted_command_leaves_no_file(lake_path: str, folder: Path) -> None:
    endless = "SELECT a.id, b.name FROM samples a, samples b, samples c, samples d"
    process = subprocess.Popen(
        [stoker_bin(), "sql", endless, "--format", "csv", "--output", str(folder / "rows.csv"), "--lake", lake_path],
        env=environment({}),
        stderr=subprocess.PIPE,
        text=True,
    )
    while sum(path.stat().st_size for path in folder.iterdir()) == 0:
        assert process.poll() is None, "the query ended before it could be interrupted"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "interrupted" in errors
    assert list(folder.iterdir()) == []
