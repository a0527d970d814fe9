"""Lakes, tables, queries and streams through a real server, compared with those in process."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import NUM_ROWS, SHAPE, Server, expected_image, make_columns

import stoker

QUERY = "SELECT id, image, label, name FROM samples WHERE label < $1"


@pytest.fixture
def remote(server: Server) -> stoker.Lake:
    """The lake behind the server."""
    return stoker.connect(server.url)


def test_tables(remote: stoker.Lake, lake: stoker.Lake) -> None:
    assert remote.tables() == ["samples"]
    here, there = lake.table("samples"), remote.table("samples")
    assert (there.name, there.version, there.num_rows, there.tags) == (
        here.name,
        here.version,
        here.num_rows,
        here.tags,
    )
    assert there.schema == here.schema
    assert stoker.tensor_shape(there.schema.field("image")) == SHAPE
    assert there.versions() == here.versions()
    assert there.describe() == here.describe()
    assert remote.table("samples", tag="v1").num_rows == 60


def test_queries(remote: stoker.Lake, lake: stoker.Lake) -> None:
    sql = "SELECT id, image, name FROM samples WHERE label = $1 ORDER BY id"
    assert remote.sql(sql, params=[4]).to_arrow() == lake.sql(sql, params=[4]).to_arrow()
    assert "samples" in remote.sql(sql, params=[4]).explain()


@pytest.mark.parametrize("world_size", [1, 3])
def test_streams_are_identical_to_those_in_process(remote: stoker.Lake, lake: stoker.Lake, world_size: int) -> None:
    for rank in range(world_size):
        options = {"global_batch_size": 15, "seed": 7, "rank": rank, "world_size": world_size}
        here = lake.sql(QUERY, params=[7]).stream(**options)
        there = remote.sql(QUERY, params=[7]).stream(**options)
        assert there.stream_id == here.stream_id
        assert len(there) == len(here)
        for mine, theirs in zip(here, there, strict=True):
            assert mine.to_arrow().equals(theirs.to_arrow())
            assert mine.cursor == theirs.cursor
            assert mine.num_valid == theirs.num_valid
            np.testing.assert_array_equal(mine.row_ids, theirs.row_ids)


def test_resume_here_what_began_there(remote: stoker.Lake, lake: stoker.Lake) -> None:
    stream = remote.sql(QUERY, params=[9]).stream(batch_size=10, seed=2)
    rows: list[int] = []
    for batch in stream:
        rows += batch["id"][batch.valid].tolist()
        if batch.step == 3:
            break
    resumed = lake.sql(QUERY, params=[9]).stream(batch_size=7, seed=2)
    resumed.load_state_dict(stream.state_dict())
    for batch in resumed:
        rows += batch["id"][batch.valid].tolist()
    assert sorted(rows) == [row for row in range(NUM_ROWS) if row % 10 < 9]


def test_several_endpoints(server: Server, lake: stoker.Lake) -> None:
    remote = stoker.connect(server.url, num_endpoints=3)
    here = lake.sql(QUERY, params=[7]).stream(batch_size=16, seed=7)
    there = remote.sql(QUERY, params=[7]).stream(batch_size=16, seed=7)
    for mine, theirs in zip(here, there, strict=True):
        assert mine.to_arrow().equals(theirs.to_arrow())


@pytest.mark.parametrize("num_endpoints", [1, 3])
def test_the_next_epoch_is_opened_before_one_ends(server: Server, lake: stoker.Lake, num_endpoints: int) -> None:
    remote = stoker.connect(server.url, num_endpoints=num_endpoints)
    here = lake.sql(QUERY, params=[7]).stream(batch_size=16, seed=7)
    there = remote.sql(QUERY, params=[7]).stream(batch_size=16, seed=7)
    for epoch in range(3):
        assert (here.epoch, there.epoch) == (epoch, epoch)
        batches = zip(here, there, strict=True)
        for mine, theirs in batches:
            assert mine.to_arrow().equals(theirs.to_arrow())
        assert there._session.open_streams[1] is not None
    receipt = there.receipt()
    verdicts = remote.verify([receipt])
    assert [(verdict.epoch, verdict.is_exactly_once) for verdict in verdicts] == [(0, True), (1, True), (2, True)]
    there.close()


def test_torch(remote: stoker.Lake) -> None:
    pytest.importorskip("torch")
    for batch in remote.sql(QUERY, params=[7]).torch(batch_size=8):
        for row, image in zip(batch["id"].tolist(), batch["image"], strict=True):
            np.testing.assert_array_equal(image.numpy(), expected_image(row))


def test_fork(remote: stoker.Lake) -> None:
    from test_processes import in_fork

    stream = remote.sql("SELECT id FROM samples").stream(batch_size=20)
    next(iter(stream))
    rows = in_fork(lambda: sorted(row for batch in stream for row in batch["id"][batch.valid].tolist()))
    assert len(rows.split(",")) == NUM_ROWS - 20


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("SELECT * FROM nothing", stoker.NotFoundError, "nothing"),
        ("SELECT nope FROM samples", stoker.InvalidRequestError, "nope"),
        ("SELEC id FROM samples", stoker.InvalidRequestError, "SELEC"),
        ("SELECT id FROM samples AT (TAG => 'v9')", stoker.NotFoundError, "v9"),
    ],
)
def test_bad_queries(remote: stoker.Lake, sql: str, error: type[stoker.StokerError], message: str) -> None:
    with pytest.raises(error, match=message):
        remote.sql(sql)


def test_writing_needs_a_server_that_allows_it(remote: stoker.Lake) -> None:
    with pytest.raises(stoker.PermissionDeniedError, match="--allow-writes"):
        remote.create_table("t", make_columns(3))


def test_a_replaced_server_loses_no_row(lake_path: str) -> None:
    first, second = Server(lake_path), Server(lake_path)
    try:
        target = f"{first.url},{second.url.removeprefix('grpc://')}"
        stream = stoker.connect(target).sql("SELECT id, image FROM samples").stream(batch_size=4, seed=1)
        rows: list[int] = []
        for batch in stream:
            rows += batch["id"][batch.valid].tolist()
            if batch.step == 3:
                first.process.kill()
        assert sorted(rows) == list(range(NUM_ROWS))
    finally:
        second.stop()
        first.process.kill()
        first.process.wait()
