"""`lake.resume` continues a stream at the cursor of a state, without its query."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import NUM_ROWS, Server, make_columns

import stoker

QUERY = "SELECT id, image FROM t WHERE label < $1"


def ids_of(batch: stoker.Batch) -> list[int]:
    return batch["id"][batch.valid].tolist()


@pytest.mark.parametrize("order_version", [1, 2])
@pytest.mark.parametrize("through_server", [False, True])
def test_a_stream_goes_on_after_its_table_grew(tmp_path: Path, through_server: bool, order_version: int) -> None:
    path = str(tmp_path)
    local = stoker.connect(path)
    table = local.create_table("t", make_columns(60))
    server = Server(path) if through_server else None
    try:
        lake = stoker.connect(server.url) if server else local
        stream = lake.sql(QUERY, params=[7]).stream(batch_size=8, seed=3, order_version=order_version)
        spec = json.loads((tmp_path / "_stoker" / "specs" / stream.stream_id).read_text())
        assert spec["sources"][0]["order"]["version"] == order_version
        rows = []
        for batch in stream:
            rows += ids_of(batch)
            if batch.step == 1:
                break
        state = stream.state_dict()
        table.append(make_columns(20, start=60))
        again = lake.sql(QUERY, params=[7]).stream(batch_size=8, seed=3, order_version=order_version)
        with pytest.raises(stoker.StateMismatchError, match=r"lake\.resume"):
            again.load_state_dict(state)
        resumed = [lake.resume(json.dumps(state), batch_size=5, rank=rank, world_size=2) for rank in range(2)]
        assert [stream.step for stream in resumed] == [2, 2]
        rows += [row for stream in resumed for batch in stream for row in ids_of(batch)]
        assert sorted(rows) == [row for row in range(60) if row % 10 < 7]
        assert [stream.epoch for stream in resumed] == [1, 1]
        loader = lake.resume(state, batch_size=5).torch(int64_columns=["id"])
        assert sum(len(batch["id"]) for batch in loader) == 42 - 16
    finally:
        if server:
            server.stop()


def test_a_mixture_goes_on_with_its_weights(lake: stoker.Lake) -> None:
    queries = [lake.sql(f"SELECT id FROM samples WHERE id % 2 = {part}") for part in range(2)]
    stream = stoker.mix([(query, 0.5) for query in queries]).stream(batch_size=4, seed=1)
    next(iter(stream))
    stream.set_weights([0.75, 0.25])
    next(iter(stream))
    resumed = lake.resume(stream.state_dict(), batch_size=4)
    assert resumed.weights == stream.weights == [0.75, 0.25]
    assert [ids_of(batch) for batch in resumed] == [ids_of(batch) for batch in stream]


def test_a_resumed_run_is_logged(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    lake.create_table("samples", make_columns(NUM_ROWS))
    stream = lake.sql("SELECT id FROM samples").stream(batch_size=10, run_id="resumed-1", run_log=True)
    next(iter(stream))
    resumed = lake.resume(stream.state_dict(), batch_size=10, run_id="resumed-1", run_log=True)
    rows = [ids_of(batch) for batch in resumed]
    run = lake.run("resumed-1")
    assert [(entry.event, entry.step) for entry in run.entries()] == [("epoch", 0), ("resume", 1)]
    assert run.batch(3)["id"].tolist() == rows[2]
    assert sum(len(some) for some in rows) == NUM_ROWS - 10


def test_what_a_resume_refuses(lake: stoker.Lake) -> None:
    state = lake.sql("SELECT id FROM samples").stream(batch_size=10).state_dict()
    for options, said in (
        ({}, "either batch_size or global_batch_size"),
        ({"batch_size": 4, "seed": 3}, "resume does not accept seed: the state determines this already"),
        ({"batch_size": 4, "nope": 3}, "nope"),
        ({"batch_size": 4, "rank": 0}, "both rank and world_size"),
    ):
        with pytest.raises(stoker.InvalidRequestError, match=said):
            lake.resume(state, **options)
    for bad in ({}, "no json", None, 3, {"version": 99}, {**state, "version": 99}, {"version": object()}):
        with pytest.raises(stoker.InvalidRequestError, match="stream state"):
            lake.resume(bad, batch_size=4)
    with pytest.raises(stoker.NotFoundError):
        lake.resume({**state, "stream_id": "0" * 64}, batch_size=4)
