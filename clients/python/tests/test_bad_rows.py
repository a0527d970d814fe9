"""Checksums find damaged rows; errors name them, all ranks get the same substitutes, and they can be excluded."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Server
from damage import damage_rows
from damaged_lake import DAMAGED, NUM_ROWS, QUERY, WIDTH, damaged_lake, values
from s3_store import BUCKET, Store

import stoker


@pytest.fixture
def own_lake(tmp_path: Path) -> stoker.Lake:
    """A lake whose table has three damaged rows."""
    return damaged_lake(tmp_path / "lake")


def address(row: int) -> int:
    return (row // 128 << 32) + row % 128


def test_a_damaged_row_is_an_error_that_names_it(place: stoker.Lake) -> None:
    with pytest.raises(stoker.DataCorruptError) as failed:
        list(place.sql(f"{QUERY} WHERE id = 17").stream(batch_size=16))
    for part in ("samples@1", "0x11", "column x", "data file", "substitute", "quarantine"):
        assert part in str(failed.value)
    with pytest.raises(stoker.DataCorruptError, match="checksum of column x"):
        place.sql(f"{QUERY} WHERE id > 100").to_arrow()
    good = place.sql(f"{QUERY} WHERE id < 17").stream(batch_size=16)
    assert sum(batch.num_valid for batch in good) == 17
    assert good.stats().verified_bytes >= (17 * WIDTH if place.target[0] == "/" else 0)
    unverified = [batch for batch in place.sql(f"{QUERY} WHERE id = 17").stream(batch_size=1, verify=False)]
    assert (unverified[0]["x"] != values(np.array([17]))).sum() == 1


@pytest.mark.parametrize("num_endpoints", [None, 3])
def test_substitutes_are_the_same_on_all_ranks(own_lake: stoker.Lake, num_endpoints: int | None) -> None:
    running = Server(own_lake.target)
    remote = stoker.connect(running.url, num_endpoints=num_endpoints)
    reports = []
    for place, world in ((own_lake, 1), (own_lake, 3), (remote, 4)):
        query = place.sql(QUERY)
        streams = [
            query.stream(global_batch_size=24, seed=2, rank=rank, world_size=world, bad_rows="substitute")
            for rank in range(world)
        ]
        steps, delivered, noted = set(), {}, []
        for stream in streams:
            for batch in stream:
                np.testing.assert_array_equal(batch["x"], values(batch["id"]))
                rows = [substitution.row for substitution in batch.substituted]
                assert rows == sorted(rows)
                noted += [
                    substitution.row_ids[0] for substitution in batch.substituted if batch.valid[substitution.row]
                ]
                delivered.setdefault(batch.step, []).extend(batch["id"][batch.valid].tolist())
            steps.add(len(stream.receipt()["parts"]))
        assert sorted(noted) == [address(row) for row in DAMAGED]
        report = [row for stream in streams for row in stream.substituted()]
        report.sort(key=lambda row: row["position"])
        (verdict,) = place.verify([stream.receipt() for stream in streams])
        assert verdict.is_exactly_once
        assert [(row["position"], row["row_addrs"]) for row in verdict.substituted] == [
            (row["position"], row["row_addrs"]) for row in report
        ]
        reports.append((report, {step: sorted(rows) for step, rows in delivered.items()}))
    assert reports[0] == reports[1] == reports[2]
    running.stop()


def test_bad_rows_of_a_run_are_a_table_and_can_be_excluded(place: stoker.Lake, own_lake: stoker.Lake) -> None:
    stream = place.sql(QUERY).stream(batch_size=50, bad_rows="substitute", run_id="exp-1", run_log=True)
    assert sum(batch.num_valid for batch in stream) == NUM_ROWS
    found = place.sql("SELECT row_id, reason FROM stoker_bad_rows WHERE run_id = 'exp-1' ORDER BY row_id").to_arrow()
    assert found["row_id"].to_pylist() == [address(row) for row in DAMAGED]
    assert all("checksum of column x" in reason for reason in found["reason"].to_pylist())
    own_lake.table("samples").quarantine(found["row_id"].to_pylist(), reason="checksum")
    rest = [row for batch in place.sql(QUERY).stream(batch_size=50) for row in batch["id"][batch.valid].tolist()]
    assert sorted(rest) == [row for row in range(NUM_ROWS) if row not in DAMAGED]


@pytest.mark.parametrize("shuffle", ["block", "full", False])
def test_a_table_that_is_damaged_all_over_ends_a_stream_soon(
    place: stoker.Lake, own_lake: stoker.Lake, shuffle: Any
) -> None:
    damage_rows(Path(own_lake.target) / "samples.lance", [values(np.array([row])).tobytes() for row in range(200)])
    stream = place.sql(QUERY).stream(batch_size=10, shuffle=shuffle, bad_rows="substitute")
    with pytest.raises(
        stoker.DataCorruptError, match=r"of the 300 rows of a window are bad, the limit is 16 .*checksum of column x"
    ):
        list(stream)
    enough = place.sql(QUERY).stream(batch_size=10, shuffle=shuffle, bad_rows="substitute", max_bad_share=0.9)
    assert sum(batch.num_valid for batch in enough) == NUM_ROWS


def test_a_damaged_table_in_a_store_costs_few_requests(own_lake: stoker.Lake, store: Store) -> None:
    folder = Path(own_lake.target)
    damage_rows(
        folder / "samples.lance", [values(np.array([row])).tobytes() for row in set(range(NUM_ROWS)) - {*DAMAGED}]
    )
    for path in folder.rglob("*"):
        if path.is_file():
            store.client.upload_file(str(path), BUCKET, f"damaged/{path.relative_to(folder)}")
    lake = stoker.connect(f"s3://{BUCKET}/damaged", storage_options=store.options)
    begun = len(store.log.read_text())
    stream = lake.sql(QUERY).stream(batch_size=10, bad_rows="substitute")
    with pytest.raises(stoker.DataCorruptError, match="rows of a window are bad"):
        list(stream)
    # The stream sends a few requests for each row that may be bad, at most 16. If it read the whole window to find a
    # substitute for each bad row, it would send thousands.
    assert len(store.gets(begun)) < 500


def test_the_command_line_substitutes(own_lake: stoker.Lake, tmp_path: Path) -> None:
    receipt = tmp_path / "receipt"
    command = [os.environ["STOKER_BIN"], "--lake", own_lake.target]
    options = ["--batch-size", "50", "--bad-rows", "substitute", "--receipt", str(receipt)]
    done = subprocess.run(
        [*command, "stream", QUERY, *options], capture_output=True, text=True, timeout=120, check=True
    )
    assert "substituted_rows         3" in done.stdout
    done = subprocess.run([*command, "verify", str(receipt)], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.count("another row replaced the bad row") == 3
    assert "300 rows, each exactly once" in done.stdout
    failed = subprocess.run([*command, "stream", QUERY], capture_output=True, text=True, timeout=120, check=False)
    assert failed.returncode == 1
    assert "checksum of column x" in failed.stderr


def test_bad_policies_are_refused(place: stoker.Lake) -> None:
    for share in (-0.1, 1.5, float("nan"), "all"):
        with pytest.raises(stoker.InvalidRequestError, match=r"max_bad_share is .*from 0 to 1"):
            place.sql(QUERY).stream(batch_size=4, max_bad_share=share)  # type: ignore[arg-type]
    with pytest.raises(stoker.InvalidRequestError, match="'error' or 'substitute'"):
        place.sql(QUERY).stream(batch_size=4, bad_rows="skip")  # type: ignore[arg-type]
