"""Tables: creating, appending, versions, tags, layouts, and what other readers see."""

from __future__ import annotations

import io
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from conftest import NUM_ROWS, SHAPE, Server, expected_image, make_columns
from PIL import Image

import stoker


def test_tables_and_schema(lake: stoker.Lake) -> None:
    assert lake.tables() == ["samples"]
    table = lake.table("samples")
    assert (table.name, table.num_rows, len(table)) == ("samples", NUM_ROWS, NUM_ROWS)
    assert table.schema.names == ["id", "image", "label", "name", "emb"]
    assert stoker.tensor_shape(table.schema.field("image")) == SHAPE
    assert stoker.tensor_shape(table.schema.field("emb")) == (4,)
    assert stoker.tensor_shape(table.schema.field("id")) == ()


def test_versions_and_tags(lake: stoker.Lake) -> None:
    newest = lake.table("samples")
    versions = newest.versions()
    assert [version.version for version in versions] == sorted(version.version for version in versions)
    assert versions[-1].version == newest.version
    assert abs((datetime.now(timezone.utc) - versions[0].timestamp).total_seconds()) < 3600
    tagged = lake.table("samples", tag="v1")
    assert tagged.num_rows == 60
    assert newest.tags == {"v1": tagged.version}
    assert lake.table("samples", version=tagged.version).num_rows == 60
    with pytest.raises(stoker.AlreadyExistsError, match="v1"):
        newest.tag("v1")


def test_describe(lake: stoker.Lake) -> None:
    layouts = {layout.name: layout for layout in lake.table("samples").describe()}
    assert list(layouts) == ["id", "image", "label", "name", "emb"]
    assert layouts["image"].bytes_per_row == np.prod(SHAPE)
    assert not layouts["image"].heavy


def test_describe_tells_sizes_nulls_and_indexes(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    columns = {
        "id": pa.array(range(300)),
        "name": pa.array([None if row % 3 else f"row {row}" for row in range(300)]),
        "late": pa.array([None] * 300, pa.float32()),
        "words": pa.array([None if row == 17 else ["b"] for row in range(300)]),
    }
    table = lake.create_table("t", columns)
    table.create_index("id", kind="btree")
    lake.execute("DELETE FROM t WHERE id < 10")
    lake.table("t").append({"id": [300], "name": ["x"], "late": pa.array([1.5], pa.float32()), "words": [["c"]]})
    table = lake.table("t")
    assert table.size is not None
    files = [path.stat().st_size for path in tmp_path.glob("t.lance/data/*.lance")]
    assert (table.size.num_fragments, table.size.num_deleted_rows) == (2, 10)
    assert table.size.bytes == sum(files)
    layouts = {layout.name: layout for layout in table.describe()}
    assert {name: layout.has_nulls for name, layout in layouts.items()} == {
        "id": False,
        "name": True,
        "late": True,
        "words": True,
    }
    assert layouts["id"].indexes == ["id_idx (BTree)"]
    assert layouts["name"].indexes == []
    server = Server(str(tmp_path))
    try:
        there = stoker.connect(server.url).table("t")
        assert there.size == table.size
        assert there.describe() == table.describe()
    finally:
        server.stop()


def test_heavy_tensors_are_dense(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (40, 3, 64, 64), dtype=np.uint8)
    table = stoker.connect(str(tmp_path)).create_table("heavy", {"image": images, "label": np.arange(40)})
    image, label = table.describe()
    assert (image.heavy, image.dense, image.bytes_per_row) == (True, True, 3 * 64 * 64)
    assert not label.heavy


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8"])
def test_every_number_type_comes_back(tmp_path: Path, dtype: str) -> None:
    values = np.arange(24).astype(dtype)
    lake = stoker.connect(str(tmp_path))
    lake.create_table("t", {"scalar": values, "tensor": values.repeat(8).reshape(24, 2, 2, 2)})
    batch = next(iter(lake.sql("SELECT * FROM t").stream(batch_size=24, shuffle=False)))
    assert batch["scalar"].dtype == batch["tensor"].dtype == np.dtype(dtype)
    np.testing.assert_array_equal(batch["scalar"], values)
    np.testing.assert_array_equal(batch["tensor"], values.repeat(8).reshape(24, 2, 2, 2))


def test_pandas_arrow_and_readers(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    frame = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", None]})
    assert lake.create_table("pandas", frame).num_rows == 3
    table = pa.table({"a": pa.array([1, 2]), "when": pa.array([0, 1], pa.timestamp("us"))})
    lake.create_table("arrow", table)
    lake.create_table("reader", pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches())))
    assert lake.sql("SELECT * FROM reader ORDER BY a").to_arrow().to_pylist() == table.to_pylist()
    assert lake.tables() == ["arrow", "pandas", "reader"]
    assert lake.sql("SELECT b FROM pandas ORDER BY a").to_pandas()["b"].tolist()[:2] == ["x", "y"]


def test_an_error_in_a_reader_leaves_the_lake_as_it_was(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    schema = pa.schema([("a", pa.int64())])

    def batches() -> object:
        yield pa.record_batch({"a": [1]}, schema=schema)
        raise RuntimeError("the disk is on fire")

    with pytest.raises(stoker.StokerError, match="on fire"):
        lake.create_table("t", pa.RecordBatchReader.from_batches(schema, batches()))
    assert lake.tables() == []


def test_append_matches_columns_by_name_and_refuses_others(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    table = lake.create_table("t", make_columns(5))
    columns = make_columns(3, start=5)
    appended = table.append(dict(reversed(columns.items())))
    assert (table.num_rows, appended.num_rows) == (5, 8)
    # The elements of pyarrow's tensors are nullable by default. Such tensors are accepted if they have no nulls.
    flat = pa.array(np.asarray(columns["image"]).reshape(-1))
    storage = pa.FixedSizeListArray.from_arrays(flat, int(np.prod(SHAPE)))
    tensor = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.uint8(), SHAPE), storage)
    others = {name: pa.array(columns[name]) for name in ("id", "label", "name")}
    emb = pa.FixedSizeListArray.from_arrays(pa.array(np.asarray(columns["emb"]).reshape(-1)), 4)
    assert appended.append(pa.table({**others, "image": tensor, "emb": emb})).num_rows == 11
    with pytest.raises(stoker.InvalidRequestError, match="label"):
        table.append({name: values for name, values in columns.items() if name != "label"})
    with pytest.raises(stoker.InvalidRequestError, match="image"):
        table.append({**columns, "image": np.zeros((3, 3, 6, 8), np.uint8)})
    with pytest.raises(stoker.InvalidRequestError, match="id"):
        table.append({**columns, "id": ["a", "b", "c"]})


def test_bad_data_is_refused_with_the_column(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    cases: list[tuple[object, str]] = [
        ({}, "no columns"),
        ({"a": [1, 2], "b": [1]}, "differ in length"),
        ({"a": np.zeros((2, 2), dtype=complex)}, "column a"),
        ({"a": [1, "x"]}, "column a"),
        (17, "cannot write a int"),
    ]
    for data, message in cases:
        with pytest.raises(stoker.InvalidRequestError, match=message):
            lake.create_table("t", data)
    with pytest.raises(stoker.InvalidRequestError, match="table name"):
        lake.create_table("../t", {"a": [1]})
    lake.create_table("t", {"a": [1]})
    with pytest.raises(stoker.AlreadyExistsError, match="table t already exists"):
        lake.create_table("t", {"a": [1]})
    assert lake.create_table("t", {"a": [2, 3]}, mode="overwrite").num_rows == 2
    for rows in (-1, 0, 2**63):
        for write in (partial(lake.create_table, "u"), lake.table("t").append):
            with pytest.raises(stoker.InvalidRequestError, match=f"rows_per_fragment is {rows}; it must be .* from 1"):
                write({"a": [1]}, rows_per_fragment=rows)
    assert lake.tables() == ["t"]


def encoded(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(buffer, kind)
    return buffer.getvalue()


def test_encoded_images(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    files = [encoded("PNG")] * 3
    table = lake.create_table("t", {"image": files, "label": [0, 1, 2]}, encoded_images=["image"])
    assert table.schema.field("image").metadata[b"stoker.kind"] == b"encoded_image"
    batch = next(iter(lake.sql("SELECT image FROM t").stream(batch_size=3)))
    assert batch["image"].tolist() == files
    assert 'img src="data:image/png' in lake.sql("SELECT * FROM t")._repr_html_()
    assert table.append({"image": files, "label": [0, 1, 2]}).num_rows == 6


def test_what_is_no_encoded_image_is_refused(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    good = [encoded("JPEG"), encoded("PNG"), encoded("WEBP"), None]
    bad = [
        (b"this is text", r'12 bytes that begin with "this is "'),
        (b"", "no bytes"),
        (b"\x89PNG\n\x1a\n", r'7 bytes that begin with "\\x89PNG\\n\\x1a\\n"'),
        (b"RIFF\x24\0\0\0WAVEfmt ", r'16 bytes that begin with "RIFF\$\\x00\\x00\\x00"'),
        (encoded("GIF"), r'\d+ bytes that begin with "GIF8'),
    ]
    for value, found in bad:
        message = f"table t: column image row 4: expected a JPEG, PNG or WebP file, found {found}"
        for kind in (pa.binary(), pa.large_binary()):
            values = {"image": pa.array([*good, value, None, b"more"], kind), "label": range(7)}
            with pytest.raises(stoker.InvalidRequestError, match=message):
                lake.create_table("t", values, encoded_images=["image"])
    assert lake.tables() == []
    with pytest.raises(stoker.InvalidRequestError, match="column name row 0: expected a JPEG, PNG or WebP file"):
        lake.create_table("t", {"name": ["a", "b"]}, encoded_images=["name"])
    assert lake.create_table("t", {"image": good, "label": range(4)}, encoded_images=["image"]).num_rows == 4
    assert lake.create_table("t", {"image": good, "label": range(4)}, mode="create_or_append").num_rows == 8
    for write in (lake.table("t").append, partial(lake.create_table, "t", mode="create_or_append")):
        with pytest.raises(stoker.InvalidRequestError, match="column image row 1: expected a JPEG"):
            write({"image": [good[0], b"text"], "label": [0, 1]})
    batches = [pa.record_batch({"image": pa.array(good)}), pa.record_batch({"image": pa.array([None, b"text"])})]
    with pytest.raises(stoker.InvalidRequestError, match="table u: column image row 5: expected a JPEG"):
        lake.create_table("u", pa.Table.from_batches(batches), encoded_images=["image"])
    assert (lake.tables(), lake.table("t").num_rows) == (["t"], 8)


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_vector_indexes(tmp_path: Path, metric: str) -> None:
    vectors = np.random.default_rng(3).normal(size=(600, 8)).astype(np.float32)
    query = vectors[17] * 3 + 0.1
    lake = stoker.connect(str(tmp_path))
    table = lake.create_table("t", {"id": np.arange(600), "emb": vectors})
    indexed = table.create_index("emb", kind="ivf_flat", metric=metric, num_partitions=4)
    assert (table.version, indexed.version, indexed.num_rows) == (1, 2, 600)
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    distances = {"l2": ((vectors - query) ** 2).sum(axis=1), "cosine": 1 - cosines, "dot": 1 - vectors @ query}
    # An index with another metric must not be used, because its distances differ.
    for searched, expected in distances.items():
        nearest = np.argsort(expected)[:10]
        for option in ("nprobes => 4", "use_index => false"):
            sql = f"SELECT id, _distance FROM vector_search(t, emb, $1, k => 10, metric => '{searched}', {option})"
            found = lake.sql(sql, params=[query]).to_arrow()
            assert found["id"].to_pylist() == nearest.tolist(), (searched, option)
            np.testing.assert_allclose(found["_distance"].to_numpy(), expected[nearest], rtol=1e-4, atol=1e-5)


def test_indexes_that_cannot_be_built(tmp_path: Path) -> None:
    table = stoker.connect(str(tmp_path)).create_table("t", {"id": range(300), "emb": np.eye(300, 8, dtype=np.float32)})
    cases: list[tuple[str, dict[str, object], str]] = [
        ("nope", {"kind": "btree"}, "nope"),
        ("id", {"kind": "ivf_flat"}, "column id of t@1"),
        ("emb", {"kind": "ivf_pq", "num_sub_vectors": 3}, "column emb of t@1.*num_sub_vectors"),
        ("emb", {"kind": "hnsw"}, 'kind "hnsw" is unknown.*ivf_flat'),
        ("emb", {"kind": "ivf_flat", "metric": "manhattan"}, 'metric "manhattan" is unknown.*cosine'),
        ("emb", {"kind": "ivf_flat", "num_partitions": 0}, "num_partitions is 0; it must be .* from 1 to 1048576"),
        ("emb", {"kind": "ivf_pq", "num_sub_vectors": -2}, "num_sub_vectors is -2; it must be .* from 1 to 65536"),
    ]
    for column, options, message in cases:
        with pytest.raises(stoker.InvalidRequestError, match=message):
            table.create_index(column, **options)
    assert [version.version for version in table.versions()] == [1]


def test_pylance_reads_the_table_and_agrees(lake_path: str) -> None:
    lance = pytest.importorskip("lance")
    dataset = lance.dataset(f"{lake_path}/samples.lance")
    rows = dataset.to_table(columns=["id", "image", "name"]).sort_by("id")
    assert rows["id"].to_pylist() == list(range(NUM_ROWS))
    images = rows["image"].combine_chunks()
    storage = images.storage if isinstance(images, pa.ExtensionArray) else images
    for row in (0, 59, 60, NUM_ROWS - 1):
        np.testing.assert_array_equal(np.asarray(storage[row].as_py(), np.uint8).reshape(SHAPE), expected_image(row))
    assert rows["name"].to_pylist()[7] == "row 7"
    assert lance.dataset(f"{lake_path}/samples.lance", version="v1").count_rows() == 60


def test_a_table_of_pylance_streams(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    lance.write_dataset(pa.table({"id": range(50), "text": [str(i) for i in range(50)]}), f"{tmp_path}/theirs.lance")
    stream = stoker.connect(str(tmp_path)).sql("SELECT id, text FROM theirs").stream(batch_size=8, seed=3)
    rows = [(int(i), t) for batch in stream for i, t in zip(batch["id"][batch.valid], batch["text"], strict=False)]
    assert sorted(rows) == [(i, str(i)) for i in range(50)]
