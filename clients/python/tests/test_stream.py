"""Streams: exactly once, equal steps, resume, early ends, padding, memory."""

from __future__ import annotations

import gc
import json
import os
import pickle
import weakref
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import NUM_ROWS, SHAPE, Server, expected_image, make_columns

import stoker

QUERY = "SELECT id, image, name FROM samples"


def ids_of(batch: stoker.Batch) -> list[int]:
    return batch["id"][batch.valid].tolist()


def epoch_ids(stream: stoker.Stream) -> list[int]:
    return [row for batch in stream for row in ids_of(batch)]


def test_rows_arrive_whole(lake: stoker.Lake) -> None:
    stream = lake.sql(QUERY).stream(batch_size=16, seed=7)
    assert (stream.num_rows, len(stream), stream.rank, stream.world_size) == (NUM_ROWS, 7, 0, 1)
    assert stream.schema.names == ["id", "image", "name"]
    assert stream.snapshots == [("samples", lake.table("samples").version)]
    for step, batch in enumerate(stream):
        rows = 16 if step < 6 else NUM_ROWS - 6 * 16
        assert (batch.step, batch.num_rows, batch.num_valid) == (step, rows, rows)
        assert batch["image"].shape == (rows, *SHAPE)
        assert list(batch) == ["id", "image", "name"]
        for row, image, name in zip(batch["id"], batch["image"], batch["name"], strict=True):
            np.testing.assert_array_equal(image, expected_image(row))
            assert name == f"row {row}"
    stats = stream.stats()
    assert (stats.batches, stats.rows) == (7, NUM_ROWS)
    assert stats.first_batch_secs is not None


@pytest.mark.parametrize("shuffle", ["block", "full", False])
@pytest.mark.parametrize("last_batch", ["pad", "drop", "uneven"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 8])
def test_exactly_once(lake: stoker.Lake, world_size: int, last_batch: str, shuffle: object) -> None:
    query = lake.sql("SELECT id FROM samples")
    options = {"global_batch_size": 13, "seed": 3, "shuffle": shuffle, "last_batch": last_batch}
    streams = [query.stream(**options, rank=rank, world_size=world_size) for rank in range(world_size)]
    steps = [[ids_of(batch) for batch in stream] for stream in streams]
    assert {len(batches) for batches in steps} == {len(streams[0])}
    rows = sorted(row for batches in steps for batch in batches for row in batch)
    if last_batch == "drop":
        assert len(rows) == len(set(rows)) == NUM_ROWS // 13 * 13
    else:
        assert rows == list(range(NUM_ROWS))


def test_global_batches_do_not_depend_on_the_world(lake: stoker.Lake) -> None:
    query = lake.sql("SELECT id FROM samples")
    seen = []
    for world_size in (1, 2, 4, 7):
        streams = [query.stream(global_batch_size=12, rank=r, world_size=world_size) for r in range(world_size)]
        seen.append(
            [sorted(row for batch in batches for row in ids_of(batch)) for batches in zip(*streams, strict=True)]
        )
    assert all(batches == seen[0] for batches in seen)


def test_order_depends_on_seed_and_epoch(lake: stoker.Lake) -> None:
    query = lake.sql("SELECT id FROM samples")
    first = query.stream(batch_size=10, seed=1)
    epochs = [epoch_ids(first), epoch_ids(first)]
    assert first.epoch == 2
    assert epochs[0] != epochs[1]
    assert epoch_ids(query.stream(batch_size=10, seed=1)) == epochs[0]
    assert epoch_ids(query.stream(batch_size=10, seed=1, epoch=1)) == epochs[1]
    assert epoch_ids(query.stream(batch_size=10, seed=2)) != epochs[0]
    first.set_epoch(0)
    assert epoch_ids(first) == epochs[0]
    assert epoch_ids(lake.sql("SELECT id FROM samples ORDER BY id").stream(batch_size=9, shuffle=False)) == list(
        range(NUM_ROWS)
    )


@pytest.mark.parametrize("step", range(7))
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 2)])
def test_resume_onto_another_world(lake: stoker.Lake, step: int, before: int, after: int) -> None:
    query = lake.sql("SELECT id FROM samples")
    rows: list[int] = []
    states = []
    for rank in range(before):
        stream = query.stream(global_batch_size=17, seed=5, rank=rank, world_size=before)
        for taken, batch in enumerate(stream):
            if taken == step:
                break
            rows += ids_of(batch)
            states.append(json.dumps(stream.state_dict())) if taken == step - 1 else None
        if step == 0:
            states.append(
                json.dumps(query.stream(global_batch_size=17, seed=5, rank=rank, world_size=before).state_dict())
            )
    assert len(set(states)) == 1, "all ranks have the same state"
    assert len(states[0]) < 1024
    if step == 6:  # the whole epoch was delivered, and the resumed streams deliver the next one
        assert sorted(rows) == list(range(NUM_ROWS))
        rows = []
    for rank in range(after):
        stream = query.stream(global_batch_size=11, seed=5, rank=rank, world_size=after)
        stream.load_state_dict(json.loads(states[0]))
        rows += epoch_ids(stream)
    assert sorted(rows) == list(range(NUM_ROWS))


def test_state_counts_only_what_the_loop_got(lake: stoker.Lake) -> None:
    stream = lake.sql(QUERY).stream(batch_size=10, seed=7)
    assert stream.state_dict()["position"] == 0
    for taken, batch in enumerate(stream, start=1):
        state = stream.state_dict()
        assert state["position"] == taken * 10 == batch.cursor.position
        assert batch.cursor.stream_id == state["stream_id"] == stream.stream_id
        if taken == 4:
            break
    assert state["log"] == [{"step": 0, "position": 0, "global_batch": 10}]
    resumed = lake.sql(QUERY).stream(batch_size=7, seed=7)
    resumed.load_state_dict(state)
    next(iter(resumed))
    assert resumed.state_dict()["log"] == [
        {"step": 0, "position": 0, "global_batch": 10},
        {"step": 4, "position": 40, "global_batch": 7},
    ]


def test_state_at_the_end_of_an_epoch(lake: stoker.Lake) -> None:
    stream = lake.sql("SELECT id FROM samples").stream(batch_size=25)
    for _batch in stream:
        last = stream.state_dict()
    ended = stream.state_dict()
    for state in (last, ended):
        assert (state["epoch"], state["position"], state["step"]) == (1, 0, 5)
    second = epoch_ids(lake.sql("SELECT id FROM samples").stream(batch_size=25, epoch=1))
    before = {**ended, "epoch": 0, "position": NUM_ROWS, "log": []}  # as earlier versions saved it
    for state in (last, ended, before):
        stream.load_state_dict(state)
        assert (stream.epoch, len(stream), stream.remaining, stream.step) == (1, 5, 5, 5)
        assert epoch_ids(stream) == second
    for state in (last, before):
        stream.load_state_dict(state)
        stream.set_epoch(0)  # the epoch in which the state was saved has no rows left
        assert epoch_ids(stream) == []
        stream.set_epoch(1)
        assert epoch_ids(stream) == second


def test_breaks_and_exceptions_keep_the_place(lake: stoker.Lake) -> None:
    stream = lake.sql("SELECT id FROM samples").stream(batch_size=10)
    whole = epoch_ids(lake.sql("SELECT id FROM samples").stream(batch_size=10))
    rows: list[int] = []
    for batch in stream:
        rows += ids_of(batch)
        if batch.step == 2:
            break
    assert stream._session.open_streams == (None, None), "the native stream is closed"

    def fail() -> None:
        for batch in stream:
            rows.extend(ids_of(batch))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    gc.collect()
    rows += epoch_ids(stream)
    assert rows == whole
    assert stream.epoch == 1


def test_iterating_anew_ends_the_older_pass(lake: stoker.Lake) -> None:
    stream = lake.sql("SELECT id FROM samples").stream(batch_size=10)
    older = iter(stream)
    next(older)
    newer = iter(stream)
    next(newer)
    with pytest.raises(stoker.InvalidRequestError, match="newer iterator"):
        next(older)
    next(newer)
    stream.close()


def test_the_next_epoch_is_opened_before_one_ends(lake: stoker.Lake) -> None:
    def ids(stream: stoker.Stream) -> list[list[int]]:
        return [batch["id"].tolist() for batch in stream]

    def query() -> stoker.Stream:
        return lake.sql("SELECT id FROM samples").stream(batch_size=10, seed=3)

    stream, expected = query(), query()
    ids(stream)
    for epoch in (1, 2):
        ahead = stream._session.open_streams[1]
        assert ahead is not None, "opened at the end of the epoch at the latest"
        iterator = iter(stream)
        found = [next(iterator)["id"].tolist()]
        assert stream._session.open_streams[0] == ahead, "what was read ahead is used"
        found += [batch["id"].tolist() for batch in iterator]
        expected.set_epoch(epoch)
        assert found == ids(expected)
    # Setting another epoch closes the stream that was opened as a prefetch, and so does closing.
    stream.set_epoch(7)
    expected.set_epoch(7)
    assert stream._session.open_streams[1] is None
    assert ids(stream) == ids(expected)
    stream.close()
    assert stream._session.open_streams[1] is None
    for _ in stream:
        break
    assert stream._session.open_streams[1] is None


def test_context_manager_and_leaks(lake: stoker.Lake) -> None:
    with lake.sql(QUERY).stream(batch_size=10) as stream:
        iterator = iter(stream)
        native = weakref.ref(next(iterator))
        assert stream._session.open_streams[0] is not None
    assert stream._session.open_streams[0] is None
    del iterator
    gc.collect()
    assert native() is None


def test_views_share_memory_and_outlive_the_stream(lake: stoker.Lake) -> None:
    stream = lake.sql(QUERY).stream(batch_size=10)
    batch = next(iter(stream))
    image = batch["image"]
    assert not image.flags.writeable
    assert not image.flags.owndata
    column = batch.to_arrow().column("image")
    storage = column.storage if isinstance(column, pa.ExtensionArray) else column
    assert image.__array_interface__["data"][0] == storage.values.buffers()[1].address
    assert np.shares_memory(image, batch["image"])
    ids = batch["id"].tolist()
    del batch, stream, column, storage
    gc.collect()
    for row, value in zip(ids, image, strict=True):
        np.testing.assert_array_equal(value, expected_image(row))


def test_row_ids_name_the_rows(lake: stoker.Lake) -> None:
    for batch in lake.sql("SELECT id FROM samples").stream(batch_size=50):
        assert batch.row_ids.dtype == np.uint64
        # The first row of each fragment; the fragments have 32, 28 and 41 rows.
        starts = {0: 0, 1: 32, 2: 60}
        rows = [starts[int(address) >> 32] + (int(address) & 0xFFFFFFFF) for address in batch.row_ids]
        assert rows == batch["id"].tolist()


def test_state_mismatch_has_the_difference(lake: stoker.Lake) -> None:
    state = lake.sql("SELECT id FROM samples").stream(batch_size=10, seed=1).state_dict()
    with pytest.raises(stoker.StateMismatchError, match="seed"):
        lake.sql("SELECT id FROM samples").stream(batch_size=10, seed=2).load_state_dict(state)
    with pytest.raises(stoker.StateMismatchError, match="query"):
        lake.sql("SELECT id FROM samples WHERE id > 3").stream(batch_size=10, seed=1).load_state_dict(state)
    with pytest.raises(ValueError, match=r"snapshots|query"):
        lake.sql("SELECT id FROM samples AT (TAG => 'v1')").stream(batch_size=10, seed=1).load_state_dict(state)
    stream = lake.sql("SELECT id FROM samples").stream(batch_size=10, seed=1)
    for bad in ({}, {"version": 1}, "no json", {**state, "version": 99}):
        with pytest.raises(stoker.InvalidRequestError, match="stream state"):
            stream.load_state_dict(bad)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "batch_size"),
        ({"batch_size": 1, "global_batch_size": 1}, "batch_size"),
        ({"batch_size": 0}, "batch_size is 0; it must be"),
        ({"batch_size": 1, "rank": 0}, "both rank and world_size"),
        ({"batch_size": 1, "rank": 2, "world_size": 2}, "rank 2"),
        ({"batch_size": 1, "shuffle": "maybe"}, "maybe"),
        ({"batch_size": 1, "last_batch": "maybe"}, "maybe"),
        ({"batch_size": 1, "last_batch": "pad", "drop_last": True}, "drop_last"),
    ],
)
def test_bad_options(lake: stoker.Lake, options: dict[str, object], message: str) -> None:
    with pytest.raises(stoker.InvalidRequestError, match=message):
        lake.sql("SELECT id FROM samples").stream(**options)


def test_drop_last_and_environment(lake: stoker.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    query = lake.sql("SELECT id FROM samples")
    assert len(query.stream(batch_size=10, drop_last=True)) == 10
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    stream = query.stream(batch_size=10)
    assert (stream.rank, stream.world_size) == (1, 4)
    monkeypatch.setenv("WORLD_SIZE", "four")
    with pytest.raises(stoker.InvalidRequestError, match="WORLD_SIZE"):
        query.stream(batch_size=10)


def test_no_rows(lake: stoker.Lake) -> None:
    stream = lake.sql("SELECT id, image FROM samples WHERE id > 1000").stream(batch_size=10)
    assert (len(stream), stream.num_rows, list(stream)) == (0, 0, [])


def test_other_types_and_nulls_that_have_a_place(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    table = pa.table(
        {
            "f": pa.array([1.0, None, 3.0]),
            "b": pa.array([True, False, True]),
            "t": pa.array([0, 1, 2], pa.timestamp("ms")),
            "d": pa.array([0, 1, 2], pa.date32()),
            "l": pa.array([[1], [], [2, 3]]),
            "x": pa.array([b"a", None, b"c"], pa.large_binary()),
        }
    )
    lake.create_table("t", table)
    batch = next(iter(lake.sql("SELECT * FROM t").stream(batch_size=3, shuffle=False)))
    np.testing.assert_array_equal(batch["f"], [1.0, np.nan, 3.0])
    assert batch["b"].tolist() == [True, False, True]
    assert batch["t"].dtype == np.dtype("datetime64[ms]")
    assert batch["d"][2] == np.datetime64("1970-01-03")
    assert [row.tolist() for row in batch["l"]] == [[1], [], [2, 3]]
    assert batch["x"].tolist() == [b"a", None, b"c"]
    with pytest.raises(KeyError):
        batch["nope"]


def test_streams_pickle_with_their_place(lake: stoker.Lake) -> None:
    stream = lake.sql("SELECT id FROM samples").stream(batch_size=10)
    rows = ids_of(next(iter(stream)))
    copy = pickle.loads(pickle.dumps(stream))
    assert rows + epoch_ids(copy) == rows + epoch_ids(stream)


def test_a_stream_keeps_its_snapshot(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    table = lake.create_table("t", make_columns(20))
    stream = lake.sql("SELECT id FROM t").stream(batch_size=6)
    state = stream.state_dict()
    table.append(make_columns(5, start=20))
    assert sorted(epoch_ids(stream)) == list(range(20))
    again = lake.sql("SELECT id FROM t").stream(batch_size=6)
    assert again.num_rows == 25
    with pytest.raises(stoker.StateMismatchError, match="snapshots"):
        again.load_state_dict(state)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    lake.create_table("t", {"image": np.zeros((64, 3, 64, 64), np.uint8), "id": np.arange(64)})
    files = sorted((tmp_path / "t.lance" / "data").iterdir(), key=lambda file: file.stat().st_size)
    os.truncate(files[-1], files[-1].stat().st_size // 2)
    with pytest.raises(stoker.DataCorruptError, match=files[-1].stem[:8]):
        list(stoker.connect(str(tmp_path)).sql("SELECT image, id FROM t").stream(batch_size=8))


def test_memory_lakes_live_in_their_process() -> None:
    lake = stoker.connect("memory://")
    lake.create_table("t", make_columns(12))
    assert sorted(epoch_ids(lake.sql("SELECT id, image FROM t").stream(batch_size=5))) == list(range(12))


def test_receipts_prove_that_each_row_was_seen_once(lake: stoker.Lake, server: Server) -> None:
    for place in (lake, stoker.connect(server.url)):
        query = place.sql("SELECT id, image FROM samples")
        ranks = [query.stream(batch_size=7, seed=3, rank=rank, world_size=3) for rank in range(3)]
        for stream in ranks:
            for _ in zip(range(2), stream, strict=False):
                pass
        before, state = [stream.receipt() for stream in ranks], ranks[0].state_dict()
        resumed = [query.stream(batch_size=10, seed=3, rank=rank, world_size=2) for rank in range(2)]
        for stream in resumed:
            stream.load_state_dict(state)
            assert sum(batch.num_valid for batch in stream) > 0
        after = [stream.receipt() for stream in resumed]
        assert [verdict.is_exactly_once for verdict in place.verify([*before, *after])] == [True]
        [verdict] = place.verify([*before, *after[:1]])
        assert not verdict.is_exactly_once
        assert (verdict.num_missing, verdict.num_repeated) == ((NUM_ROWS - 42) // 2, 0)
        assert verdict.missing[0] == (43, 44)
        [verdict] = place.verify([*before, *before, *after])
        assert (verdict.num_missing, verdict.num_repeated, verdict.repeated) == (0, 42, [(0, 42)])
        for _ in resumed[0]:
            pass
        assert [part["epoch"] for part in resumed[0].receipt()["parts"]] == [0, 1]
    with pytest.raises(stoker.InvalidRequestError, match="cannot use the receipt"):
        lake.verify([{"version": 1}])
