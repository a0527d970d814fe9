"""Nulls in columns whose NumPy arrays cannot hold them: zeros with a mask and a warning, or a refusal on request."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import stoker

NUM_ROWS = 40
LENGTH = 1_200


def vectors(length: int, kind: pa.DataType, null_rows: tuple[int, ...]) -> pa.Array:
    items = pa.array(np.arange(NUM_ROWS * length) % 100).cast(kind)
    mask = pa.array([row in null_rows for row in range(NUM_ROWS)])
    return pa.FixedSizeListArray.from_arrays(items, length, mask=mask)


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of equal lakes have one id, so that a warning in one test would silence it in the next one."""
    monkeypatch.setattr("stoker._nulls._known", set())


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


@pytest.fixture(scope="module")
def nulls_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("nulls")
    lake = stoker.connect(str(path))
    lake.create_table("t", columns(), rows_per_fragment=16)
    lake.create_table("other", {"id": np.arange(NUM_ROWS), "weight": np.ones(NUM_ROWS, np.float32)})
    # pylance writes this table, because Stoker's writer refuses nulls in tensors.
    image = vectors(LENGTH, pa.uint8(), (7,))
    for mode, start in (("create", 0), ("append", 20)):
        part = pa.table({"id": pa.array(range(start, start + 20)), "image": image.slice(start, 20)})
        lance.write_dataset(part, str(path / "images.lance"), mode=mode, data_storage_version="2.2")
    # The footers of files of version 2.0 do not tell whether a column has nulls.
    lance.write_dataset(columns(), str(path / "old.lance"), data_storage_version="2.0")
    return str(path)


@pytest.fixture(params=["in process", "served"])
def nulls_lake(request: pytest.FixtureRequest, nulls_path: str, serve: Callable[[str], str]) -> stoker.Lake:
    return stoker.connect(nulls_path if request.param == "in process" else serve(nulls_path))


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
            plan(batch_size=4, allow_nulls=False)
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
    with nulls_lake.sql(query).stream(batch_size=6, shuffle="full", allow_nulls=False) as stream:
        batches = [{name: batch[name][batch.valid] for name in batch.to_arrow().schema.names} for batch in stream]
    assert sum(len(batch["id"]) for batch in batches) == num_rows


def test_a_source_of_a_mixture_with_nulls_is_refused(nulls_lake: stoker.Lake) -> None:
    good = nulls_lake.sql("SELECT id, label FROM t WHERE label IS NOT NULL")
    same = nulls_lake.sql("SELECT id, label FROM t WHERE id < 5")
    bad = nulls_lake.sql("SELECT id, label FROM t")
    assert stoker.mix([(good, 1.0), (same, 1.0)]).stream(batch_size=4, allow_nulls=False).num_rows > 0
    with pytest.raises(stoker.InvalidRequestError, match="column label has nulls among the rows"):
        stoker.mix([(good, 1.0), (bad, 1.0)]).stream(batch_size=4, allow_nulls=False)


def test_pinned_rows_are_looked_at_and_not_newer_ones(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    table = lake.create_table("t", pa.table({"label": pa.array([1, 2, 3])}))
    query = lake.sql("SELECT label FROM t")
    assert query.stream(batch_size=1, run_id="run", allow_nulls=False).num_rows == 3
    table.append(pa.table({"label": pa.array([None], pa.int64())}))
    assert query.stream(batch_size=1, run_id="run", allow_nulls=False).num_rows == 3
    with pytest.raises(stoker.InvalidRequestError, match="column label has nulls"):
        query.stream(batch_size=1, allow_nulls=False)


def test_arrow_keeps_nulls(nulls_lake: stoker.Lake) -> None:
    with nulls_lake.sql("SELECT id, label FROM t").stream(batch_size=NUM_ROWS) as stream:
        (batch,) = stream
    rows = dict(zip(*batch.to_arrow().to_pydict().values(), strict=True))
    assert (rows[11], rows[12]) == (None, 2)


ALL = "SELECT id, label, flag, score, name, emb FROM t ORDER BY id"
#: The row with a null in each column.
NULL_ROWS = {"label": 11, "flag": 7, "score": 7, "name": 7, "emb": 7}


def test_nulls_become_zeros_with_a_mask(nulls_lake: stoker.Lake) -> None:
    stream = nulls_lake.sql(ALL).stream(batch_size=NUM_ROWS, shuffle=False)
    (batch,) = stream
    with pytest.warns(stoker.NullsWarning) as told:
        columns = dict(batch)
    assert sorted(str(one.message).split()[1] for one in told) == ["emb", "flag", "label"]
    assert (columns["label"][11], columns["label"][12], columns["label"].dtype) == (0, 2, np.int64)
    assert (columns["flag"][7], columns["flag"][8], columns["flag"].dtype) == (False, True, bool)
    assert columns["emb"][7].tolist() == [0, 0, 0, 0]
    assert columns["emb"][8].tolist() == [32, 33, 34, 35]
    assert np.isnan(columns["score"][7])
    assert columns["score"][8] == 8
    assert columns["name"][7] is None
    for name, row in NULL_ROWS.items():
        assert np.flatnonzero(~batch.is_valid(name)).tolist() == [row]
    assert batch.is_valid("id").all()
    assert batch.valid.all()
    with pytest.raises(
        stoker.InvalidRequestError, match="the batch has no column 'nothing'; its columns are id, label"
    ):
        batch.is_valid("nothing")


def test_loaders_have_masks_as_keys_on_request(nulls_lake: stoker.Lake) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        masks = [*NULL_ROWS]
        (arrays,) = nulls_lake.sql(ALL).numpy(batch_size=NUM_ROWS, shuffle=False, null_masks=masks)
        (batch,) = nulls_lake.sql(ALL).torch(batch_size=NUM_ROWS, shuffle=False, seed=1, null_masks=True)
    for name, row in NULL_ROWS.items():
        assert np.flatnonzero(~arrays[f"{name}_valid"]).tolist() == [row]
        assert torch.nonzero(~batch[f"{name}_valid"]).flatten().tolist() == [row]
        assert torch.equal(batch.is_valid(name), batch[f"{name}_valid"])
    assert batch["id_valid"].all()
    assert "id_valid" not in arrays
    assert (batch["label"][11], batch["label"].dtype, batch["flag"].dtype) == (0, torch.int64, torch.bool)
    assert batch["emb"][7].tolist() == [0, 0, 0, 0]
    assert batch["emb"][8].tolist() == [32, 33, 34, 35]
    assert torch.isnan(batch["score"][7])
    assert batch["name"][7] is None
    moved = pickle.loads(pickle.dumps(batch)).to("cpu")
    assert torch.equal(moved.is_valid("label"), batch.is_valid("label"))


def test_tensors_with_nulls_are_streamed(nulls_lake: stoker.Lake) -> None:
    query = nulls_lake.sql("SELECT id, image FROM images ORDER BY id")
    (batch,) = query.numpy(batch_size=NUM_ROWS, shuffle=False, null_masks=["image"])
    expected = (np.arange(NUM_ROWS * LENGTH) % 100).astype(np.uint8).reshape(NUM_ROWS, LENGTH)
    expected[7] = 0
    np.testing.assert_array_equal(batch["image"], expected)
    assert np.flatnonzero(~batch["image_valid"]).tolist() == [7]


def images_with_nulls(rows: range, null_rows: tuple[int, ...]) -> pa.Table:
    items = pa.array(np.arange(len(rows) * LENGTH, dtype=np.int64) % 100, pa.int64()).cast(pa.uint8())
    mask = pa.array([row in null_rows for row in rows])
    storage = pa.FixedSizeListArray.from_arrays(items, LENGTH, mask=mask)
    kind = pa.fixed_shape_tensor(pa.uint8(), (3, 20, 20))
    return pa.table({"id": pa.array(rows), "image": pa.ExtensionArray.from_storage(kind, storage)})


def test_null_tensors_are_written_as_zeros_with_a_mask(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    with pytest.raises(stoker.InvalidRequestError, match="image"):
        lake.create_table("t", images_with_nulls(range(20), (3,)))
    table = lake.create_table("t", images_with_nulls(range(20), (3,)), null_masks=["image"])
    table.append(images_with_nulls(range(20, 30), (22, 29)))
    lake.table("t").append(lake.sql("SELECT * FROM t WHERE id = 22").to_arrow())
    lake.table("t").delete("id = 22")
    lake.table("t").append(images_with_nulls(range(22, 23), (22,)))
    layouts = {column.name: column.verdict for column in lake.table("t").describe()}
    assert layouts == {"id": "light", "image": "dense", "image_valid": "light"}
    query = lake.sql("SELECT id, image, image_valid FROM t")
    found: dict[int, bool] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batches = list(query.torch(batch_size=7, seed=1))
    for batch in batches:
        assert batch["image"].shape[1:] == (3, 20, 20)
        valid = batch.is_valid("image")
        assert valid.tolist() == batch["image_valid"].tolist()
        assert not batch["image"][~valid].any()
        assert batch["image"][valid].flatten(1).any(dim=1).all()
        found.update(zip(batch["id"].tolist(), valid.tolist(), strict=True))
    assert sorted(row for row, valid in found.items() if not valid) == [3, 22, 29]
    batch = next(iter(lake.sql("SELECT image FROM t").numpy(batch_size=4)))
    with pytest.raises(stoker.InvalidRequestError, match="is the column image_valid, which the query does not select"):
        batch.is_valid("image")


@pytest.mark.parametrize(
    ("null_masks", "message"),
    [
        (["nothing"], "null_masks names 'nothing'"),
        (["id"], "null_masks names 'id', which holds int64, no tensors"),
        ("image", "it must be a list of names"),
    ],
)
def test_masks_of_no_tensors_are_refused(tmp_path: Path, null_masks: object, message: str) -> None:
    lake = stoker.connect(str(tmp_path))
    with pytest.raises(stoker.InvalidRequestError, match=message):
        lake.create_table("t", images_with_nulls(range(4), ()), null_masks=null_masks)


@pytest.mark.parametrize(
    ("null_masks", "message"),
    [("label", "must be a list of names"), (["nothing"], "null_masks names 'nothing'; the columns are id, label")],
)
def test_masks_of_no_column_are_refused(nulls_lake: stoker.Lake, null_masks: object, message: str) -> None:
    for plan in (nulls_lake.sql(ALL).numpy, nulls_lake.sql(ALL).torch):
        with pytest.raises(stoker.InvalidRequestError, match=message):
            plan(batch_size=4, null_masks=null_masks)


def test_a_mask_takes_no_key_of_a_column(nulls_lake: stoker.Lake) -> None:
    query = nulls_lake.sql("SELECT label, id AS label_valid FROM t")
    with pytest.raises(stoker.InvalidRequestError, match="whose mask has the key 'label_valid', which is taken"):
        query.numpy(batch_size=4, null_masks=["label"])
