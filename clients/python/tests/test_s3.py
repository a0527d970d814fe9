"""A lake on an S3-compatible server: written, queried and streamed over HTTP, in process and through `stoker serve`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest
from conftest import Server, expected_image, make_columns
from PIL import Image
from s3_store import BUCKET, Store

import stoker

NUM_ROWS = 2_000
QUERY = "SELECT id, image FROM samples WHERE id < 1500"


@pytest.fixture(scope="module")
def uri(store: Store) -> str:
    """A lake with the table `samples` in two versions, written over HTTP."""
    uri = f"s3://{BUCKET}/lake"
    lake = stoker.connect(uri, storage_options=store.options)
    lake.create_table("samples", make_columns(1_000), rows_per_fragment=512).tag("v1")
    lake.table("samples").append(make_columns(NUM_ROWS - 1_000, start=1_000))
    return uri


@pytest.fixture
def s3(uri: str, store: Store) -> stoker.Lake:
    """The lake in this process."""
    return stoker.connect(uri, storage_options=store.options)


def drain(lake: stoker.Lake, query: str = QUERY) -> list[dict[str, np.ndarray]]:
    """Returns the columns `id` and `image` of all batches of an epoch."""
    stream = lake.sql(query).stream(batch_size=64, seed=3, last_batch="uneven", rank=0, world_size=1)
    return [{name: np.array(batch[name]) for name in ("id", "image")} for batch in stream]


def test_a_stream_tells_that_its_last_rows_are_read_while_they_are_waited_for(s3: stoker.Lake) -> None:
    stream = s3.sql("SELECT id, image FROM samples").stream(batch_size=NUM_ROWS // 2, rank=0, world_size=1)
    session = stream._session
    turn = session.turn_of(session.enter())
    assert turn is not None
    # Storage may be so fast that the last rows are read before the first batch is taken, or while it is.
    assert session.next(turn) is not None
    assert session.open_streams in [(0, None), (0, 1)], "the first batch"
    assert session.next(turn) is not None
    assert session.open_streams == (0, 1), "the last batch"
    assert session.next(turn) is None
    stream.close()


def test_sql_versions_and_tags(s3: stoker.Lake) -> None:
    assert s3.tables() == ["samples"]
    assert [version.version for version in s3.table("samples").versions()] == [1, 2]
    count = "SELECT count(*) AS n FROM samples"
    assert s3.sql(count).to_arrow()["n"].to_pylist() == [NUM_ROWS]
    assert s3.sql(f"{count} AT (TAG => 'v1')").to_arrow()["n"].to_pylist() == [1_000]


def test_streams_are_those_of_a_local_lake_and_of_a_server(
    s3: stoker.Lake, uri: str, store: Store, tmp_path: Path
) -> None:
    batches = drain(s3)
    ids = np.concatenate([batch["id"] for batch in batches])
    assert sorted(ids.tolist()) == list(range(1_500))
    for batch in batches:
        for row, image in zip(batch["id"], batch["image"], strict=True):
            np.testing.assert_array_equal(image, expected_image(int(row)))
    local = stoker.connect(str(tmp_path))
    local.create_table("samples", make_columns(1_000), rows_per_fragment=512)
    local.table("samples").append(make_columns(NUM_ROWS - 1_000, start=1_000))
    server = Server(uri, store.environment())
    try:
        for other in (drain(local), drain(stoker.connect(server.url))):
            assert len(other) == len(batches)
            for mine, theirs in zip(batches, other, strict=True):
                np.testing.assert_array_equal(mine["id"], theirs["id"])
                np.testing.assert_array_equal(mine["image"], theirs["image"])
    finally:
        server.stop()


def test_pylance_reads_the_table_and_agrees(uri: str, store: Store, s3: stoker.Lake) -> None:
    theirs = lance.dataset(f"{uri}/samples.lance", storage_options=store.options).to_table(
        columns=["id", "image", "name"]
    )
    mine = s3.sql("SELECT id, image, name FROM samples").to_arrow()
    assert theirs["id"].to_pylist() == mine["id"].to_pylist() == list(range(NUM_ROWS))
    assert theirs["name"].to_pylist() == mine["name"].to_pylist()
    images = [np.asarray(table["image"].combine_chunks().storage.values) for table in (theirs, mine)]
    np.testing.assert_array_equal(*images)


def test_the_store_sees_few_reads_and_a_resume_reads_only_what_is_left(store: Store) -> None:
    lake = stoker.connect(f"s3://{BUCKET}/heavy", storage_options=store.options)
    pixels = np.arange(NUM_ROWS, dtype=np.uint8)[:, None, None, None] * np.ones((1, 3, 32, 32), np.uint8)
    lake.create_table("samples", {"id": np.arange(NUM_ROWS), "image": pixels})
    # This query runs before any stream, because requests of a stream's prefetch may still be in flight after its end.
    assert lake.sql("SELECT max(id) AS last FROM samples").to_arrow()["last"].to_pylist() == [NUM_ROWS - 1]
    since = len(store.log.read_text())
    found = lake.sql("SELECT id, image FROM samples WHERE id >= 700 AND id < 900").to_arrow()
    assert found["id"].to_pylist() == list(range(700, 900))
    assert len(store.gets(since)) < 20, "plain SQL reads the heavy values of the rows that it returns, in large ranges"
    query = lake.sql("SELECT id, image FROM samples")
    stream = query.stream(batch_size=100, seed=1, rank=0, world_size=1)
    bytes_wanted = pixels.nbytes
    since = len(store.log.read_text())
    for step, batch in enumerate(stream):
        np.testing.assert_array_equal(batch["image"][:, 0, 0, 0], batch["id"].astype(np.uint8))
        if step == 14:
            state = stream.state_dict()
    whole = stream.stats()
    gets = store.gets(since)
    assert whole.requests <= len(gets), "requests are GETs; those of the next epoch, which is open already, come on top"
    assert 0 < whole.requests < NUM_ROWS / 20, "rows are not read one by one"
    assert bytes_wanted <= whole.bytes_read <= 1.1 * bytes_wanted
    resumed = query.stream(batch_size=100, seed=1, rank=0, world_size=1)
    resumed.load_state_dict(state)
    assert sum(1 for _ in resumed) == 5
    assert resumed.stats().bytes_read <= 0.5 * bytes_wanted, "a quarter is left, in up to twice as many bytes"


def test_writers_at_the_same_time_lose_no_rows(store: Store) -> None:
    uri = f"s3://{BUCKET}/contended"
    stoker.connect(uri, storage_options=store.options).create_table("t", {"id": np.arange(10)})

    def append(writer: int) -> None:
        table = stoker.connect(uri, storage_options=store.options).table("t")
        for number in range(5):
            table.append({"id": np.full(1, 100 * writer + number)})

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(append, range(1, 5)))
    ids = stoker.connect(uri, storage_options=store.options).sql("SELECT id FROM t ORDER BY id").to_arrow()["id"]
    assert ids.to_pylist() == [*range(10), *(100 * writer + number for writer in range(1, 5) for number in range(5))]


def test_the_command_line_ingests_images_and_streams_them(store: Store, tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for number in range(20):
            Image.new("RGB", (24, 24), (number, 100, 0)).save(tmp_path / label / f"{number:02}.png")
    lake = ["--lake", f"s3://{BUCKET}/pictures"]
    environment = {**os.environ, **store.environment()}

    def run(*arguments: str) -> str:
        command = [os.environ["STOKER_BIN"], *arguments, *lake]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for mode, rows in [("create", 40), ("append", 40), ("append", 41), ("append", 41)]:
        if rows == 41:
            Image.new("RGB", (24, 24), (99, 100, 0)).save(tmp_path / label / "new.png")
        run("ingest", "imagefolder", str(tmp_path), "pictures", "--mode", mode, "--quiet")
        assert f"{rows} rows" in run("tables"), "the same files are not appended twice"
    assert '"rows_in_epoch":41' in run("stream", "SELECT image, label FROM pictures", "--batch-size", "8", "--json")


IMAGES = "SELECT id, image FROM samples"


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    """Images that are stored, and read, as plain bytes: uint8 of shape (2000, 3, 32, 32)."""
    return np.arange(NUM_ROWS, dtype=np.uint8)[:, None, None, None] * np.ones((1, 3, 32, 32), np.uint8)


@pytest.fixture(scope="module")
def heavy(store: Store, pixels: np.ndarray) -> str:
    """The URI of a lake with these images."""
    uri = f"s3://{BUCKET}/kept"
    lake = stoker.connect(uri, storage_options=store.options)
    lake.create_table("samples", {"id": np.arange(NUM_ROWS), "image": pixels})
    return uri


def until_kept(folder: Path, size: float) -> None:
    """Waits until a cache has `size` bytes, because it is written in the background."""
    found = 0
    while found < size:
        found = 0
        for path in folder.rglob("*"):
            # A file that is being written is renamed at its end.
            with contextlib.suppress(FileNotFoundError):
                found += path.stat().st_size if path.is_file() else 0


def test_other_processes_take_what_one_read_from_the_cache(
    store: Store, heavy: str, pixels: np.ndarray, tmp_path: Path
) -> None:
    reports, gets = [], []
    for epoch in ("0", "1", "0"):
        since = len(store.log.read_text())
        command = [os.environ["STOKER_BIN"], "stream", IMAGES, "--batch-size", "32", "--epoch", epoch, "--json"]
        command += ["--lake", heavy]
        environment = {**os.environ, **store.environment(), "STOKER_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        reports.append(json.loads(done.stdout))
        gets.append(len(store.gets(since)))
    first = reports[0]
    assert pixels.nbytes <= first["bytes_read"] <= 1.2 * pixels.nbytes
    assert first["cache_miss_bytes"] > 0.7 * pixels.nbytes, "the first batch is read row by row"
    for number, later in enumerate(reports[1:], 1):
        # Blocks whose rows were all in the first batch are not in the cache yet.
        assert later["requests"] <= 8, later
        assert later["bytes_read"] <= 0.1 * pixels.nbytes, later
        assert later["cache_hit_bytes"] >= 0.9 * pixels.nbytes
        assert later["cache_damaged"] == 0
        # The remaining GETs are for footers, checksums and ids, which are not cached. Their number varies a little with
        # the order.
        assert gets[number] - later["requests"] <= gets[0] - first["requests"] + 5


def test_batches_from_the_cache_are_the_same(store: Store, heavy: str, pixels: np.ndarray, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    plain = drain(stoker.connect(heavy, storage_options=store.options), IMAGES)
    for _ in range(2):
        lake = stoker.connect(heavy, storage_options=store.options, cache_dir=cache, cache_bytes=1 << 30)
        stream = lake.sql(IMAGES).stream(batch_size=64, seed=3, last_batch="uneven", rank=0, world_size=1)
        batches = list(stream)
        stats = stream.stats()
        assert len(batches) == len(plain)
        for batch, expected in zip(batches, plain, strict=True):
            np.testing.assert_array_equal(batch["id"], expected["id"])
            np.testing.assert_array_equal(batch["image"], expected["image"])
        until_kept(cache, 0.9 * pixels.nbytes)
    assert stats.cache_hit_bytes >= 0.9 * pixels.nbytes
    assert stats.bytes_read <= 0.1 * pixels.nbytes


def test_a_server_that_was_killed_leaves_its_cache_to_the_next(
    store: Store, heavy: str, pixels: np.ndarray, tmp_path: Path
) -> None:
    cache, file = tmp_path / "cache", tmp_path / "stoker.toml"
    server = Server(heavy, {**store.environment(), "STOKER_CACHE_DIR": str(cache)})
    expected = drain(stoker.connect(server.url), IMAGES)
    until_kept(cache, 0.9 * pixels.nbytes)
    server.process.kill()
    server.process.wait(timeout=30)
    file.write_text(f'cache_dir = "{cache}"\ncache_bytes = {1 << 30}\n')
    server = Server(heavy, {**store.environment(), "STOKER_CONFIG": str(file)})
    try:
        batches = drain(stoker.connect(server.url), IMAGES)
        for batch, same in zip(batches, expected, strict=True):
            np.testing.assert_array_equal(batch["image"], same["image"])
        with flight.connect(server.url) as client:
            status: dict[str, float] = {"streams_ended": 0}
            while status["streams_ended"] == 0:
                (answer,) = client.do_action(flight.Action("status", b""))
                status = json.loads(answer.body.to_pybytes())
        assert status["cache_hit_bytes"] >= 0.9 * pixels.nbytes
        assert status["bytes_read"] <= 0.1 * pixels.nbytes
    finally:
        server.stop()


def test_a_cache_that_cannot_be_used_is_refused(store: Store, heavy: str, tmp_path: Path) -> None:
    with pytest.raises(stoker.InvalidRequestError, match="a server, which has the cache"):
        stoker.connect("grpc://127.0.0.1:1", cache_dir=tmp_path)
    with pytest.raises(stoker.InvalidRequestError, match="cache_bytes limits the folder cache_dir"):
        stoker.connect(heavy, storage_options=store.options, cache_bytes=1 << 30)
    file = tmp_path / "file"
    file.write_text("no folder")
    with pytest.raises(stoker.InvalidRequestError, match=f"cannot use {file} as cache_dir"):
        stoker.connect(heavy, storage_options=store.options, cache_dir=file)
    # A lake on a local disk has no cache and ignores `cache_dir`.
    stoker.connect(str(tmp_path), cache_dir=file)


def test_an_ingest_reads_each_version_a_few_times_however_many_ingests_came_before(
    store: Store, tmp_path: Path
) -> None:
    uri = f"s3://{BUCKET}/ingests"

    def ingest(number: int) -> None:
        pq.write_table(pa.table({"id": [number]}), tmp_path / f"{number}.parquet")
        command = [os.environ["STOKER_BIN"], "ingest", "parquet", str(tmp_path), "samples", "--lake", uri]
        subprocess.run([*command, "--mode", "append" if number else "create"], check=True, env=environment)

    environment = {**os.environ, **store.environment()}
    for number in range(6):
        ingest(number)
    # After a compaction, only the transactions of the versions tell that the rows of the ingests are in the table.
    lance.dataset(f"{uri}/samples.lance", storage_options=store.options).optimize.compact_files()
    since = len(store.log.read_text())
    ingest(6)
    asked = Counter(
        re.findall(r"(?:GET|HEAD) \S+/ingests/samples.lance/_versions/(\d+)", store.log.read_text()[since:])
    )
    # Each older version is read for its transaction, and the newest one each time the table is opened.
    (_, newest), *others = asked.most_common()
    assert newest <= 30
    assert max(num for _, num in others) <= 6, asked
    ids = stoker.connect(uri, storage_options=store.options).sql("SELECT id FROM samples ORDER BY id").to_arrow()
    assert ids["id"].to_pylist() == list(range(7))
