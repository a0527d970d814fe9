"""Compaction: full fragments with the same rows, though others read, write and search, and processes are killed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from conftest import TOKENS, Server, tokens_file
from damage import damage_rows
from test_cleanup import cleanup, let_pass
from test_holds import wait_for

import stoker

NUM_APPENDS = 50
STEP = 20
SHAPE = (3, 24, 24)
ROWS = "SELECT id, label, name, image, depth, photo, emb, tags FROM t ORDER BY id"
QUERY = "SELECT id, image, depth FROM t"
FULL = [("photo", "variable_width")]
"""What the doctor says of a table that needs no compaction: its photos have any length, which no compaction changes."""


def columns(start: int, num_rows: int = STEP) -> dict[str, object]:
    """Returns columns of all kinds of storage, as functions of the row."""
    ids = np.arange(start, start + num_rows)
    size = int(np.prod(SHAPE))
    return {
        "id": ids,
        "label": (ids % 10).astype(np.int32),
        "name": [None if i % 11 == 3 else f"row {i} {'fox' if i % 7 == 0 else 'dog'}" for i in ids],
        "image": ((ids[:, None] * 7 + np.arange(size)) % 251).astype(np.uint8).reshape(num_rows, *SHAPE),
        "depth": (ids[:, None] * 3 + np.arange(600)).astype(np.int32),
        "photo": pa.array([bytes([i % 256]) * (1_500 + i % 97) for i in ids], pa.large_binary()),
        "emb": np.stack([ids, ids**2 % 97, np.ones_like(ids), -ids], axis=1).astype(np.float32),
        "tags": pa.array([[f"tag {j}" for j in range(i % 4)] for i in ids], pa.list_(pa.string())),
    }


def appended(root: Path, num_appends: int = NUM_APPENDS) -> stoker.Lake:
    """A lake with the table `t`, which was written by many appends."""
    lake = stoker.connect(str(root))
    lake.create_table("t", columns(0), compression={"depth": "pco"})
    for number in range(1, num_appends):
        lake.table("t").append(columns(number * STEP))
    return lake


def rows(lake: stoker.Lake, sql: str = ROWS) -> pa.Table:
    return lake.sql(sql).to_arrow()


def ids(stream: stoker.Stream) -> list[int]:
    return sorted(int(row) for batch in stream for row in batch["id"][batch.valid])


def addresses(lake: stoker.Lake, at: str = "") -> dict[int, int]:
    """Returns the address of each row of a version by its id."""
    found = {}
    for batch in lake.sql(f"SELECT id FROM t {at}").stream(batch_size=64, last_batch="uneven"):
        found.update(zip(batch["id"].tolist(), (int(row) for row in batch.row_ids.ravel()), strict=True))
    return found


def findings(table: stoker.Table) -> list[tuple[str | None, str]]:
    return [(finding.column, finding.code) for finding in table.doctor()]


def command(root: Path | str, *arguments: str) -> list[str]:
    return [os.environ["STOKER_BIN"], "compact", "t", *arguments, "--lake", str(root)]


def compact(root: Path | str, *arguments: str) -> str:
    done = subprocess.run(command(root, *arguments), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_lake_of_many_changes_is_as_one_that_was_written_at_once(tmp_path: Path) -> None:
    lake = appended(tmp_path)
    lake.table("t").create_index("id", kind="btree")
    lake.table("t").create_index("name", kind="inverted")
    lake.table("t").create_index("emb", kind="ivf_flat", num_partitions=2)
    lake.table("t").delete("id % 9 = 4")
    lake.table("t").add_column("twice", value="label * 2")
    lake.execute("ALTER TABLE t ADD COLUMN words BIGINT AS (character_length(name))")
    found = {code for _, code in findings(lake.table("t"))}
    assert found == {"small_fragments", "deleted_rows", "variable_width"}

    selects = [
        ROWS.replace("tags", "tags, twice, words"),
        "SELECT id, round(_distance) AS d FROM vector_search(t, emb, [40, 48, 1, -40], k => 9) ORDER BY d, id",
        "SELECT id FROM text_search(t, name, 'fox', k => 20) ORDER BY id",
        "SELECT id FROM t WHERE id BETWEEN 390 AND 420 ORDER BY id",
        "SELECT index_name, num_rows_covered, num_rows_not_covered FROM indexes(t) ORDER BY index_name",
    ]
    before = [rows(lake, select) for select in selects]
    table = lake.table("t")
    told = table.compact(dry_run=True)
    assert (told.version, told.num_rows) == (table.version, table.num_rows)
    assert told.message.startswith(f"would write 50 of 50 fragments as 1: {table.num_rows} rows, "), told.message
    assert told.message.endswith("; indexes emb_idx, id_idx, name_idx follow")
    phases: list[str] = []
    done = table.compact(progress=lambda progress: phases.append(progress.phase))
    assert (done.statement, done.version, done.num_rows) == ("OPTIMIZE", table.version + 1, table.num_rows)
    num_deleted = NUM_APPENDS * STEP - table.num_rows
    assert f"50 fragments became 1: {table.num_rows} rows" in done.message
    assert f", without {num_deleted} deleted rows; indexes emb_idx, id_idx, name_idx follow" in done.message
    compacted = lake.table("t")
    assert [rows(lake, select) for select in selects] == before
    assert findings(compacted) == FULL
    assert (compacted.size.num_fragments, compacted.size.num_deleted_rows) == (1, 0)
    files = lance.dataset(f"{tmp_path}/t.lance").get_fragments()[0].data_files()
    assert len(files) == 4, "one for each of image, depth and photo, and one for all light columns"
    assert lance.dataset(f"{tmp_path}/t.lance").count_rows() == table.num_rows

    # Nothing is left to do, and that is no version.
    again = compacted.compact()
    assert (again.version, again.num_rows) == (compacted.version, 0)
    assert again.message.startswith("nothing to do")
    assert compact(tmp_path).endswith(f"; version {compacted.version}")

    # A cleanup removes the old fragments.
    let_pass(tmp_path, 40)
    stoker.connect(str(tmp_path)).table("t").delete("id = 0")
    assert re.match(r"t: removed 5\d versions", cleanup(tmp_path))
    lake = stoker.connect(str(tmp_path))
    assert findings(lake.table("t")) == FULL
    stored = {path.name for path in (tmp_path / "t.lance" / "data").iterdir()}
    assert stored == {Path(file.path).name for file in files}
    assert rows(lake, selects[0]) == before[0].slice(1)


def test_streams_of_older_versions_go_on_and_resume(tmp_path: Path) -> None:
    lake = appended(tmp_path, 10)
    stream = lake.sql(QUERY).stream(batch_size=16, seed=3)
    batches = iter(stream)
    seen = [int(row) for _ in range(4) for row in next(batches)["id"]]
    state = stream.state_dict()
    lake.table("t").compact()
    lake.table("t").append(columns(900))
    let_pass(tmp_path, 20)
    cleanup(tmp_path, "--keep", "1d")
    rest = sorted(int(row) for batch in batches for row in batch["id"][batch.valid])
    assert sorted(seen + rest) == list(range(200))
    resumed = stoker.connect(str(tmp_path)).resume(json.loads(json.dumps(state)), batch_size=16)
    assert sorted(seen + ids(resumed)) == list(range(200))
    assert ids(lake.sql(QUERY).stream(batch_size=16, seed=3)) == [*range(200), *range(900, 920)]


def test_rows_are_excluded_by_addresses_of_any_version(tmp_path: Path) -> None:
    lake = appended(tmp_path, 6)
    old = addresses(lake)
    lake.table("t").quarantine([old[5]], "torn")
    lake.table("t").compact()
    once = addresses(lake)
    lake.table("t").append(columns(120))
    lake.table("t").compact()
    assert not set(once.values()) & set(old.values())
    version = lake.table("t").version
    done = lake.table("t").quarantine([old[5], old[41], once[42], addresses(lake)[130]])
    assert done.version == version + 1
    assert ids(lake.sql(QUERY).stream(batch_size=32)) == [i for i in range(140) if i not in (5, 41, 42, 130)]
    told = subprocess.run(
        [os.environ["STOKER_BIN"], "quarantine", "t", "--row", str(old[41]), str(old[43]), "--lake", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "1 row" in told.stdout, told
    assert 43 not in addresses(lake)


def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    lake = appended(tmp_path, 4)
    address = addresses(lake)[30]
    image = (30 * 7 + np.arange(int(np.prod(SHAPE)))) % 251
    damage_rows(tmp_path / "t.lance", [image.astype(np.uint8).tobytes()])
    before = lake.table("t").version
    with pytest.raises(stoker.StokerError, match=rf"column image of row {address} .* differs from its checksum"):
        stoker.connect(str(tmp_path)).table("t").compact()
    assert lake.table("t").version == before
    lake.table("t").quarantine([address])
    lake.table("t").compact()
    assert ids(lake.sql(QUERY).stream(batch_size=32)) == [i for i in range(80) if i != 30]


def test_options_have_limits(tmp_path: Path) -> None:
    lake = appended(tmp_path, 3)
    table = lake.table("t")
    for name in ("rows_per_fragment", "mb_per_fragment", "deleted_percent", "rate_mb_per_sec"):
        for value in (0, -1, 1.5, "many", 10**12):
            with pytest.raises(stoker.InvalidRequestError, match=name):
                table.compact(**{name: value})
    for options, part in [
        ("(speed = 3)", "the options of OPTIMIZE are: rows_per_fragment"),
        ("(rate_mb_per_sec = 0)", "rate_mb_per_sec is 0"),
        ("(all = 3)", "all is 3; it must be TRUE or FALSE"),
    ]:
        with pytest.raises(stoker.InvalidRequestError, match=re.escape(part)):
            lake.execute(f"OPTIMIZE t WITH {options}")
    with pytest.raises(stoker.NotFoundError, match="nothing"):
        lake.execute("OPTIMIZE nothing")
    # Two fragments of 20 rows fit one of 45. The third would not, and has no small neighbour.
    assert table.compact(rows_per_fragment=45).message.startswith("2 fragments became 1: 40 rows")
    assert lake.table("t").size.num_fragments == 2
    done = lake.table("t").compact(rows_per_fragment=45, rewrite_all=True)
    assert done.num_rows == 60
    assert done.message.startswith("2 fragments became 2: 60 rows")
    assert ids(lake.sql(QUERY).stream(batch_size=32)) == list(range(60))


def test_a_branch_is_compacted_alone(tmp_path: Path) -> None:
    lake = appended(tmp_path, 4)
    branch = lake.table("t").create_branch("trial")
    branch.delete("id < 5")
    done = lake.table("t@trial").compact()
    assert (done.table, done.num_rows) == ("t@trial", 75)
    assert (lake.table("t@trial").size.num_fragments, lake.table("t").size.num_fragments) == (1, 4)
    assert rows(lake, "SELECT count(*) AS n FROM t")["n"].to_pylist() == [80]
    assert rows(lake, 'SELECT min(id) AS n FROM "t@trial"')["n"].to_pylist() == [5]
    assert findings(lake.table("t@trial")) == FULL


def test_servers_compact_for_those_who_may_write(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    before = rows(appended(root, 5))
    environment = {"STOKER_ALLOW_WRITES": "true", "STOKER_TOKENS_FILE": str(tokens_file(tmp_path))}
    server = Server(str(root), environment)
    try:
        reader = stoker.connect(server.url, token=TOKENS["read"])
        with pytest.raises(stoker.PermissionDeniedError):
            reader.table("t").compact()
        writer = stoker.connect(server.url, token=TOKENS["write"])
        assert writer.table("t").compact(dry_run=True).message.startswith("would write 5 of 5 fragments as 1")
        assert writer.table("t").compact().message.startswith("5 fragments became 1: 100 rows")
        assert rows(reader) == before
    finally:
        server.process.kill()


def num_files(root: Path, folder: str) -> int:
    path = root / "t.lance" / folder
    return len(list(path.iterdir())) if path.exists() else 0


def kill_compaction(root: Path, folder: str) -> None:
    """Kills a compaction as soon as it has written a file or a folder in this folder of the table."""
    count = num_files(root, folder)
    process = subprocess.Popen(command(root, "--all"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: num_files(root, folder) > count or process.poll() is not None, "nothing was written")
    process.kill()
    process.wait()


@pytest.mark.parametrize("folder", ["data", "_indices", "_moves", "_versions"])
def test_killed_compactions_leave_the_table_as_before_or_after(tmp_path: Path, folder: str) -> None:
    """A compaction is killed when it has written a file of each kind, while others append and delete."""
    lake = appended(tmp_path, 12)
    lake.table("t").create_index("id", kind="btree")
    expected = list(range(240))
    for number in range(3):
        version = lake.table("t").version
        kill_compaction(tmp_path, folder)
        lake = stoker.connect(str(tmp_path))
        assert lake.table("t").version in (version, version + 1)
        check(lake, expected)
        first = 1000 + number * STEP
        lake.table("t").append(columns(first))
        lake.table("t").delete(f"id = {first + 1}")
        expected += [first, *range(first + 2, first + STEP)]
        check(lake, expected)
    assert compact(tmp_path, "--all").startswith("OPTIMIZE of table t: ")
    check(lake, expected)
    # The rows that others appended are not in the index, and are not joined with those that are, until it covers them.
    assert lake.table("t").size.num_fragments == 2
    lake.table("t").optimize_indexes()
    told = compact(tmp_path)
    assert told.startswith(f"OPTIMIZE of table t: 2 fragments became 1: {len(expected)} rows"), told
    check(lake, expected)
    assert lake.table("t").size.num_fragments == 1
    covered = rows(lake, "SELECT num_rows_covered, num_rows_not_covered FROM indexes(t)").to_pylist()
    assert covered == [{"num_rows_covered": len(expected), "num_rows_not_covered": 0}]
    assert findings(lake.table("t")) == FULL
    # Drafts go with a cleanup.
    let_pass(tmp_path, 40)
    stoker.connect(str(tmp_path)).table("t").delete("id = 0")
    cleanup(tmp_path)
    dataset = lance.dataset(f"{tmp_path}/t.lance")
    stored = {path.name for path in (tmp_path / "t.lance" / "data").iterdir()}
    newest_two = {
        file.path
        for version in dataset.versions()
        for fragment in dataset.checkout_version(version["version"]).get_fragments()
        for file in fragment.data_files()
    }
    assert stored == newest_two
    stored = {path.parent.name for path in (tmp_path / "t.lance" / "_indices").rglob("*") if path.is_file()}
    assert len(stored) == 1
    check(stoker.connect(str(tmp_path)), expected[1:])


def check(lake: stoker.Lake, expected: list[int]) -> None:
    """Checks that a table has exactly these rows, by a scan, by its index and by a stream."""
    found = rows(lake, "SELECT id, image FROM t ORDER BY id")
    assert found["id"].to_pylist() == expected
    images = found["image"].combine_chunks().to_numpy_ndarray()
    wanted = np.asarray(expected)[:, None] * 7 + np.arange(int(np.prod(SHAPE)))
    np.testing.assert_array_equal(images.reshape(len(expected), -1), (wanted % 251).astype(np.uint8))
    found = rows(lake, "SELECT id FROM t WHERE id >= 100 ORDER BY id")["id"].to_pylist()
    assert found == [row for row in expected if row >= 100]
    assert ids(lake.sql(QUERY).stream(batch_size=64)) == expected


def test_appends_deletes_and_two_compactions_at_the_same_time(tmp_path: Path) -> None:
    lake = appended(tmp_path, 10)
    failures: list[BaseException] = []

    def work(steps: Callable[[stoker.Lake, int], object]) -> threading.Thread:
        def run() -> None:
            own = stoker.connect(str(tmp_path))
            try:
                for number in range(8):
                    steps(own, number)
            except BaseException as error:
                failures.append(error)

        return threading.Thread(target=run)

    threads = [
        work(lambda own, number: own.table("t").append(columns(1000 + number * STEP))),
        work(lambda own, number: own.table("t").delete(f"id = {number * 13}")),
    ]
    processes = [
        subprocess.Popen(command(tmp_path, "--all"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in processes:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0 or "came in between" in said, said
    assert failures == []
    expected = [i for i in range(200) if i % 13 or i > 91] + list(range(1000, 1000 + 8 * STEP))
    check(lake, expected)
    compact(tmp_path)
    check(lake, expected)
