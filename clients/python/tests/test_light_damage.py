"""Light columns on damaged storage: a read returns the right values, or an error or a report names the damage."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import lance
import numpy as np
import pyarrow as pa
import pytest
from conftest import Server
from s3_store import BUCKET, Store
from stored_lake import STORED

import stoker

NUM_ROWS = 240
ROWS_PER_FRAGMENT = 120
#: The seeds of the damage, one flipped bit for each seed: in a lake on a local disk, and in a lake in a store.
LOCAL_SEEDS, STORE_SEEDS = range(120), range(12)
QUERY = "SELECT * FROM t"


def light_rows(first: int = 0, num: int = NUM_ROWS) -> pa.Table:
    """Returns rows with light columns: labels, text, lists, embeddings, tokens, small images, times, and nulls."""
    ids, random = range(first, first + num), np.random.default_rng(first)

    def lists(numbers: np.ndarray) -> pa.Array:
        return pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), numbers.shape[1])

    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "label": pa.array([i * 7919 % 10 for i in ids], pa.int32()),
            "split": pa.array([("train", "test")[i % 3 == 0] for i in ids]),
            "text": pa.array([None if i % 11 == 5 else f"row {i}: " + random.bytes(i % 90).hex() for i in ids]),
            "tags": pa.array([[i, i + 1][: i % 3] for i in ids], pa.list_(pa.int32())),
            "embedding": lists(random.standard_normal((num, 64), dtype=np.float32)),
            "tokens": lists(random.integers(0, 50_000, (num, 128), dtype=np.int32)),
            "thumbnail": lists(random.integers(0, 256, (num, 768), dtype=np.uint8)),
            "taken": pa.array([start + datetime.timedelta(seconds=i) for i in ids], pa.timestamp("us", "UTC")),
            "good": pa.array([None if i % 13 == 3 else i % 2 == 0 for i in ids], pa.bool_()),
            "size": pa.array([{"width": i, "height": i * 2} for i in ids]),
        }
    )


def by_sql(lake: stoker.Lake) -> pa.Table:
    """Returns all rows, read by a SELECT and sorted by `id`."""
    return lake.sql(QUERY).to_arrow().sort_by("id")


def by_stream(lake: stoker.Lake) -> pa.Table:
    """Returns all rows, read by a stream and sorted by `id`."""
    stream = lake.sql(QUERY).stream(batch_size=32, seed=1, allow_nulls=True, last_batch="uneven", rank=0, world_size=1)
    return pa.Table.from_batches([batch.to_arrow() for batch in stream]).sort_by("id")


WAYS = (by_sql, by_stream)


def same(one: pa.Table, other: pa.Table) -> bool:
    """Returns whether both tables have equal values."""
    return one.combine_chunks().to_pylist() == other.combine_chunks().to_pylist()


def notices(lake: stoker.Lake, intact: dict[Callable[[stoker.Lake], pa.Table], pa.Table], files: list[str]) -> int:
    """Returns how many ways of reading report that the table is damaged, each with the name of one of the files.

    Fails where a way of reading returns other values or raises another error.
    """
    num = 0
    for way, rows in intact.items():
        try:
            found, said = way(lake), ""
        except stoker.DataCorruptError as error:
            found, said = None, str(error)
        if found is not None:
            assert same(found, rows), f"{way.__name__}: wrong values"
            continue
        num += 1
        assert "t@" in said or "table t" in said, said
        assert any(file in said for file in files), said
    return num


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the table `t`."""
    root = tmp_path_factory.mktemp("intact")
    stoker.connect(str(root)).create_table("t", light_rows(), rows_per_fragment=ROWS_PER_FRAGMENT)
    return root


@pytest.fixture(scope="module")
def expected(intact: Path) -> dict[Callable[[stoker.Lake], pa.Table], pa.Table]:
    """The rows of the intact lake, for each way of reading."""
    return {way: way(stoker.connect(str(intact))) for way in WAYS}


def light_files(root: Path, table: str = "t") -> list[Path]:
    """Returns the data files that have checksums of all of their bytes."""
    return sorted((root / f"{table}.lance" / "data").glob("*-checked.lance"))


def flip(path: Path, random: Random) -> str:
    """Flips one random bit of a file, and returns a description of where it is."""
    stored = bytearray(path.read_bytes())
    at = random.randrange(len(stored))
    stored[at] ^= 1 << random.randrange(8)
    path.write_bytes(stored)
    return f"byte {at} of {len(stored)} of {path.name}"


def test_a_flipped_bit_anywhere_is_noticed_or_harmless(
    intact: Path, expected: dict[Callable[[stoker.Lake], pa.Table], pa.Table], tmp_path: Path
) -> None:
    num_noticed = 0
    for seed in LOCAL_SEEDS:
        random, root = Random(seed), tmp_path / str(seed)
        shutil.copytree(intact, root)
        path = random.choice(light_files(root))
        print(flip(path, random))
        num_noticed += notices(stoker.connect(str(root)), expected, [path.name])
        shutil.rmtree(root)
    assert num_noticed > len(LOCAL_SEEDS) * 1.8, "nearly all bytes of these files are read, in both ways"


@pytest.mark.parametrize("place", ["in process", "through a server"])
def test_a_flipped_bit_in_a_store_is_noticed_or_harmless(
    intact: Path,
    expected: dict[Callable[[stoker.Lake], pa.Table], pa.Table],
    store: Store,
    tmp_path: Path,
    place: str,
) -> None:
    num_noticed = 0
    for seed in STORE_SEEDS:
        random, root, prefix = Random(seed), tmp_path / str(seed), f"{place.split()[0]}-{seed}"
        shutil.copytree(intact, root)
        path = random.choice(light_files(root))
        flip(path, random)
        for file in root.rglob("*"):
            if file.is_file():
                store.client.upload_file(str(file), BUCKET, f"{prefix}/{file.relative_to(root)}")
        uri = f"s3://{BUCKET}/{prefix}"
        if place == "in process":
            num_noticed += notices(stoker.connect(uri, storage_options=store.options), expected, [path.name])
            continue
        running = Server(uri, store.environment())
        num_noticed += notices(stoker.connect(running.url), expected, [path.name])
        running.stop()
    assert num_noticed > len(STORE_SEEDS) * 1.6


def test_a_bit_that_flips_while_a_lake_is_open_is_noticed(
    intact: Path, expected: dict[Callable[[stoker.Lake], pa.Table], pa.Table], tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    shutil.copytree(intact, root)
    lake = stoker.connect(str(root))
    assert notices(lake, expected, []) == 0
    files = light_files(root)
    for path in files:
        stored = bytearray(path.read_bytes())
        stored[len(stored) // 3] ^= 1
        path.write_bytes(stored)
    assert notices(lake, expected, [path.name for path in files]) == 2


def test_swapped_files_are_noticed(
    intact: Path, expected: dict[Callable[[stoker.Lake], pa.Table], pa.Table], tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    shutil.copytree(intact, root)
    one, other = light_files(root)
    stored = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(stored)
    assert notices(stoker.connect(str(root)), expected, [one.name, other.name]) == 2


def test_files_of_one_length_that_were_swapped_are_noticed(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    numbers = np.random.default_rng(1).integers(0, 1 << 62, NUM_ROWS)
    lake.create_table("t", {"number": numbers}, rows_per_fragment=ROWS_PER_FRAGMENT)
    one, other = sorted((tmp_path / "t.lance" / "data").iterdir())
    stored = one.read_bytes()
    assert len(stored) == other.stat().st_size
    one.write_bytes(other.read_bytes())
    other.write_bytes(stored)
    with pytest.raises(stoker.DataCorruptError, match=r"the file was written under another name: \S+"):
        stoker.connect(str(tmp_path)).sql("SELECT number FROM t").to_arrow()


def test_files_that_were_cut_are_noticed(
    intact: Path, expected: dict[Callable[[stoker.Lake], pa.Table], pa.Table], tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    shutil.copytree(intact, root)
    path = light_files(root)[0]
    stored, opened = path.read_bytes(), stoker.connect(str(root))
    assert notices(opened, expected, []) == 0
    for length in (0, 1, 39, 40, 4_096, len(stored) // 2, len(stored) - 4_096, len(stored) - 1):
        path.write_bytes(stored[:length])
        for lake in (opened, stoker.connect(str(root))):
            assert notices(lake, expected, [path.name]) == 2, length
    path.write_bytes(stored)
    assert notices(stoker.connect(str(root)), expected, []) == 0


def deletion_files(root: Path) -> list[Path]:
    """Returns the deletion files of both fragments."""
    return sorted((root / "t.lance" / "_deletions").iterdir())


@pytest.mark.parametrize("writer", ["stoker", "pylance"])
def test_damaged_and_swapped_deletion_files_are_noticed(intact: Path, tmp_path: Path, writer: str) -> None:
    root = tmp_path / "lake"
    shutil.copytree(intact, root)
    # Stoker's deletion files have a checksum, so both fragments may lose equally many rows. pylance's have none: only
    # different numbers of deleted rows show that the files were swapped.
    if writer == "stoker":
        stoker.connect(str(root)).table("t").quarantine([3, 5, (1 << 32) + 7, (1 << 32) + 9])
    else:
        lance.dataset(str(root / "t.lance")).delete("id IN (3, 5, 127)")
    rows = {way: way(stoker.connect(str(root))) for way in WAYS}
    one, other = deletion_files(root)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    assert notices(stoker.connect(str(root)), rows, [one.name, other.name]) == 2
    other.write_bytes(second)
    if writer == "stoker":
        for at in range(len(first)):
            damaged = bytearray(first)
            damaged[at] ^= 1
            one.write_bytes(damaged)
            assert notices(stoker.connect(str(root)), rows, [one.name]) == 2, at
    one.write_bytes(first)
    assert notices(stoker.connect(str(root)), rows, []) == 0
    assert lance.dataset(str(root / "t.lance")).count_rows() == rows[by_sql].num_rows


def test_rows_beside_damaged_bytes_are_substituted(tmp_path: Path) -> None:
    num_rows = 3_000
    random = np.random.default_rng(5)
    tokens = random.integers(0, 50_000, (num_rows, 200), dtype=np.int32)
    lake = stoker.connect(str(tmp_path))
    lake.create_table("t", {"id": np.arange(num_rows), "tokens": tokens})
    (path,) = light_files(tmp_path)
    stored = bytearray(path.read_bytes())
    at = stored.find(tokens[1_234].tobytes())
    assert at > 0, "rows of 800 bytes lie side by side as they are"
    stored[at + 400] ^= 1
    path.write_bytes(stored)
    options = {"batch_size": 64, "seed": 3, "bad_rows": "substitute", "rank": 0, "world_size": 1}
    reports = []
    for place in (stoker.connect(str(tmp_path)), stoker.connect(str(tmp_path))):
        stream = place.sql(QUERY).stream(**options)
        delivered = []
        for batch in stream:
            np.testing.assert_array_equal(np.stack(batch["tokens"]), tokens[batch["id"]])
            delivered += batch["id"][batch.valid].tolist()
        bad = {row for report in stream.substituted() for row in report["row_addrs"]}
        # The damaged sector of 4 KiB overlaps about seven rows of 800 bytes: five whole rows and parts of two more.
        assert 1_234 in bad
        assert len(bad) <= 8
        assert len(delivered) == num_rows
        assert set(range(num_rows)) - set(delivered) == bad
        reports.append(bad)
    assert reports[0] == reports[1]
    with pytest.raises(stoker.DataCorruptError, match=path.name):
        list(lake.sql(QUERY).stream(batch_size=64, rank=0, world_size=1))
    with pytest.raises(stoker.DataCorruptError, match=f"(?s)t@1.*{path.name}"):
        lake.sql(QUERY).to_arrow()


def test_tables_without_checksums_stream_and_are_told(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    lance.write_dataset(light_rows(), str(root / "t.lance"), max_rows_per_file=ROWS_PER_FRAGMENT)
    lake = stoker.connect(str(root))
    table = lake.table("t")
    assert {column.unchecked_fragments for column in table.describe()} == {2}
    (finding,) = [finding for finding in table.doctor() if finding.code == "unchecked_columns"]
    assert finding.column is None
    assert "text" in finding.what
    assert same(by_stream(lake), by_sql(lake))

    added = light_rows(first=NUM_ROWS)
    table.append(added)
    newest = lake.table("t")
    assert {column.unchecked_fragments for column in newest.describe()} == {2}
    rows = {way: way(stoker.connect(str(root))) for way in WAYS}
    (path,) = light_files(root)
    stored = path.read_bytes()
    for seed in range(8):
        flip(path, Random(seed))
        assert notices(stoker.connect(str(root)), rows, [path.name]) >= 1
        path.write_bytes(stored)

    assert finding.example is not None
    exec(finding.example, {"lake": lake})
    mended = lake.table("t")
    assert {column.unchecked_fragments for column in mended.describe()} == {0}
    assert not [finding for finding in mended.doctor() if finding.code == "unchecked_columns"]
    assert same(by_sql(lake), rows[by_sql])


def test_the_stored_lake_of_an_earlier_version_is_told_to_have_none(tmp_path: Path) -> None:
    shutil.copytree(STORED / "0.1.0" / "lake", tmp_path / "lake")
    lake = stoker.connect(str(tmp_path / "lake"))
    for name in lake.tables():
        if name.startswith("stoker_"):
            continue
        columns = lake.table(name).describe()
        assert all(column.unchecked_fragments for column in columns if not column.heavy)
        assert any(finding.code == "unchecked_columns" for finding in lake.table(name).doctor())


@pytest.fixture
def copied(intact: Path, tmp_path: Path) -> Path:
    """A copy of the intact lake."""
    shutil.copytree(intact, tmp_path / "lake")
    return tmp_path / "lake"


def test_pylance_reads_and_changes_tables_with_checksums(copied: Path) -> None:
    place = str(copied / "t.lance")
    dataset = lance.dataset(place)
    assert same(dataset.to_table().sort_by("id"), by_sql(stoker.connect(str(copied))))
    assert dataset.take([0, 130, 239], columns=["id"])["id"].to_pylist() == [0, 130, 239]
    lance.write_dataset(light_rows(first=NUM_ROWS, num=30).cast(dataset.schema), place, mode="append")
    dataset = lance.dataset(place)
    dataset.delete("id % 40 = 1")
    dataset.validate()
    before = by_sql(stoker.connect(str(copied)))
    assert before.num_rows == dataset.count_rows()
    dataset.optimize.compact_files(target_rows_per_fragment=10_000)
    lake = stoker.connect(str(copied))
    assert lake.table("t").version == lance.dataset(place).version
    assert same(by_sql(lake), before)
    assert same(by_stream(lake), before)
