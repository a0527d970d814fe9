"""Compressed columns: streams give the same arrays as those of plain columns, and damage is named."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from conftest import Server
from damage import damage_rows

import stoker

NUM_ROWS = 90
CODECS = ("pco", "zstd", "byte_stream_split", "lz4")
#: The columns of the table, each with its codec in the compressed table.
COLUMNS = {
    "depth": "pco",
    "photo": "zstd",
    "tokens": "pco:4",
    "half": "byte_stream_split",
    "state": "lz4",
    "emb": "pco",
}
NAMES = ", ".join(COLUMNS)


def columns(start: int = 0, num_rows: int = NUM_ROWS) -> dict[str, Any]:
    """Returns columns of all sorts of numbers, as functions of the row."""
    ids = np.arange(start, start + num_rows)
    random = np.random.default_rng(start)
    depth = np.cumsum(random.normal(size=(num_rows, 6, 60)).astype(np.float32), axis=2)
    depth[ids % 7 == 3, 2, 5] = np.nan
    return {
        "id": ids,
        "depth": depth,
        "photo": (ids[:, None, None, None] + np.arange(3 * 12 * 10).reshape(3, 12, 10)).astype(np.uint8),
        "tokens": (ids[:, None] * 31 + np.arange(400)).astype(np.int64) % 1000,
        "half": torch.from_numpy(random.normal(size=(num_rows, 4, 30)).astype(np.float32)).to(torch.bfloat16),
        "state": random.integers(-3, 3, (num_rows, 5, 41)).astype(np.float64),
        "emb": random.normal(size=(num_rows, 128)).astype(np.float32),
    }


@pytest.fixture(scope="module")
def own_lake(tmp_path_factory: pytest.TempPathFactory) -> stoker.Lake:
    """A lake with the table `plain`, and with the same rows in the table `small`."""
    lake = stoker.connect(str(tmp_path_factory.mktemp("compressed")))
    for name, compression in (("plain", None), ("small", COLUMNS)):
        table = lake.create_table(name, columns(), compression=compression, rows_per_fragment=40)
        table.append(columns(NUM_ROWS, 10))
    return lake


def bits(array: Any) -> np.ndarray:
    """Returns the bytes of a tensor or array, so that NaN are compared by their bits."""
    if isinstance(array, torch.Tensor):
        array = array.contiguous().view(torch.uint8) if array.dtype == torch.bfloat16 else array.numpy()
    return np.ascontiguousarray(array).view(np.uint8)


def test_arrays_are_those_of_the_plain_column(place: stoker.Lake) -> None:
    plain, small = (place.sql(f"SELECT id, {NAMES} FROM {name}") for name in ("plain", "small"))
    options: dict[str, Any] = {"batch_size": 16, "seed": 5}
    streams = plain.stream(**options), small.stream(**options)
    assert [stoker.tensor_shape(field) for field in streams[0].schema] == [
        stoker.tensor_shape(field) for field in streams[1].schema
    ]
    num_rows = 0
    for expected, found in zip(*streams, strict=True):
        num_rows += found.num_valid
        for name in ("id", *COLUMNS):
            assert (found[name].dtype, found[name].shape) == (expected[name].dtype, expected[name].shape), name
            np.testing.assert_array_equal(bits(found[name]), bits(expected[name]), name)
            assert found.is_valid(name).all()
        assert found.to_arrow().schema.field("photo").type == pa.fixed_shape_tensor(pa.uint8(), (3, 12, 10))
    assert num_rows == NUM_ROWS + 10
    for expected, found in zip(plain.torch(**options), small.torch(**options), strict=True):
        for name in COLUMNS:
            assert (found[name].dtype, found[name].shape) == (expected[name].dtype, expected[name].shape), name
            np.testing.assert_array_equal(bits(found[name]), bits(expected[name]), name)


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_keeps_each_bit(own_lake: stoker.Lake, codec: str) -> None:
    data = columns()
    own_lake.create_table("one", data, compression=dict.fromkeys(COLUMNS, codec), mode="overwrite")
    batch = next(iter(own_lake.sql(f"SELECT {NAMES} FROM one").stream(batch_size=NUM_ROWS, shuffle=False)))
    for name in COLUMNS:
        stored = data[name].view(torch.uint8).numpy() if name == "half" else data[name]
        np.testing.assert_array_equal(bits(batch[name]).reshape(-1), bits(stored).reshape(-1), name)


def test_a_stream_resumes_on_other_ranks(place: stoker.Lake) -> None:
    query = place.sql("SELECT id, depth FROM small")
    whole = {int(row): value.copy() for batch in query.stream(batch_size=10, seed=1) for row, value in rows_of(batch)}
    stream = query.stream(batch_size=10, seed=1)
    seen = dict(rows_of(next(iter(stream))))
    state = stream.state_dict()
    for rank in range(2):
        rest = query.stream(global_batch_size=10, seed=1, rank=rank, world_size=2, last_batch="uneven")
        rest.load_state_dict(state)
        seen |= {int(row): value.copy() for batch in rest for row, value in rows_of(batch)}
    assert seen.keys() == whole.keys()
    for row, value in whole.items():
        np.testing.assert_array_equal(bits(seen[row]), bits(value))
    again = pickle.loads(pickle.dumps(query.stream(batch_size=10, seed=1)))
    assert next(iter(again))["depth"].shape == (10, 6, 60)


def rows_of(batch: stoker.Batch) -> list[tuple[int, np.ndarray]]:
    return [(int(row), value) for row, value in zip(batch["id"], batch["depth"], strict=True)]


def test_false_gives_the_bytes_as_they_are_stored(place: stoker.Lake) -> None:
    query = place.sql("SELECT depth, photo FROM small LIMIT 4")
    batch = next(iter(query.stream(batch_size=4, shuffle=False, decode={"depth": False})))
    assert batch["photo"].shape == (4, 3, 12, 10)
    frames = batch["depth"]
    assert frames.dtype == object
    assert isinstance(frames[0], bytes)
    assert list(frames) == query.to_arrow()["depth"].to_pylist()
    with pytest.raises(stoker.InvalidRequestError, match="nope"):
        query.stream(batch_size=4, decode={"nope": False})
    # A decoder of the program goes before that of the column.
    decoder = stoker.Decoder(lambda frame: np.array([len(frame)], np.int32), shape=1, dtype="int32")
    batch = next(iter(query.stream(batch_size=4, shuffle=False, decode={"depth": decoder})))
    assert batch["depth"].ravel().tolist() == [len(frame) for frame in frames]


def test_queries_decompress(place: stoker.Lake) -> None:
    table = place.sql(
        "SELECT decompress(photo) AS photo, tensor_max(decompress(tokens)) AS most FROM small ORDER BY id"
    )
    found = table.to_arrow()
    assert found.schema.field("photo").type == pa.fixed_shape_tensor(pa.uint8(), (3, 12, 10))
    expected = place.sql("SELECT photo, tensor_max(tokens) AS most FROM plain ORDER BY id").to_arrow()
    assert found["most"] == expected["most"]
    np.testing.assert_array_equal(
        found["photo"].combine_chunks().to_numpy_ndarray(), expected["photo"].combine_chunks().to_numpy_ndarray()
    )
    with pytest.raises(stoker.InvalidRequestError, match=r"write tensor_max\(decompress\(tokens\)\)"):
        place.sql("SELECT tensor_max(tokens) FROM small").to_arrow()
    with pytest.raises(stoker.InvalidRequestError, match=r"id .* is no column of compressed tensors"):
        place.sql("SELECT decompress(id) FROM small").to_arrow()


def test_statements_write_frames(own_lake: stoker.Lake) -> None:
    first_rows = {name: values[:8] for name, values in columns().items()}
    own_lake.create_table("edited", first_rows, compression=COLUMNS, mode="overwrite")
    table = own_lake.table("edited")
    new = np.full((6, 60), 2.5, np.float32)
    table.update({"depth": new.tolist()}, "id = 3")
    own_lake.execute("INSERT INTO edited SELECT * FROM small WHERE id = 50")
    own_lake.execute(f"INSERT INTO edited (id, {NAMES}) SELECT id, {NAMES} FROM plain WHERE id = 51")
    own_lake.execute("CREATE TABLE copied AS SELECT id, depth, decompress(photo) AS photo FROM edited")
    kinds = {layout.name: layout.kind for layout in own_lake.table("copied").describe()}
    assert (kinds["depth"], kinds["photo"]) == ("tensor float32[6, 60] (pco)", "tensor uint8[3, 12, 10]")
    expected = {row["id"]: row for row in rows_of_table(own_lake, "plain")}
    for row in rows_of_table(own_lake, "edited"):
        for name in COLUMNS:
            wanted = new if (row["id"], name) == (3, "depth") else expected[row["id"]][name]
            np.testing.assert_array_equal(bits(row[name]), bits(wanted))
    with pytest.raises(stoker.InvalidRequestError, match="depth"):
        table.update({"depth": [1.0, 2.0]}, "id = 3")


def rows_of_table(lake: stoker.Lake, name: str) -> list[dict[str, Any]]:
    stream = lake.sql(f"SELECT id, {NAMES} FROM {name}").stream(batch_size=200)
    batch = next(iter(stream))
    return [{key: batch[key][row] for key in ("id", *COLUMNS)} for row in range(len(batch["id"]))]


def test_describe_tells_the_codec_and_its_ratio(place: stoker.Lake) -> None:
    layouts = {layout.name: layout for layout in place.table("small").describe()}
    photo = layouts["photo"]
    assert (photo.kind, photo.codec, photo.heavy) == ("tensor uint8[3, 12, 10] (zstd)", "zstd:3", True)
    assert photo.plain_bytes == (NUM_ROWS + 10) * 360
    assert photo.ratio is not None
    assert photo.ratio > 1
    assert photo.decode_bytes_per_sec is not None
    assert photo.decode_bytes_per_sec > 0
    assert photo.unchecked_fragments == 0
    assert layouts["half"].kind == "tensor bfloat16[4, 30] (byte_stream_split)"
    assert (layouts["id"].codec, layouts["id"].plain_bytes, layouts["id"].ratio) == (None, None, None)
    assert not [finding for finding in place.table("small").doctor() if finding.column in COLUMNS]


def damaged_lake(path: Path) -> stoker.Lake:
    """A lake whose frames are good, except for those of rows 7 and 8 (cut), 20 (of another codec) and 30 (damaged)."""
    lake = stoker.connect(str(path))
    data = columns()
    lake.create_table("good", {"id": data["id"], "depth": data["depth"]}, compression={"depth": "zstd"})
    rows = lake.sql("SELECT id, depth FROM good ORDER BY id").to_arrow()
    frames = rows["depth"].to_pylist()
    for row in (7, 8):
        frames[row] = frames[row][:200]
    frames[20] = b"\x14" + frames[20][1:]
    field = lake.table("good").schema.field("depth")
    table = pa.table(
        [rows["id"], pa.array(frames, pa.large_binary())], schema=pa.schema([rows.schema.field("id"), field])
    )
    lake.create_table("samples", table)
    damage_rows(path / "samples.lance", [frames[30]])
    return stoker.connect(lake.target)


def test_damaged_frames_are_bad_rows(tmp_path: Path) -> None:
    lake = damaged_lake(tmp_path / "lake")
    running = Server(lake.target)
    expected = {int(row): value for row, value in zip(columns()["id"], columns()["depth"], strict=True)}
    for place in (lake, stoker.connect(running.url)):
        query = place.sql("SELECT id, depth FROM samples")
        with pytest.raises(stoker.DataCorruptError) as failed:
            list(place.sql("SELECT id, depth FROM samples WHERE id = 7").stream(batch_size=16))
        for part in ("column depth", "row id 7 of samples version 1", "compressed tensor", "Zstandard", "substitute"):
            assert part in str(failed.value)
        # The checksum of the stored bytes is compared before they are decoded.
        with pytest.raises(stoker.DataCorruptError, match="checksum of column depth"):
            list(place.sql("SELECT id, depth FROM samples WHERE id = 30").stream(batch_size=16))
        reports = []
        for world in (1, 3):
            report = []
            for rank in range(world):
                stream = query.stream(
                    global_batch_size=30, seed=2, rank=rank, world_size=world, bad_rows="substitute", max_bad_share=1
                )
                for batch in stream:
                    for row, value in rows_of(batch):
                        np.testing.assert_array_equal(bits(value), bits(expected[row]))
                report += [(row["position"], row["row_addrs"]) for row in stream.substituted()]
            reports.append(sorted(report))
        assert reports[0] == reports[1]
        assert sorted(addrs[0] for _, addrs in reports[0]) == [7, 8, 20, 30]
        with pytest.raises(stoker.DataCorruptError, match="column depth"):
            place.sql("SELECT decompress(depth) FROM samples WHERE id = 8").to_arrow()
    running.stop()


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("stoker.shape", "[4294967296, 4294967296, 4294967296]", "1073741824 bytes"),
        ("stoker.shape", "[6]", "2160 elements|360 elements|declares"),
        ("stoker.dtype", "float99", "no known type"),
        ("stoker.codec", "gzip", "no such codec"),
    ],
)
def test_metadata_that_contradicts_the_frames_is_refused(
    own_lake: stoker.Lake, key: str, value: str, part: str
) -> None:
    rows = own_lake.sql("SELECT id, depth FROM small").to_arrow()
    field = own_lake.table("small").schema.field("depth")
    damaged = field.with_metadata({**field.metadata, key.encode(): value.encode()})
    table = pa.table([rows["id"], rows["depth"]], schema=pa.schema([rows.schema.field("id"), damaged]))
    with pytest.raises(stoker.InvalidRequestError, match=part) as failed:
        own_lake.create_table("contradicted", table, mode="overwrite")
    assert "depth" in str(failed.value)


def test_values_that_do_not_fit_are_named(own_lake: stoker.Lake) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(600, np.float32)), 200)
    with_null = pa.concat_arrays([vectors, pa.array([None], vectors.type)])
    for data, compression, part in [
        ({"x": with_null}, {"x": "pco"}, "column x row 3"),
        ({"x": vectors}, {"y": "pco"}, "compression names 'y'"),
        ({"x": vectors}, {"x": "gzip"}, "codecs are zstd"),
        ({"x": vectors}, {"x": 7}, "stoker.ColumnCompression"),
        ({"x": vectors}, {"x": "pco:99"}, "levels of pco"),
        ({"x": vectors}, "pco", "must be a dict"),
        ({"x": [1, 2, 3]}, {"x": "pco"}, "compresses tensors and vectors"),
    ]:
        with pytest.raises(stoker.InvalidRequestError, match=part):
            own_lake.create_table("wrong", data, compression=compression)
    with pytest.raises(stoker.InvalidRequestError, match="codec is 'gzip'"):
        stoker.ColumnCompression("gzip")  # type: ignore[arg-type]
    with pytest.raises(stoker.InvalidRequestError, match="depth"):
        own_lake.table("small").append({**columns(num_rows=2), "depth": np.zeros((2, 6, 61), np.float32)})
    assert "wrong" not in own_lake.tables()


def test_null_masks_and_orders_of_dimensions_are_kept(own_lake: stoker.Lake) -> None:
    tensors = np.arange(3 * 2 * 4 * 50, dtype=np.int32).reshape(3, 2, 4, 50)
    kind = pa.fixed_shape_tensor(pa.int32(), (2, 4, 50), dim_names=("C", "H", "W"), permutation=[1, 2, 0])
    storage = pa.FixedSizeListArray.from_arrays(pa.array(tensors.reshape(-1)), 400)
    moved = pa.ExtensionArray.from_storage(kind, storage)
    masked = pa.concat_arrays([storage.slice(0, 2), pa.array([None], storage.type)])
    data = pa.table({"moved": moved, "masked": masked})
    own_lake.create_table("kept", data, compression={"moved": "pco", "masked": "zstd"}, null_masks=["masked"])
    query = own_lake.sql("SELECT moved, masked, masked_valid FROM kept")
    batch = next(iter(query.stream(batch_size=3, shuffle=False)))
    np.testing.assert_array_equal(batch["moved"], tensors.transpose(0, 2, 3, 1))
    assert batch.is_valid("masked").tolist() == [True, True, False]
    assert own_lake.table("kept").describe()[0].kind == "tensor int32[H=4, W=50, C=2] (pco)"


def test_light_columns_are_compressed_by_lance(place: stoker.Lake, own_lake: stoker.Lake) -> None:
    text = [f"the same words {row} times, " * 20 for row in range(3_000)]
    lists = [list(range(row % 7)) for row in range(3_000)]
    data = {"n": np.arange(3_000) // 100, "word": text, "flag": np.arange(3_000) % 2 == 0, "list": lists}
    if "light" not in own_lake.tables():
        own_lake.create_table("light", data, compression=dict.fromkeys(data, "zstd"))
        own_lake.create_table("lighter", data, compression=dict.fromkeys(data, "lz4"))
        own_lake.create_table("lightest", data)
        small, smaller, plain = (own_lake.table(name).describe() for name in ("light", "lighter", "lightest"))
        for index in (1, 3):  # texts and lists
            assert max(small[index].bytes, smaller[index].bytes) < plain[index].bytes, plain[index]
    for name in ("light", "lighter"):
        found = place.sql(f"SELECT * FROM {name} WHERE n < 25").to_arrow()
        assert found["word"].to_pylist() == text[:2_500]
        assert found["n"].to_pylist() == data["n"][:2_500].tolist()
        assert found["list"].to_pylist() == lists[:2_500]
        rows = [
            row for batch in place.sql(f"SELECT n, word, flag FROM {name}").stream(batch_size=500) for row in batch["n"]
        ]
        assert sorted(rows) == data["n"].tolist()


def test_sizes_of_files_are_options(own_lake: stoker.Lake) -> None:
    data = columns()
    table = own_lake.create_table(
        "sized", {"depth": data["depth"]}, rows_per_fragment=50, page_bytes=4 * 1440, mode="overwrite"
    )
    (layout,) = table.describe()
    assert (layout.chunk_bytes_max, layout.num_chunks) == (4 * 1440, 13 + 10)
    assert table.append({"depth": data["depth"]}, page_bytes=1440).describe()[0].num_chunks == 23 + NUM_ROWS
    with pytest.raises(stoker.InvalidRequestError, match="page_bytes"):
        own_lake.create_table("sized", {"depth": data["depth"]}, page_bytes=0, mode="overwrite")


def cli(*args: str) -> str:
    done = subprocess.run([os.environ["STOKER_BIN"], *args], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ingests_and_commands_compress(tmp_path: Path) -> None:
    lake, data = str(tmp_path / "lake"), columns()
    depth = pa.FixedSizeListArray.from_arrays(pa.array(data["depth"].reshape(-1)), 360)
    pq.write_table(pa.table({"id": data["id"], "depth": depth}), tmp_path / "rows.parquet")
    options = ("--compress", "depth=pco:5", "--rows-per-fragment", "40", "--page-kib", "64", "--quiet")
    told = cli("ingest", "parquet", str(tmp_path / "rows.parquet"), "t", "--lake", lake, *options)
    assert "depth: pco:5, " in told
    assert "times smaller" in told
    assert "tensor float32[360] (pco)" in cli("describe", "t", "--lake", lake)
    (_, layout) = json.loads(cli("describe", "t", "--lake", lake, "--json"))["columns"]
    assert (layout["codec"], layout["plain_bytes"]) == ("pco:5", NUM_ROWS * 1440)
    batch = next(iter(stoker.connect(lake).sql("SELECT depth FROM t").stream(batch_size=NUM_ROWS, shuffle=False)))
    np.testing.assert_array_equal(bits(batch["depth"]).reshape(-1), bits(data["depth"]).reshape(-1))


def small_rows(start: int, num_rows: int, dtype: str) -> dict[str, Any]:
    """Returns rows of 384 bytes that have much in common: twelve of forty patterns each."""
    patterns = np.random.default_rng(5).normal(size=(40, 32 // np.dtype(dtype).itemsize)).astype(dtype)
    chosen = np.random.default_rng(start).integers(0, 40, (num_rows, 12))
    return {"id": np.arange(start, start + num_rows), "state": patterns[chosen]}


@pytest.mark.parametrize(
    ("codec", "dtype"), [("zstd", "float32"), ("byte_stream_split", "float32"), ("zstd:9", "float16")]
)
def test_small_rows_share_a_dictionary(tmp_path: Path, codec: str, dtype: str) -> None:
    lake = stoker.connect(str(tmp_path / "lake"))
    first, later = small_rows(0, 3000, dtype), small_rows(3000, 500, dtype)
    table = lake.create_table("shared", first, compression={"state": codec}, rows_per_fragment=2000)
    table.append(later)
    lake.execute("INSERT INTO shared SELECT id + 3500 AS id, decompress(state) AS state FROM shared WHERE id < 50")
    # Without enough rows in the first batch there is no dictionary.
    alone = lake.create_table(
        "alone", {name: values[:100] for name, values in first.items()}, compression={"state": codec}
    )
    alone.append({name: np.concatenate([first[name][100:], later[name], first[name][:50]]) for name in first})
    assert b"stoker.dictionary" in lake.table("shared").schema.field("state").metadata
    assert b"stoker.dictionary" not in lake.table("alone").schema.field("state").metadata
    layouts = [lake.table(name).describe()[1] for name in ("shared", "alone")]
    assert layouts[0].codec is not None
    assert layouts[0].codec.endswith(" with a dictionary")
    assert layouts[0].ratio is not None
    assert layouts[1].ratio is not None
    assert layouts[0].ratio > 1.3 * layouts[1].ratio, layouts
    expected = np.concatenate([first["state"], later["state"], first["state"][:50]])
    running = Server(lake.target)
    for place in (lake, stoker.connect(running.url)):
        found = {}
        for batch in place.sql("SELECT id, state FROM shared").stream(batch_size=64, seed=3):
            found.update(
                {
                    int(row): value.copy()
                    for row, value, ok in zip(batch["id"], batch["state"], batch.valid, strict=True)
                    if ok
                }
            )
        assert sorted(found) == list(range(3550))
        for row, value in found.items():
            np.testing.assert_array_equal(value, expected[row])
    running.stop()
    # Frames keep their dictionary in a copy, and fit no column with another.
    lake.execute("CREATE TABLE copied AS SELECT id, state FROM shared")
    batch = next(iter(lake.sql("SELECT id, state FROM copied WHERE id = 7").stream(batch_size=1)))
    np.testing.assert_array_equal(batch["state"][0], expected[7])
    frames = lake.sql("SELECT id, state FROM shared WHERE id < 9").to_arrow()
    with pytest.raises(stoker.InvalidRequestError, match=r"state.*the column has none"):
        lake.table("alone").append(frames)


def test_ingests_and_copies_share_a_dictionary(tmp_path: Path) -> None:
    lake, rows = stoker.connect(str(tmp_path / "lake")), small_rows(0, 600, "float32")
    states = pa.FixedSizeListArray.from_arrays(pa.array(rows["state"].ravel()), 96)
    pq.write_table(pa.table({"id": rows["id"], "state": states}), tmp_path / "rows.parquet", row_group_size=100)
    options = ("--compress", "state=zstd", "--tensor", "state=float32[12,8]")
    cli("ingest", "parquet", str(tmp_path / "rows.parquet"), "ingested", "--lake", lake.target, *options)
    # A table without a dictionary, as its first batch is small, and a copy of it.
    few = {name: values[:100] for name, values in rows.items()}
    alone = lake.create_table("alone", few, compression={"state": "zstd"})
    alone.append({name: values[100:] for name, values in rows.items()})
    lake.execute("CREATE TABLE copied AS SELECT id, state FROM alone ORDER BY id")
    for name, is_shared in (("ingested", True), ("alone", False), ("copied", True)):
        table = lake.table(name)
        assert (b"stoker.dictionary" in table.schema.field("state").metadata) is is_shared
        batch = next(iter(lake.sql(f"SELECT id, state FROM {name} ORDER BY id").stream(batch_size=600, shuffle=False)))
        np.testing.assert_array_equal(batch["state"].reshape(600, 12, 8), rows["state"].reshape(600, 12, 8))


def test_damaged_dictionaries_are_refused(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path / "lake"))
    lake.create_table("t", small_rows(0, 500, "float32"), compression={"state": "zstd"})
    rows = lake.sql("SELECT id, state FROM t").to_arrow()
    field = lake.table("t").schema.field("state")
    whole = field.metadata[b"stoker.dictionary"]
    for value, part in ((b"?", "no base64"), (b"N6Qw7AEAAAAAAAAA", "damaged"), (whole[:4] + b"AAAA" + whole[8:], "")):
        damaged = field.with_metadata({**field.metadata, b"stoker.dictionary": value})
        table = pa.table([rows["id"], rows["state"]], schema=pa.schema([rows.schema.field("id"), damaged]))
        with pytest.raises(stoker.InvalidRequestError, match=part) as failed:
            lake.create_table("damaged", table, mode="overwrite")
        assert "state" in str(failed.value)
