"""Images that cannot be decoded are named in errors, and get the same substitutes on all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import Server
from damage import damage_rows
from test_decode import RANDOM, files

import stoker

NUM_ROWS = 50
WIDTH = 1_500
QUERY = "SELECT id, x, image FROM photos"
#: Rows whose image cannot be decoded, and rows whose tensor does not match its checksum.
BAD_IMAGES = (7, 20, 21, 33)
DAMAGED = (22, 40)
BAD = {*BAD_IMAGES, *DAMAGED}
#: Text after the first bytes of a JPEG file. Without such first bytes, Stoker does not write it to a column of images.
NO_IMAGE = b"\xff\xd8\xff and then a page of text"
OPTIONS = {"seed": 3, "decode": {"image": RANDOM}, "bad_rows": "substitute"}


def values(ids: np.ndarray) -> np.ndarray:
    """Returns the tensors of these ids. All are different, so the bytes of each occur once in the files."""
    return np.random.default_rng(0).integers(0, 256, (NUM_ROWS, WIDTH), dtype=np.uint8)[ids]


def write(path: Path, images: list[bytes | None], damaged: tuple[int, ...] = ()) -> stoker.Lake:
    """Writes the table `photos` with these images, and tensors of which those of the rows `damaged` are damaged."""
    lake = stoker.connect(str(path))
    ids = np.arange(NUM_ROWS)
    data = {"id": ids, "x": values(ids), "image": pa.array(images, pa.large_binary())}
    lake.create_table("photos", data, encoded_images=["image"])
    damage_rows(path / "photos.lance", [values(np.array([row])).tobytes() for row in damaged])
    return stoker.connect(lake.target)


def broken_files() -> list[bytes | None]:
    """Returns files of images, of which two are truncated, one is text after its first bytes, and one is null."""
    found: list[bytes | None] = list(files(NUM_ROWS))
    for row in BAD_IMAGES:
        file = found[row]
        assert file is not None
        found[row] = file[: len(file) * 2 // 3]
    found[20] = NO_IMAGE
    found[33] = None
    return found


@pytest.fixture(scope="module")
def own_lake(tmp_path_factory: pytest.TempPathFactory) -> stoker.Lake:
    return write(tmp_path_factory.mktemp("bad-images"), broken_files(), DAMAGED)


@pytest.fixture(scope="module")
def server(own_lake: stoker.Lake) -> Iterator[Server]:
    running = Server(own_lake.target)
    yield running
    running.stop()


@pytest.fixture(params=["in process", "through a server"])
def place(request: pytest.FixtureRequest, own_lake: stoker.Lake) -> stoker.Lake:
    """The lake, opened in this process and through a server."""
    if request.param == "in process":
        return own_lake
    return stoker.connect(request.getfixturevalue("server").url)


def in_order(lake: stoker.Lake) -> list[int]:
    """Returns the id at each position, those of bad rows included."""
    stream = lake.sql(QUERY).stream(batch_size=9, seed=3, verify=False)
    return [row for batch in stream for row in batch["id"].tolist()]


def expected(lake: stoker.Lake) -> list[int]:
    """Returns the id that is delivered at each position.

    A bad row is substituted by the next good row of its window, and all rows are in one window.
    """
    order = in_order(lake)
    return [next(row for row in order[at:] + order[:at] if row not in BAD) for at in range(NUM_ROWS)]


def positions(batch: stoker.Batch, rank: int, world: int, global_batch: int) -> list[int]:
    """Returns the positions of the valid rows of a batch of the first epoch."""
    start = batch.step * global_batch
    return [at for at in range(start, min(start + global_batch, NUM_ROWS)) if at % world == rank]


def by_position(lake: stoker.Lake, world: int, global_batch: int = 12) -> tuple[dict, list, list]:
    """Streams an epoch on `world` ranks.

    Returns the id and the pixels at each position, the bad rows that the streams report, and their receipts.
    """
    found, reported, receipts = {}, [], []
    for rank in range(world):
        stream = lake.sql(QUERY).stream(global_batch_size=global_batch, rank=rank, world_size=world, **OPTIONS)
        for batch in stream:
            at = positions(batch, rank, world, global_batch)
            assert len(at) == batch.num_valid
            np.testing.assert_array_equal(batch["id"], batch.row_ids)
            np.testing.assert_array_equal(batch["x"], values(batch["id"]))
            rows = [bad.row for bad in batch.substituted]
            assert rows == sorted(rows)
            assert not BAD.intersection(batch["id"].tolist())
            for row, position in enumerate(at):
                found[position] = (int(batch["id"][row]), batch["image"][row].copy())
            # A padding row repeats a row of the global batch with its pixels. With several ranks, that may be a row
            # of a rank that is read later, so pixels are compared for one rank only.
            for row in range(batch.num_valid, batch.num_rows):
                copies = [image for other, image in found.values() if other == batch["id"][row]]
                assert world > 1 or any(np.array_equal(image, batch["image"][row]) for image in copies)
        reported += stream.substituted()
        receipts.append(stream.receipt())
    return found, sorted(reported, key=lambda row: row["position"]), receipts


def test_the_same_rows_stand_for_bad_images_on_all_ranks(
    place: stoker.Lake, own_lake: stoker.Lake, tmp_path: Path
) -> None:
    rows = expected(own_lake)
    # The table of this lake has the substitutes' files in the bad rows. Its pixels at each position must be the same,
    # because random draws depend on the position, not on the row.
    order, good = in_order(own_lake), files(NUM_ROWS)
    healed: list[bytes | None] = [good[rows[order.index(row)]] for row in range(NUM_ROWS)]
    twin = write(tmp_path / "healed", healed)
    pixels = [image.copy() for batch in twin.sql(QUERY).stream(batch_size=50, **OPTIONS) for image in batch["image"]]
    reports = []
    for world in (1, 3):
        found, reported, receipts = by_position(place, world)
        assert [found[position][0] for position in range(NUM_ROWS)] == rows
        for position in range(NUM_ROWS):
            np.testing.assert_array_equal(found[position][1], pixels[position], err_msg=f"position {position}")
        assert sorted(row["row_addrs"][0] for row in reported) == sorted(BAD)
        for row in reported:
            bad, reason = row["row_addrs"][0], row["reason"]
            assert row["position"] == order.index(bad)
            text = "checksum of column x" if bad in DAMAGED else f"column image, row id {bad} of photos version"
            assert text in reason, reason
        (verdict,) = place.verify(receipts)
        assert verdict.is_exactly_once
        assert [row["position"] for row in verdict.substituted] == [row["position"] for row in reported]
        reports.append(reported)
    assert reports[0] == reports[1]


def test_a_resume_in_the_middle_finds_the_same_rows(place: stoker.Lake, own_lake: stoker.Lake) -> None:
    rows = expected(own_lake)
    stream = place.sql(QUERY).stream(batch_size=9, **OPTIONS)
    found = []
    for step, batch in enumerate(stream):
        found += batch["id"].tolist()
        if step == 2:
            break
    state = stream.state_dict()
    rest: dict[int, int] = {}
    receipts = [stream.receipt()]
    for rank in range(2):
        resumed = place.sql(QUERY).stream(batch_size=4, rank=rank, world_size=2, **OPTIONS)
        resumed.load_state_dict(state)
        for step, batch in enumerate(resumed):
            ids = batch["id"][batch.valid].tolist()
            rest |= {27 + step * 8 + rank + 2 * row: found for row, found in enumerate(ids)}
        receipts.append(resumed.receipt())
    # The resume begins at position 27; rank r gets the positions p with (p - 27) mod 2 == r.
    assert found + [rest[position] for position in sorted(rest)] == rows
    (verdict,) = place.verify(receipts)
    assert verdict.is_exactly_once


def test_bad_images_of_a_run_are_a_table(place: stoker.Lake, own_lake: stoker.Lake) -> None:
    run_id = f"run-{'local' if place is own_lake else 'remote'}"
    stream = place.sql(QUERY).stream(batch_size=16, run_id=run_id, run_log=True, **OPTIONS)
    assert sum(batch.num_valid for batch in stream) == NUM_ROWS
    logged = place.sql(f"SELECT * FROM stoker_bad_rows WHERE run_id = '{run_id}' ORDER BY row_id").to_arrow()
    assert logged["row_id"].to_pylist() == sorted(BAD)
    reasons = dict(zip(logged["row_id"].to_pylist(), logged["reason"].to_pylist(), strict=True))
    for row in BAD_IMAGES:
        assert f"column image, row id {row} of photos version " in reasons[row]
        assert "the image cannot be decoded" in reasons[row]
    assert "null" in reasons[33]
    assert "checksum" in reasons[22]


def test_without_substitutes_the_first_bad_image_is_named(place: stoker.Lake) -> None:
    stream = place.sql("SELECT image FROM photos").stream(
        batch_size=16, shuffle=False, decode={"image": stoker.ImageTransform(size=8)}
    )
    with pytest.raises(stoker.DataCorruptError, match=r"column image, row id 7 of photos version .*position 7 "):
        list(stream)


def test_a_window_without_a_good_image_is_an_error(place: stoker.Lake) -> None:
    query = place.sql("SELECT image FROM photos WHERE id IN (7, 20, 21, 33)")
    stream = query.stream(batch_size=2, **OPTIONS)
    with pytest.raises(
        stoker.DataCorruptError, match=r"photos version .*all 4 rows of its window are bad; the last bad row: "
    ):
        list(stream)


def test_many_bad_images_and_little_memory(tmp_path: Path) -> None:
    broken: list[bytes | None] = [NO_IMAGE] * NUM_ROWS
    broken[13] = files(14)[13]
    lake = write(tmp_path, broken)
    for batch_size in (1, 7, NUM_ROWS):
        stream = lake.sql(QUERY).stream(batch_size=batch_size, memory_budget_bytes=1, max_bad_share=1, **OPTIONS)
        assert {row for batch in stream for row in batch["id"].tolist()} == {13}
        assert len(stream.substituted()) == NUM_ROWS - 1


@pytest.mark.parametrize("batch_size", [1, 7, NUM_ROWS])
def test_too_many_bad_images_end_a_stream(tmp_path: Path, batch_size: int) -> None:
    good = files(NUM_ROWS)
    lake = write(tmp_path, [NO_IMAGE if row % 2 else good[row] for row in range(NUM_ROWS)])
    stream = lake.sql(QUERY).stream(batch_size=batch_size, **OPTIONS)
    with pytest.raises(
        stoker.DataCorruptError, match=rf"17 of the {NUM_ROWS} rows of a window are bad, the limit is 16 "
    ):
        list(stream)
    enough = lake.sql(QUERY).stream(batch_size=batch_size, max_bad_share=0.5, **OPTIONS)
    assert sum(batch.num_valid for batch in enough) == NUM_ROWS


def test_mixtures_substitute_from_the_same_query(place: stoker.Lake) -> None:
    low, high = (place.sql(f"{QUERY} WHERE id {which} 25") for which in ("<", ">="))
    found: list[dict[int, tuple[int, int]]] = []
    for world in (1, 3):
        rows: dict[int, tuple[int, int]] = {}
        named = set()
        for rank in range(world):
            stream = stoker.mix({low: 0.6, high: 0.4}, stop="all").stream(
                global_batch_size=12, rank=rank, world_size=world, last_batch="uneven", **OPTIONS
            )
            for _ in range(2):
                for step, batch in enumerate(stream):
                    assert (batch.source == (batch["id"] >= 25)).all()
                    assert not BAD.intersection(batch["id"].tolist())
                    for substitution in batch.substituted:
                        first = [addr for addr in substitution.row_ids if addr < NUM_ROWS]
                        assert (first[0] >= 25) == batch.source[substitution.row]
                        named.update(first)
                    for row, value in enumerate(batch["id"].tolist()):
                        at = step * 12 + (rank - step * 12) % world + row * world
                        rows[batch.cursor.epoch * 1_000 + at] = (value, int(batch["image"][row].sum()))
        assert named == BAD
        found.append(rows)
    assert found[0] == found[1]


def test_loaders_go_on(own_lake: stoker.Lake) -> None:
    torch = pytest.importorskip("torch")
    loader = own_lake.sql(QUERY).torch(batch_size=16, **OPTIONS)
    batches = list(loader)
    assert sum(len(batch["id"]) for batch in batches) == NUM_ROWS
    assert all(batch["image"].dtype == torch.uint8 for batch in batches)
    assert not BAD.intersection(torch.cat([batch["id"] for batch in batches]).tolist())
