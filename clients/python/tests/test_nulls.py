"""A stream is refused when it is planned if its rows have nulls in columns whose NumPy arrays cannot hold nulls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from conftest import Server

import stoker

NUM_ROWS = 40
LENGTH = 1_200


def vectors(length: int, kind: pa.DataType, null_rows: tuple[int, ...]) -> pa.Array:
    items = pa.array(np.arange(NUM_ROWS * length) % 100).cast(kind)
    mask = pa.array([row in null_rows for row in range(NUM_ROWS)])
    return pa.FixedSizeListArray.from_arrays(items, length, mask=mask)


def columns() -> pa.Table:
    """Returns columns with a null in row 7 or in row 11. Only `id` and `whole`, which are nullable too, have none."""
    some = [None if row == 7 else row for row in range(NUM_ROWS)]
    ids = pa.array(range(NUM_ROWS))
    return pa.table(
        {
            "id": ids,
            "whole": ids,
            "label": pa.array([None if row == 11 else row % 5 for row in range(NUM_ROWS)]),
            "flag": pa.array([None if row == 7 else row % 2 == 0 for row in range(NUM_ROWS)]),
            "score": pa.array(some, pa.float32()),
            "name": pa.array([None if row == 7 else str(row) for row in range(NUM_ROWS)]),
            "emb": vectors(4, pa.float32(), (7,)),
        }
    )


@pytest.fixture(params=["in process", "served"])
def nulls_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[stoker.Lake]:
    lake = stoker.connect(str(tmp_path))
    lake.create_table("t", columns(), rows_per_fragment=16)
    lake.create_table("other", {"id": np.arange(NUM_ROWS), "weight": np.ones(NUM_ROWS, np.float32)})
    # pylance writes this table, because Stoker's writer refuses nulls in tensors.
    image = vectors(LENGTH, pa.uint8(), (7,))
    for mode, start in (("create", 0), ("append", 20)):
        part = pa.table({"id": pa.array(range(start, start + 20)), "image": image.slice(start, 20)})
        lance.write_dataset(part, str(tmp_path / "images.lance"), mode=mode, data_storage_version="2.2")
    # The footers of files of version 2.0 do not tell whether a column has nulls.
    lance.write_dataset(columns(), str(tmp_path / "old.lance"), data_storage_version="2.0")
    if request.param == "in process":
        yield lake
        return
    server = Server(str(tmp_path))
    yield stoker.connect(server.url)
    server.stop()


@pytest.mark.parametrize(
    ("query", "column"),
    [
        ("SELECT id, label FROM t", "label"),
        ("SELECT id, label AS l FROM t WHERE score < 30", "l"),
        ("SELECT flag FROM t", "flag"),
        ("SELECT emb FROM t", "emb"),
        ("SELECT label + 1 AS next FROM t", "next"),
        ("SELECT t.id, label FROM t JOIN other ON t.id = other.id ORDER BY weight, t.id", "label"),
        ("SELECT label FROM t AT (VERSION => 1) WHERE id > 10", "label"),
        ("SELECT id, label FROM old", "label"),
        ("SELECT id, image FROM images", "image"),
        ("SELECT id, image FROM images WHERE id < 8", "image"),
    ],
)
def test_nulls_are_refused_when_a_stream_is_planned(nulls_lake: stoker.Lake, query: str, column: str) -> None:
    for plan in (nulls_lake.sql(query).stream, nulls_lake.sql(query).torch):
        with pytest.raises(stoker.InvalidRequestError) as refused:
            plan(batch_size=4)
        text = str(refused.value)
        assert text.startswith(f"column {column} has nulls among the rows of the stream"), text
        assert f'WHERE "{column}" IS NOT NULL' in text
        assert "coalesce(" in text


@pytest.mark.parametrize(
    ("query", "num_rows"),
    [
        ("SELECT id, whole, score, name FROM t", NUM_ROWS),
        ("SELECT id, whole FROM old", NUM_ROWS),
        ("SELECT id, label FROM t WHERE label IS NOT NULL", NUM_ROWS - 1),
        ("SELECT id, label FROM t WHERE id < 11", 11),
        ("SELECT id, emb, flag, label FROM t WHERE id NOT IN (7, 11)", NUM_ROWS - 2),
        ("SELECT id, coalesce(label, -1) AS label FROM t", NUM_ROWS),
        ("SELECT t.id, label FROM t JOIN other ON t.id = other.id WHERE label > 0 ORDER BY t.id", NUM_ROWS - 9),
        ("SELECT id, image FROM images WHERE id <> 7", NUM_ROWS - 1),
    ],
)
def test_rows_without_nulls_are_streamed(nulls_lake: stoker.Lake, query: str, num_rows: int) -> None:
    with nulls_lake.sql(query).stream(batch_size=6, shuffle="full") as stream:
        batches = [{name: batch[name][batch.valid] for name in batch.to_arrow().schema.names} for batch in stream]
    assert sum(len(batch["id"]) for batch in batches) == num_rows


def test_a_source_of_a_mixture_with_nulls_is_refused(nulls_lake: stoker.Lake) -> None:
    good = nulls_lake.sql("SELECT id, label FROM t WHERE label IS NOT NULL")
    same = nulls_lake.sql("SELECT id, label FROM t WHERE id < 5")
    bad = nulls_lake.sql("SELECT id, label FROM t")
    assert stoker.mix([(good, 1.0), (same, 1.0)]).stream(batch_size=4).num_rows > 0
    with pytest.raises(stoker.InvalidRequestError, match="column label has nulls among the rows"):
        stoker.mix([(good, 1.0), (bad, 1.0)]).stream(batch_size=4)


def test_pinned_rows_are_looked_at_and_not_newer_ones(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    table = lake.create_table("t", pa.table({"label": pa.array([1, 2, 3])}))
    query = lake.sql("SELECT label FROM t")
    assert query.stream(batch_size=1, run_id="run").num_rows == 3
    table.append(pa.table({"label": pa.array([None], pa.int64())}))
    assert query.stream(batch_size=1, run_id="run").num_rows == 3
    with pytest.raises(stoker.InvalidRequestError, match="column label has nulls"):
        query.stream(batch_size=1)


def test_who_takes_arrow_may_have_nulls(nulls_lake: stoker.Lake) -> None:
    with nulls_lake.sql("SELECT id, label FROM t").stream(batch_size=NUM_ROWS, allow_nulls=True) as stream:
        (batch,) = stream
    rows = dict(zip(*batch.to_arrow().to_pydict().values(), strict=True))
    assert (rows[11], rows[12]) == (None, 2)
