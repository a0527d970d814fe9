"""Streams over outer joins, in this process and through a server."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from conftest import Server, expected_image, make_columns

import stoker

NO_ROW = 2**64 - 1


@pytest.fixture(scope="module")
def joined_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a lake with `samples` (ids 0 to 39), `notes` (even ids up to 50, with nulls) and `pictures`."""
    path = str(tmp_path_factory.mktemp("joined"))
    lake = stoker.connect(path)
    lake.create_table("samples", make_columns(40), rows_per_fragment=16)
    ids = list(range(0, 51, 2))
    notes = {"note_id": ids, "note": [f"note {i}" if i % 4 == 0 else None for i in ids], "weight": [i / 2 for i in ids]}
    lake.create_table("notes", pa.table(notes))
    pictures = {"key": np.arange(20), "large": np.ones((20, 4, 512), np.uint8), "small": np.ones((20, 2, 8), np.uint8)}
    lake.create_table("pictures", pictures)
    return path


@pytest.fixture(scope="module")
def joined_server(joined_path: str) -> Iterator[Server]:
    running = Server(joined_path)
    yield running
    running.stop()


@pytest.fixture(params=["here", "there"])
def either(request: pytest.FixtureRequest, joined_path: str, joined_server: Server) -> stoker.Lake:
    return stoker.connect(joined_path if request.param == "here" else joined_server.url)


@pytest.mark.parametrize("join", ["LEFT", "RIGHT", "FULL"])
def test_light_columns_of_missing_rows_are_null(either: stoker.Lake, join: str) -> None:
    sql = f"SELECT s.id, n.note_id, n.note, n.weight FROM samples s {join} JOIN notes n ON n.note_id = s.id"
    expected = sorted(map(str, either.sql(sql).to_arrow().to_pylist()))
    stream = either.sql(sql).stream(batch_size=7, seed=3, allow_nulls=True)
    rows = []
    for batch in stream:
        table = batch.to_arrow()
        rows += [str(row) for row in table.to_pylist()]
        columns = [table.column("id"), table.column("note_id")]
        for ids, column in zip(batch.row_ids.T, columns, strict=True):
            assert [row == NO_ROW for row in ids.tolist()] == [value is None for value in column.to_pylist()]
    assert sorted(rows) == expected


def test_the_query_of_a_row_that_no_table_supplies(either: stoker.Lake) -> None:
    joined = "SELECT s.id + 0 AS id, n.weight FROM samples s LEFT JOIN notes n ON n.note_id = s.id"
    low, high = (either.sql(f"{joined} WHERE s.id {side} 15") for side in ("<", ">="))
    num_missing = 0
    for world in (1, 3):
        for rank in range(world):
            stream = stoker.mix({low: 0.5, high: 0.5}, stop="all").stream(
                global_batch_size=12, rank=rank, world_size=world, last_batch="pad", allow_nulls=True
            )
            for batch in stream:
                expected = [row >= 15 for row in batch.to_arrow()["id"].to_pylist()]
                assert batch.source.tolist() == expected
                assert pickle.loads(pickle.dumps(batch._rows)).source.tolist() == expected
                num_missing += int((batch.row_ids == NO_ROW).all(axis=1).sum())
    assert num_missing > 0


def test_rows_and_receipts_are_the_same_anywhere(joined_path: str, joined_server: Server) -> None:
    sql = "SELECT s.id, s.image, n.note FROM samples s LEFT JOIN notes n ON n.note_id = s.id"
    here = stoker.connect(joined_path).sql(sql).stream(batch_size=9, seed=5, allow_nulls=True)
    there = stoker.connect(joined_server.url).sql(sql).stream(batch_size=9, seed=5, allow_nulls=True)
    assert here.stream_id == there.stream_id
    for mine, theirs in zip(here, there, strict=True):
        assert mine.to_arrow().equals(theirs.to_arrow())
        np.testing.assert_array_equal(mine.row_ids, theirs.row_ids)
        for row in range(mine.num_valid):
            np.testing.assert_array_equal(mine["image"][row], expected_image(int(mine["id"][row])))
            assert (mine.to_arrow()["note"][row].as_py() is None) == (int(mine["id"][row]) % 4 != 0)


def test_tensors_of_missing_rows_are_refused_when_planned(either: stoker.Lake) -> None:
    join = "FROM samples s LEFT JOIN pictures p ON p.key = s.id"
    with pytest.raises(stoker.InvalidRequestError, match=r"column large is heavy.*table pictures.*INNER JOIN"):
        either.sql(f"SELECT s.id, p.large {join}").stream(batch_size=4)
    stream = either.sql(f"SELECT s.id, p.large {join} WHERE p.key IS NOT NULL").stream(
        batch_size=4, last_batch="uneven"
    )
    rows = [row for batch in stream for row in batch["id"].tolist()]
    assert sorted(rows) == list(range(20))
    # A small tensor is a light column, so it may be null.
    stream = either.sql(f"SELECT s.id, p.small {join}").stream(batch_size=40, allow_nulls=True)
    table = next(iter(stream)).to_arrow()
    assert [value is None for value in table["small"].to_pylist()] == [row >= 20 for row in table["id"].to_pylist()]
