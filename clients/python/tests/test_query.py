"""Queries: their results as tables, their plans, and the errors of bad queries."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import NUM_ROWS, expected_image

import stoker


def test_results(lake: stoker.Lake) -> None:
    query = lake.sql("SELECT id, label FROM samples WHERE label = $1 AND id < $2 ORDER BY id", params=[3, 40])
    assert query.schema.names == ["id", "label"]
    assert query.to_arrow()["id"].to_pylist() == [3, 13, 23, 33]
    assert query.to_pandas()["id"].tolist() == [3, 13, 23, 33]
    assert query.to_reader().read_all().num_rows == 4
    assert pa.table(query).num_rows == 4
    assert "samples" in query.explain()
    assert "label = $1" in repr(query)


def test_tensors_in_tables_and_frames(lake: stoker.Lake) -> None:
    query = lake.sql("SELECT id, image FROM samples ORDER BY id LIMIT 3")
    assert stoker.tensor_shape(query.schema.field("image")) == (3, 8, 6)
    frame = query.to_pandas()
    assert list(frame.columns) == ["id", "image"]
    np.testing.assert_array_equal(frame["image"][2], expected_image(2))


def test_polars(lake: stoker.Lake) -> None:
    assert lake.sql("SELECT id FROM samples ORDER BY id LIMIT 3").to_polars()["id"].to_list() == [0, 1, 2]


def test_snapshots_in_sql(lake: stoker.Lake) -> None:
    counts = [
        lake.sql(f"SELECT count(*) AS n FROM samples{at}").to_arrow()["n"][0].as_py()
        for at in ("", " AT (TAG => 'v1')", f" AT (VERSION => {lake.table('samples', tag='v1').version})")
    ]
    assert counts == [NUM_ROWS, 60, 60]


def test_vector_search_with_a_predicate(lake: stoker.Lake) -> None:
    sql = "SELECT id, image FROM vector_search(samples, emb, $1, k => 5) WHERE label = 3"
    query = lake.sql(sql, params=[np.array([50, 0, 1, -50], np.float32)])
    rows = np.arange(NUM_ROWS)
    emb = np.stack([rows, rows**2 % 97, np.ones_like(rows), -rows], axis=1).astype(np.float32)
    distances = ((emb - np.array([50, 0, 1, -50])) ** 2).sum(axis=1)
    candidates = rows[rows % 10 == 3]
    nearest = set(candidates[np.argsort(distances[candidates])][:5].tolist())
    assert set(query.to_arrow()["id"].to_pylist()) == nearest
    streamed = {}
    for batch in query.stream(batch_size=2, last_batch="uneven"):
        streamed |= dict(zip(batch["id"].tolist(), batch["image"], strict=True))
    assert set(streamed) == nearest
    for row, image in streamed.items():
        np.testing.assert_array_equal(image, expected_image(row))


def test_parameters_of_every_type(lake: stoker.Lake) -> None:
    query = lake.sql("SELECT $1 AS i, $2 AS f, $3 AS t, $4 AS b", params=[np.int32(3), np.float32(0.5), "x", True])
    assert query.to_arrow().to_pylist() == [{"i": 3, "f": 0.5, "t": "x", "b": True}]
    with pytest.raises(stoker.InvalidRequestError, match=r"parameter \$2"):
        lake.sql("SELECT $1, $2", params=[1, object()])


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("SELECT * FROM nothing", stoker.NotFoundError, "nothing"),
        ("SELECT nope FROM samples", stoker.InvalidRequestError, "nope"),
        ("SELEC id FROM samples", stoker.InvalidRequestError, "SELEC"),
        ("SELECT id FROM samples AT (TAG => 'v9')", stoker.NotFoundError, "v9"),
        ("SELECT id FROM samples AT (VERSION => 99)", stoker.NotFoundError, "99"),
        ("DROP TABLE samples", stoker.InvalidRequestError, r"not allowed in a query: execute it with lake\.execute"),
        ("SELECT id FROM samples WHERE id = $1", stoker.InvalidRequestError, r"\$1"),
    ],
)
def test_bad_queries(lake: stoker.Lake, sql: str, error: type[stoker.StokerError], message: str) -> None:
    with pytest.raises(error, match=message):
        lake.sql(sql)


def test_missing_things(lake: stoker.Lake) -> None:
    with pytest.raises(stoker.NotFoundError, match="nothing") as raised:
        lake.table("nothing")
    assert isinstance(raised.value, LookupError)
    assert raised.value.kind == "not_found"
    with pytest.raises(stoker.NotFoundError, match="v9"):
        lake.table("samples", tag="v9")
    with pytest.raises(stoker.InvalidRequestError, match="either a version or a tag"):
        lake.table("samples", tag="v1", version=1)
    for version in (-1, 2**63, 1.5):
        with pytest.raises(stoker.InvalidRequestError, match=f"version is {version}; it must be a whole number from 0"):
            lake.table("samples", version=version)


def test_bad_targets(tmp_path: Path) -> None:
    with pytest.raises(stoker.InvalidRequestError, match="ftp"):
        stoker.connect("ftp://host/lake")
    with pytest.raises(stoker.StokerError, match=r"127\.0\.0\.1"):
        stoker.connect("grpc://127.0.0.1:1", retry_budget_secs=0)
    numbers = [("retry_budget_secs", -1), ("num_endpoints", 0), ("num_endpoints", 257), ("memory_budget_bytes", 0)]
    numbers += [("cache_bytes", 0)]
    for name, value in numbers:
        with pytest.raises(stoker.InvalidRequestError, match=f"{name} is {value}; it must be a whole number from"):
            stoker.connect(str(tmp_path), **{name: value})


def test_not_a_sample_query(lake: stoker.Lake) -> None:
    query = lake.sql("SELECT label, count(*) FROM samples GROUP BY label")
    with pytest.raises(stoker.InvalidRequestError):
        query.stream(batch_size=4)


@pytest.mark.parametrize(
    ("name", "values", "allowed"),
    [
        ("batch_size", [-1, 0, 2**32 + 1, 10**5000, 2.0, "8", True], "from 1 to 4294967296"),
        ("global_batch_size", [-1, 0, 2**64], "from 1 to 4294967296"),
        ("seed", [-1, 2**64, 0.5, None], "from 0 to 18446744073709551615"),
        ("epoch", [-1, 2**63, None], "from 0 to 2**63 - 1"),
        ("rank", [-1, 2**32], "from 0 to 4294967295"),
        ("world_size", [-1, 0, 2**32], "from 1 to 4294967295"),
        ("memory_budget_bytes", [-1, 0, 2**63], "from 1 to 2**63 - 1"),
        ("shuffle_window_bytes", [-1, 0, 2**63], "from 1 to 2**63 - 1"),
        ("block_bytes", [-1, 0, 2**63], "from 1 to 2**63 - 1"),
        ("num_lanes", [-1, 0, 2**16 + 1], "from 1 to 65536"),
        ("order_version", [-1, 0, 3], "from 1 to 2"),
    ],
)
def test_numbers_out_of_range(lake: stoker.Lake, name: str, values: list[object], allowed: str) -> None:
    query = lake.sql("SELECT id FROM samples")
    for value in values:
        others = {"batch_size": 4} if name != "global_batch_size" else {}
        ranks = {"rank": 0, "world_size": 1}
        with pytest.raises(stoker.InvalidRequestError) as raised:
            query.stream(**(others | ranks | {name: value}))
        shown = "too large" if value == 10**5000 else repr(value)
        assert str(raised.value) == f"{name} is {shown}; it must be a whole number {allowed}"


def test_numbers_at_their_limits(lake: stoker.Lake) -> None:
    query = lake.sql("SELECT id FROM samples")
    largest = {"seed": 2**64 - 1, "epoch": 2**63 - 1, "num_lanes": 2**16, "block_bytes": 2**63 - 1}
    for options in (largest, {"num_lanes": 1, "block_bytes": 1, "shuffle_window_bytes": 1, "memory_budget_bytes": 1}):
        stream = query.stream(batch_size=np.int64(50), **options)
        assert sorted(row for batch in stream for row in batch["id"][batch.valid].tolist()) == list(range(NUM_ROWS))
    with pytest.raises(stoker.InvalidRequestError, match="epoch is -1; it must be"):
        stream.set_epoch(-1)
    assert stream.epoch == 1


def test_ranks_of_the_environment(lake: stoker.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "-1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(stoker.InvalidRequestError, match="rank is -1; it must be"):
        lake.sql("SELECT id FROM samples").stream(batch_size=4)


def test_html(lake: stoker.Lake) -> None:
    html = lake.sql("SELECT id, image, '<b>' AS markup FROM samples ORDER BY id;")._repr_html_()
    assert "&lt;b&gt;" in html
    assert html.count("<tr>") == 1 + 8
    assert "data:image/png" in html


def test_lakes_pickle(lake: stoker.Lake) -> None:
    copy = pickle.loads(pickle.dumps(lake))
    assert copy.tables() == lake.tables()
    assert pickle.loads(pickle.dumps(lake.table("samples", tag="v1"))).num_rows == 60
