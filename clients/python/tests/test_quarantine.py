"""Quarantine: later versions lack the excluded rows, and streams that are pinned to older versions keep them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import Server

import stoker

QUERY = "SELECT id, image FROM t"
NUM_ROWS = 50


def write(lake: stoker.Lake, name: str, first: int = 0) -> stoker.Table:
    """Creates a table of 50 rows in fragments of 20. Its images are heavy, and each of their bytes is the row's id."""
    ids = np.arange(first, first + NUM_ROWS)
    images = np.repeat(ids.astype(np.uint8), 3 * 32 * 32).reshape(NUM_ROWS, 3, 32, 32)
    return lake.create_table(name, {"id": ids, "image": images}, rows_per_fragment=20)


@pytest.fixture
def lake(tmp_path: Path) -> stoker.Lake:
    """A lake with the table `t`."""
    lake = stoker.connect(str(tmp_path / "lake"))
    write(lake, "t")
    return lake


def row_ids(lake: stoker.Lake, sql: str = QUERY) -> dict[int, np.ndarray]:
    """Returns the row addresses of all rows by their column `id`: one address for each table of the query."""
    found = {}
    for batch in lake.sql(sql).stream(batch_size=10, last_batch="uneven"):
        found.update(zip(batch["id"].tolist(), np.atleast_2d(batch.row_ids.T).T, strict=True))
    return found


def drained(stream: stoker.Stream) -> list[int]:
    """Reads a stream to the end of its epoch and checks the images; returns the ids in ascending order."""
    ids = []
    for batch in stream:
        for row, image in zip(batch["id"][batch.valid], batch["image"], strict=False):
            assert (image == row).all()
            ids.append(int(row))
    return sorted(ids)


def test_only_streams_planned_later_miss_the_rows(lake: stoker.Lake) -> None:
    table, addresses = lake.table("t"), row_ids(lake)
    before = lake.sql(QUERY).stream(batch_size=8, seed=1)
    bad = np.concatenate([addresses[row] for row in (7, 20, 49)])
    assert bad.dtype == np.uint64
    newest = table.quarantine(bad, "torn images")
    assert (newest.name, newest.version, newest.num_rows) == ("t", 2, NUM_ROWS - 3)
    assert (table.version, table.num_rows) == (1, NUM_ROWS)

    assert drained(before) == list(range(NUM_ROWS))
    kept = [row for row in range(NUM_ROWS) if row not in (7, 20, 49)]
    after = [lake.sql(QUERY).stream(global_batch_size=9, seed=1, rank=rank, world_size=3) for rank in range(3)]
    assert {stream.num_rows for stream in after} == {NUM_ROWS - 3}
    assert sorted(row for stream in after for row in drained(stream)) == kept
    (verdict,) = lake.verify([stream.receipt() for stream in after])
    assert verdict.is_exactly_once
    assert drained(lake.sql(f"{QUERY} AT (VERSION => 1)").stream(batch_size=8)) == list(range(NUM_ROWS))

    counts = [
        lake.sql(f"SELECT count(*) AS n FROM t {at}").to_arrow()["n"].to_pylist() for at in ("", "AT (VERSION => 1)")
    ]
    assert counts == [[NUM_ROWS - 3], [NUM_ROWS]]
    assert lake.sql("SELECT id FROM t WHERE id IN (6, 7, 8) ORDER BY id").to_arrow()["id"].to_pylist() == [6, 8]


def test_a_state_resumes_with_its_rows(lake: stoker.Lake) -> None:
    stream = lake.sql(f"{QUERY} AT (VERSION => 1)").stream(batch_size=10, seed=3)
    batches = iter(stream)
    first = [int(row) for _ in range(2) for row in next(batches)["id"]]
    state = stream.state_dict()
    stream.close()
    lake.table("t").quarantine([int(address[0]) for address in row_ids(lake).values()][::2])
    resumed = lake.sql(f"{QUERY} AT (VERSION => 1)").stream(batch_size=10, seed=3)
    resumed.load_state_dict(state)
    assert sorted(first + drained(resumed)) == list(range(NUM_ROWS))


def test_rows_are_excluded_once(lake: stoker.Lake) -> None:
    table = lake.table("t")
    assert table.quarantine([]).version == 1
    assert table.quarantine((3,)).version == 2
    assert table.quarantine([3, np.uint64(3)]).version == 2
    assert table.quarantine([3, 4], "torn").num_rows == NUM_ROWS - 2
    whole = [1 << 32 | row for row in range(20)]
    assert table.quarantine(whole).num_rows == NUM_ROWS - 22
    assert table.quarantine(whole).version == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0, -1], r"row_ids\[1\] is -1; it must be a whole number from 0"),
        ([1.0], r"row_ids\[0\] is 1\.0"),
        (np.array([1.0]), r"row_ids\[0\] is"),
        (["1"], r"row_ids\[0\] is '1'"),
        ([True], r"row_ids\[0\] is True"),
        ([None], r"row_ids\[0\] is None"),
        ([2**64], r"row_ids\[0\] is 18446744073709551616"),
        (np.zeros((2, 2), np.uint64), r"row_ids\[0\] is"),
        ("12", "row_ids is '12'; it must be a sequence"),
        (b"12", "row_ids is b'12'"),
        (12, "row_ids is 12"),
        (None, "row_ids is None"),
    ],
)
def test_what_is_no_row_id_is_refused(lake: stoker.Lake, given: object, message: str) -> None:
    with pytest.raises(stoker.InvalidRequestError, match=message):
        lake.table("t").quarantine(given)
    assert lake.table("t").version == 1


def test_rows_that_do_not_exist_are_named(lake: stoker.Lake) -> None:
    table = lake.table("t")
    for row_id, message in [
        (9 << 32, r"row 38654705664 \(fragment 9, offset 0\) of t@1 does not exist; there is no such fragment"),
        (2 << 32 | 10, r"\(fragment 2, offset 10\) of t@1 does not exist; the fragment has 10 rows"),
        (2**64 - 1, "there is no such fragment"),
    ]:
        with pytest.raises(stoker.NotFoundError, match=message):
            table.quarantine([0, row_id])
    with pytest.raises(stoker.InvalidRequestError, match="the reason has 2000 bytes"):
        table.quarantine([0], "x" * 2000)
    assert lake.table("t").version == 1


def test_servers_exclude_nothing(server: Server) -> None:
    with pytest.raises(stoker.InvalidRequestError, match="needs a connection to the lake itself"):
        stoker.connect(server.url).table("samples").quarantine([0])


def quarantine(lake: stoker.Lake, *args: str) -> subprocess.CompletedProcess[str]:
    command = [os.environ["STOKER_BIN"], "quarantine", *args, "--lake", lake.target]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def said(lake: stoker.Lake, *args: str) -> str:
    """Runs the command, which must succeed, and returns what it printed."""
    done = quarantine(lake, *args)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_command(lake: stoker.Lake) -> None:
    assert said(lake, "t", "--row", "3", "0x100000002", "--dry-run") == "would exclude 2 rows of table t"
    assert lake.table("t").version == 1
    kept = "older versions keep them: AT (VERSION => 1)"
    assert said(lake, "t", "--row", "3", "--row", "0x100000002") == f"excluded 2 rows of table t in version 2; {kept}"
    assert said(lake, "t", "--row", "3", "4", "--dry-run") == "would exclude 1 row of table t (1 was excluded before)"
    kept = "older versions keep it: AT (VERSION => 2)"
    assert (
        said(lake, "t", "--row", "3", "4", "--reason", "torn")
        == f"excluded 1 row of table t in version 3 (1 was excluded before); {kept}"
    )
    again = "excluded no row of table t (2 were excluded before); its newest version is 3"
    assert said(lake, "t", "--row", "4", "3") == again
    for args, words in [
        (["t", "--row", "38654705664"], "(fragment 9, offset 0) of t@3 does not exist"),
        (["nothing", "--row", "0"], "table nothing"),
        (["t", "--row", "x"], "a row address is a whole number"),
        (["t"], "--row"),
        (["t", "--receipt", "/nowhere"], "cannot read /nowhere"),
    ]:
        refused = quarantine(lake, *args)
        assert refused.returncode != 0
        assert words in refused.stderr
    assert lake.table("t").version == 3


def test_the_rows_that_receipts_name(lake: stoker.Lake, tmp_path: Path) -> None:
    write(lake, "u", first=100)
    sql = f"{QUERY} UNION ALL SELECT id, image FROM u"
    addresses = row_ids(lake, sql)
    stream = lake.sql(sql).stream(batch_size=25)
    assert len(drained(stream)) == 2 * NUM_ROWS
    receipt = stream.receipt()
    sound, bad, other = tmp_path / "sound.json", tmp_path / "bad.json", tmp_path / "other.json"
    sound.write_text(json.dumps(receipt))
    assert said(lake, "t", "--receipt", str(sound)) == "the receipts name no bad row of table t"

    named = [
        {"position": position, "row_addrs": addresses[row].tolist(), "reason": "wrong checksum"}
        for position, row in enumerate([7, 11, 130])
    ]
    receipt["parts"][0]["substituted"] = named
    bad.write_text(json.dumps(receipt))
    kept = "older versions keep them: AT (VERSION => 1)"
    both = ["--receipt", str(sound), str(bad)]
    assert said(lake, "t", *both) == f"excluded 2 rows of table t in version 2; {kept}"
    assert (lake.table("t").num_rows, lake.table("u").num_rows) == (NUM_ROWS - 2, NUM_ROWS)
    assert said(lake, "u", *both) == f"excluded 1 row of table u in version 2; {kept.replace('them', 'it')}"
    left = [row for row in [*range(NUM_ROWS), *range(100, 150)] if row not in (7, 11, 130)]
    assert drained(lake.sql(sql).stream(batch_size=25)) == left

    receipt["parts"][0]["substituted"] = [{**named[0], "row_addrs": [0]}]
    other.write_text(json.dumps(receipt))
    refused = quarantine(lake, "t", "--receipt", str(other))
    assert refused.returncode == 1
    assert "names a row of 1 tables" in refused.stderr
