"""Statements over tensors and vectors, in process and through a server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import Server, expected_image

import stoker


@pytest.fixture(params=["here", "there"])
def either(request: pytest.FixtureRequest, lake: stoker.Lake, server: Server) -> stoker.Lake:
    """The lake, in process and through a server."""
    return lake if request.param == "here" else stoker.connect(server.url)


def test_casts_of_tensors_are_lists(either: stoker.Lake) -> None:
    query = either.sql("SELECT id, CAST(image AS FLOAT[]) AS floats, image FROM samples WHERE id < 3 ORDER BY id")
    assert query.schema.field("floats").type == pa.list_(pa.float32())
    table = query.to_arrow()
    assert table["floats"][2].as_py() == expected_image(2).astype(float).reshape(-1).tolist()
    assert stoker.tensor_shape(table.schema.field("image")) == (3, 8, 6)
    batch = next(iter(either.sql("SELECT CAST(emb AS DOUBLE[]) AS v, id FROM samples").stream(batch_size=2)))
    assert batch.to_arrow().schema.field("v").type == pa.list_(pa.float64())


def test_operators_of_vectors(either: stoker.Lake) -> None:
    sql = "SELECT id, emb <-> $1 AS l2, emb <=> $1 AS cosine, emb <#> $1 AS dot FROM samples WHERE id = 2"
    (row,) = either.sql(sql, params=[np.array([1, 0, 1, 0], np.float32)]).to_arrow().to_pylist()
    emb = np.array([2, 4, 1, -2])
    assert row["l2"] == pytest.approx(np.linalg.norm(emb - [1, 0, 1, 0]))
    assert row["cosine"] == pytest.approx(1 - 3 / 5 / np.sqrt(2))
    assert row["dot"] == pytest.approx(-3)
    assert either.sql("SELECT count(*) AS n FROM samples WHERE name <=> 'row 3'").to_arrow()["n"][0].as_py() == 1


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT 9223372036854775807 + 1", "(?i)overflow"),
        ("SELECT sum(9223372036854775807 - id) FROM samples", "9223372036854775807|(?i:overflow|cast)"),
        ("SELECT * FROM vector_search(samples, emb, [0, 0, 0, 0], metric => 'cosine')", "length zero"),
    ],
)
def test_values_without_a_result_are_errors(either: stoker.Lake, sql: str, message: str) -> None:
    with pytest.raises(stoker.InvalidRequestError, match=message):
        either.sql(sql).to_arrow()


def test_no_internal_name_is_shown(either: stoker.Lake) -> None:
    query = either.sql("SELECT $1, id, l2_distance(emb, $1) FROM samples LIMIT 1", params=[[1.0, 2.0, 3.0, 4.0]])
    assert query.schema.names == ["$1", "id", "l2_distance(samples.emb,$1)"]
    assert "__stoker" not in query.explain()
    for prefix in ("EXPLAIN", "EXPLAIN VERBOSE", "EXPLAIN ANALYZE"):
        shown = either.sql(f"{prefix} SELECT s.id FROM samples s JOIN samples t USING (id)").to_arrow()
        assert "__stoker" not in str(shown.to_pylist())


def test_rows_without_a_vector(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    vectors = np.random.default_rng(1).normal(size=(600, 8)).astype(np.float32)
    rows = [None if row == 7 else vector.tolist() for row, vector in enumerate(vectors)]
    rows[9] = [float("nan")] * 8
    column = pa.array(rows, pa.list_(pa.float32(), 8))
    table = lake.create_table("t", pa.table({"id": range(600), "emb": column}))
    assert lake.sql("SELECT id FROM t WHERE emb IS NULL").to_arrow()["id"].to_pylist() == [7]
    exact = "SELECT id FROM vector_search(t, emb, $1, k => 600, use_index => false)"
    found = lake.sql(exact, params=[vectors[3]]).to_arrow()["id"].to_pylist()
    assert (found[0], len(found), 9 in found) == (3, 598, False)
    nearest = lake.sql(exact.replace("600", "3"), params=[vectors[3]]).to_arrow()["id"].to_pylist()
    assert nearest == np.argsort(((np.nan_to_num(vectors, nan=1e9) - vectors[3]) ** 2).sum(axis=1))[:3].tolist()
    for kind in ("ivf_flat", "ivf_pq"):
        for metric in ("l2", "cosine", "dot"):
            table.create_index("emb", kind=kind, metric=metric, num_sub_vectors=4 if kind == "ivf_pq" else None)
            sql = f"SELECT id FROM vector_search(t, emb, $1, k => 598, metric => '{metric}', nprobes => 9)"
            found = lake.sql(sql, params=[vectors[3]]).to_arrow()["id"].to_pylist()
            assert sorted(found) == [row for row in range(600) if row not in (7, 9)]


def test_an_index_that_has_too_few_vectors_to_learn_from_says_so(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(256, 8)).astype(np.float32)
    vectors[9] = np.nan
    table = stoker.connect(str(tmp_path)).create_table("t", {"id": range(256), "emb": vectors})
    too_few = (
        r"column emb of t@1: Not enough rows to train PQ. Requires 256 rows but only 255"
        r".* contain NaN are not counted.*ivf_flat"
    )
    with pytest.raises(stoker.InvalidRequestError, match=too_few):
        table.create_index("emb", kind="ivf_pq", num_sub_vectors=4)
    with pytest.raises(
        stoker.InvalidRequestError, match=r"column emb of t@1: KMeans cannot train \d+ .*few partitions"
    ):
        table.create_index("emb", kind="ivf_flat", num_partitions=500)
    table.create_index("emb", kind="ivf_flat")
    table.append({"id": [256], "emb": vectors[:1]})
    table.create_index("emb", kind="ivf_pq", num_sub_vectors=4)


def test_null_rows_of_tensors_are_refused_by_name(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    wide = pa.array([[1.0] * 300, None, [2.0] * 300], pa.list_(pa.float32(), 300))
    with pytest.raises(stoker.InvalidRequestError, match=r"column x must not have nulls, but row 1 has one"):
        lake.create_table("t", pa.table({"x": wide}))
    inside = pa.array([[1.0, None], [1.0, 2.0]], pa.list_(pa.float32(), 2))
    with pytest.raises(stoker.InvalidRequestError, match=r"column x row \d+: expected values without nulls inside"):
        lake.create_table("t", pa.table({"x": inside}))
    light = pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2))
    table = lake.create_table("t", pa.table({"x": light}))
    table.append(pa.table({"x": light}))
    assert lake.sql("SELECT x FROM t").to_arrow()["x"].to_pylist() == [[1.0, 2.0], None] * 2
