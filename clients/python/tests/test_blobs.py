"""Blob columns of Lance are read like binary ones, wherever Lance stores their values, but only from the lake."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.blob import Blob

import stoker

FileVersion = Literal["2.0", "2.1", "2.2"]

#: The versions of Lance's files; blobs are structs from 2.2 on.
VERSIONS: list[FileVersion] = ["2.0", "2.1", "2.2"]

#: The lengths of the values: in the data file, in a file that several values share, and in one of their own.
LENGTHS = [10, None, 0, 300_000, 5_000_000, 70_000, 90_000, None, 4_200_000, 64, 1, 100_000]

#: The row that is deleted.
DELETED = 5


def value(row: int) -> bytes | None:
    length = LENGTHS[row]
    return None if length is None else np.random.default_rng(row).bytes(length)


VALUES: dict[int, bytes | None] = {row: value(row) for row in range(len(LENGTHS)) if row != DELETED}


def by_id(found: pa.Table) -> dict[int, bytes | None]:
    return dict(zip(found["id"].to_pylist(), found["x"].to_pylist(), strict=True))


def digest(data: bytes | None) -> bytes:
    return b"" if data is None else hashlib.sha256(data).digest()


def typed(values: list[object]) -> pa.Table:
    """Returns a table with blobs of version 2; texts among the values are URIs."""
    schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("x")])
    return pa.table([pa.array(range(len(values))), lance.blob_array(values)], schema)


def write_table(root: str, version: FileVersion) -> None:
    """Writes the table `t` in three fragments, of which one row is deleted."""
    values: list[object] = [value(row) for row in range(len(LENGTHS))]
    table = typed(values)
    if version < "2.2":
        field = pa.field("x", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        schema = pa.schema([pa.field("id", pa.int64()), field])
        table = pa.table([pa.array(range(len(values))), pa.array(values, pa.large_binary())], schema)
    dataset = lance.write_dataset(table, f"{root}/t.lance", data_storage_version=version, max_rows_per_file=4)
    dataset.delete(f"id = {DELETED}")


@pytest.fixture(scope="module", params=VERSIONS)
def own_lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> stoker.Lake:
    root = str(tmp_path_factory.mktemp("blobs"))
    write_table(root, request.param)
    return stoker.connect(root)


def test_sql_reads_the_values(place: stoker.Lake) -> None:
    found = place.sql("SELECT id, x FROM t ORDER BY id").to_arrow()
    assert found.schema.field("x").type == pa.large_binary()
    assert by_id(found) == VALUES
    lengths = place.sql("SELECT id, octet_length(x) AS n FROM t WHERE x IS NOT NULL ORDER BY id").to_arrow().to_pylist()
    assert lengths == [{"id": row, "n": len(data)} for row, data in VALUES.items() if data is not None]
    nulls = place.sql("SELECT id FROM t WHERE x IS NULL ORDER BY id").to_arrow()["id"].to_pylist()
    assert nulls == [row for row, data in VALUES.items() if data is None]
    some = place.sql("SELECT x FROM t WHERE id IN (8, 3) ORDER BY id DESC").to_arrow()["x"].to_pylist()
    assert some == [VALUES[8], VALUES[3]]


@pytest.mark.parametrize("shuffle", [False, "block"])
def test_streams_have_the_values(place: stoker.Lake, shuffle: Literal[False, "block"]) -> None:
    query = place.sql("SELECT id, x FROM t" + ("" if shuffle else " ORDER BY id"))
    stream = query.stream(batch_size=3, seed=5, shuffle=shuffle)
    found: list[tuple[int, bytes | None]] = []
    for batch in stream:
        rows = zip(batch["id"], batch["x"], batch.valid, strict=True)
        found += [(int(row), data) for row, data, is_valid in rows if is_valid]
    assert dict(found) == VALUES
    assert len(found) == len(VALUES)
    assert ([row for row, _ in found] == list(VALUES)) is not bool(shuffle)


def test_a_column_is_described(place: stoker.Lake) -> None:
    table = place.table("t")
    layout = {column.name: column for column in table.describe()}["x"]
    assert (layout.kind, layout.heavy) == ("blob", True)
    num_bytes = sum(len(data or b"") for data in VALUES.values())
    assert layout.bytes_per_row == math.ceil(num_bytes / len(VALUES))
    assert next(finding for finding in table.doctor() if finding.column == "x").code == "blob"


def test_decoders_read_blobs(place: stoker.Lake) -> None:
    def digest_of(data: bytes) -> np.ndarray[Any, Any]:
        return np.frombuffer(hashlib.sha256(data).digest(), np.uint8)

    query = place.sql("SELECT id, x FROM t WHERE id NOT IN (1, 7)")
    decode = {"x": stoker.Decoder(digest_of, shape=(32,), dtype="uint8")}
    found = {}
    for batch in query.stream(batch_size=3, seed=5, decode=decode):
        rows = zip(batch["id"], batch["x"], batch.valid, strict=True)
        found.update({int(row): data.tobytes() for row, data, is_valid in rows if is_valid})
    assert found == {row: digest(data) for row, data in VALUES.items() if data is not None}


def test_rows_are_deleted_and_light_columns_change(tmp_path: Path) -> None:
    for version in VERSIONS:
        root = tmp_path / version
        write_table(str(root), version)
        lake = stoker.connect(str(root))
        lake.execute("DELETE FROM t WHERE id = 6")
        lake.execute("UPDATE t SET id = id + 100 WHERE id = 4")
        expected = {row + 100 * (row == 4): data for row, data in VALUES.items() if row != 6}
        assert by_id(lake.sql("SELECT id, x FROM t").to_arrow()) == expected
        # Lance, too, finds each value where it was.
        dataset = lance.dataset(f"{root}/t.lance")
        for blob, row in zip(dataset.take_blobs("x", indices=[3, 4]), (3, 104), strict=True):
            assert blob is not None
            assert blob.readall() == expected[row]


def test_writes_of_blobs_are_refused(tmp_path: Path) -> None:
    for version in VERSIONS:
        root = tmp_path / version
        write_table(str(root), version)
        lake = stoker.connect(str(root))
        rows = {"id": np.array([99]), "x": pa.array([b"new"], pa.large_binary())}
        with pytest.raises(stoker.InvalidRequestError, match="column x has blobs of Lance"):
            lake.table("t").append(rows)
        copied = lake.create_table("c", lake.sql("SELECT id, x FROM t ORDER BY id").to_arrow())
        assert [layout.kind for layout in copied.describe()] == ["scalar", "binary"]
        assert by_id(lake.sql("SELECT id, x FROM c").to_arrow()) == VALUES
        with pytest.raises(stoker.InvalidRequestError, match=r"column x.* blobs of Lance"):
            lake.execute("UPDATE t SET x = X'00' WHERE id = 0")
        assert by_id(lake.sql("SELECT id, x FROM t").to_arrow()) == VALUES


def sidecars(root: Path) -> list[Path]:
    return sorted((root / "t.lance" / "data").rglob("*.blob"))


def remove(file: Path) -> None:
    file.unlink()


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [remove, truncate])
def test_damaged_files_of_blobs_name_the_row(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    write_table(str(tmp_path), "2.2")
    assert len(sidecars(tmp_path)) > 2
    for file in sidecars(tmp_path):
        damage(file)
    lake = stoker.connect(str(tmp_path))
    # Other columns, and values in the data files, do not need those files.
    assert lake.sql("SELECT sum(id) AS n FROM t WHERE id > 2").to_arrow().to_pylist() == [{"n": 58}]
    small = lake.sql("SELECT x FROM t WHERE id IN (0, 1, 2, 9) ORDER BY id").to_arrow()["x"].to_pylist()
    assert small == [VALUES[row] for row in (0, 1, 2, 9)]
    with pytest.raises(stoker.DataCorruptError, match=r"reading column x of row \d+ \(fragment 1, offset 0\) of t@2"):
        lake.sql("SELECT x FROM t WHERE id = 4").to_arrow()
    stream = lake.sql("SELECT id, x FROM t").stream(batch_size=3, bad_rows="substitute")
    good = {int(row) for batch in stream for row, is_valid in zip(batch["id"], batch.valid, strict=True) if is_valid}
    assert good == {0, 1, 2, 7, 9, 10}


def test_files_outside_the_lake_are_not_read(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    (root / "files").mkdir(parents=True)
    (root / "_stoker").mkdir()
    for file in (tmp_path / "secret", root / "files" / "inside", root / "_stoker" / "own"):
        file.write_bytes(b"hello world")
    inside = f"file://{root}/files/inside"
    uris: list[object] = [
        inside,
        Blob.from_uri(inside, position=6, size=5),
        f"file://{tmp_path}/secret",
        f"file://{root}/files/../../secret",
        f"file://{root}/_stoker/own",
        f"file://{root}",
        Blob.from_uri(inside, position=6, size=6),
        Blob.from_uri(inside, position=2**40, size=5),
        Blob.from_uri(inside, position=0, size=2**40),
        f"file://{root}/files/missing",
    ]
    lance.write_dataset(
        typed(uris), f"{root}/t.lance", data_storage_version="2.2", allow_external_blob_outside_bases=True
    )
    lake = stoker.connect(str(root))
    found = lake.sql("SELECT x FROM t WHERE id < 2 ORDER BY id").to_arrow()["x"].to_pylist()
    assert found == [b"hello world", b"world"]
    for row in range(2, 6):
        with pytest.raises(stoker.InvalidRequestError, match=rf"column x of row {row} .* inside the lake"):
            lake.sql(f"SELECT x FROM t WHERE id = {row}").to_arrow()
    for row in range(6, len(uris)):
        with pytest.raises(stoker.DataCorruptError, match=f"column x of row {row} "):
            lake.sql(f"SELECT x FROM t WHERE id = {row}").to_arrow()
    assert lake.sql("SELECT count(*) AS n FROM t").to_arrow().to_pylist() == [{"n": len(uris)}]


def test_blobs_in_structs_are_refused(tmp_path: Path) -> None:
    blobs = typed([b"a", b"b"])
    members = pa.StructArray.from_arrays([blobs["x"].combine_chunks()], fields=[blobs.schema.field("x")])
    table = pa.table({"id": blobs["id"], "s": members})
    lance.write_dataset(table, f"{tmp_path}/t.lance", data_storage_version="2.2")
    lake = stoker.connect(str(tmp_path))
    with pytest.raises(stoker.InvalidRequestError, match=r"column s of table t.* hold blobs of Lance"):
        lake.sql("SELECT s FROM t").to_arrow()
    assert lake.sql("SELECT id FROM t ORDER BY id").to_arrow()["id"].to_pylist() == [0, 1]
