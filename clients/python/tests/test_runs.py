"""Runs: all processes get one stream, past steps can be read again, and skipped steps are recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import make_columns

import stoker

QUERY = "SELECT id, image FROM samples"


def ids_of(batch: stoker.Batch) -> list[int]:
    return batch["id"][batch.valid].tolist()


@pytest.fixture
def own_lake(tmp_path: Path) -> stoker.Lake:
    """A lake that a test may change."""
    lake = stoker.connect(str(tmp_path / "lake"))
    lake.create_table("samples", make_columns(90), rows_per_fragment=32)
    return lake


RANK = """
import json, sys, stoker
lake = stoker.connect(sys.argv[1])
stream = lake.sql("SELECT id FROM samples").stream(
    batch_size=8, rank=int(sys.argv[2]), world_size=4, seed=1, run_id="exp-1"
)
rows = [row for batch in stream for row in batch["id"][batch.valid].tolist()]
print(json.dumps({"stream_id": stream.stream_id, "snapshots": stream.snapshots, "rows": rows}))
"""


def test_ranks_without_a_process_group_get_one_stream(place: stoker.Lake, own_lake: stoker.Lake) -> None:
    def start(rank: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", RANK, place.target, str(rank)], stdout=subprocess.PIPE, text=True, env=os.environ
        )

    # Every rank starts while the table grows.
    running = []
    for rank in range(4):
        running.append(start(rank))
        own_lake.table("samples").append(make_columns(10, start=1_000 + 10 * rank))
    answers = [json.loads(process.communicate(timeout=120)[0]) for process in running]
    assert {answer["stream_id"] for answer in answers} == {answers[0]["stream_id"]}
    rows = sorted(row for answer in answers for row in answer["rows"])
    assert len(rows) == len(set(rows)) >= 90
    (version,) = {tuple(snapshot) for answer in answers for snapshot in answer["snapshots"]}
    assert len(rows) == own_lake.table("samples", version=version[1]).num_rows
    # A restarted process gets the stream of the run; an error names an option that differs.
    again = place.sql("SELECT id FROM samples").stream(batch_size=20, seed=1, run_id="exp-1")
    assert again.stream_id == answers[0]["stream_id"]
    with pytest.raises(stoker.StateMismatchError, match="seed: the run has 1, this process has 2"):
        place.sql("SELECT id FROM samples").stream(batch_size=8, seed=2, run_id="exp-1")
    for name in ("", "a/b", "..", "x" * 200):
        with pytest.raises(stoker.InvalidRequestError, match="run id"):
            place.sql("SELECT id FROM samples").stream(batch_size=8, run_id=name)


@pytest.mark.parametrize("order_version", [1, 2])
def test_a_run_keeps_the_version_of_its_order(place: stoker.Lake, own_lake: stoker.Lake, order_version: int) -> None:
    query = place.sql(QUERY)
    first = query.stream(batch_size=8, run_id="exp-1", order_version=order_version)
    again = query.stream(batch_size=8, run_id="exp-1")
    assert again.stream_id == first.stream_id
    assert [ids_of(batch) for batch in again] == [ids_of(batch) for batch in first]
    with pytest.raises(stoker.StateMismatchError, match="order"):
        query.stream(batch_size=8, run_id="exp-1", order_version=3 - order_version)


def test_any_step_is_found_again(place: stoker.Lake, own_lake: stoker.Lake) -> None:
    query = place.sql(QUERY)
    first = query.stream(batch_size=16, seed=3, run_id="exp-2", run_log=True)
    seen: dict[int, list[int]] = {}
    for batch in first:
        seen[batch.step] = ids_of(batch)
        if batch.step == 3:
            state = first.state_dict()
    for batch in first:  # the next epoch
        seen[batch.step] = ids_of(batch)
        if batch.step == 8:
            break
    assert state["step"] == 4
    # The run resumes at step 4 with another batch size, and continues into the next epoch.
    second = query.stream(batch_size=10, seed=3, run_id="exp-2", run_log=True)
    second.load_state_dict(state)
    later = {batch.step: ids_of(batch) for _ in range(2) for batch in second}
    assert sorted(later) == list(range(4, 4 + 3 + 9))
    seen = {**{step: rows for step, rows in seen.items() if step < 4}, **later}
    own_lake.table("samples").append(make_columns(10, start=500))
    run = place.run("exp-2")
    assert [entry.event for entry in run.entries()] == ["epoch", "epoch", "resume", "epoch"]
    for step, rows in seen.items():
        assert ids_of(run.batch(step)) == rows, step
        assert run.batch(step).step == step
        table = run.rows(step)
        assert table["row_id"].to_pylist() == run.batch(step).row_ids.tolist()
        assert set(table["table"].to_pylist()) == {"samples"}
    assert run.rows(2, 5)["step"].to_pylist() == [2] * 16 + [3] * 16 + [4] * 10 + [5] * 10
    with pytest.raises(stoker.NotFoundError, match="ends before step 16"):
        run.batch(16)
    with pytest.raises(stoker.NotFoundError, match="run nothing has no log"):
        place.run("nothing")
    with pytest.raises(stoker.InvalidRequestError, match="last_step is 2; it must be at least first_step, 3"):
        run.rows(3, 2)
    with pytest.raises(stoker.InvalidRequestError, match="step is -1"):
        run.batch(-1)
    with pytest.raises(stoker.InvalidRequestError, match="needs a run_id"):
        query.stream(batch_size=8, run_log=True)
    log = place.sql("SELECT step, position FROM stoker_run_log WHERE run_id = 'exp-2' ORDER BY time").to_arrow()
    assert log["step"].to_pylist() == [0, 6, 4, 7]


def test_sql_joins_losses_with_rows(place: stoker.Lake, own_lake: stoker.Lake) -> None:
    stream = place.sql(QUERY).stream(batch_size=16, seed=3, run_id="exp-5", run_log=True)
    losses = {batch.step: float(sum(ids_of(batch))) for batch in stream}
    own_lake.create_table("losses", {"step": list(losses), "loss": list(losses.values())})
    own_lake.create_table("seen", place.run("exp-5").rows(0, max(losses)))
    own_lake.table("samples").append(make_columns(10, start=500))
    joined = place.sql(
        "SELECT l.step, l.loss, sum(s.id) AS ids, count(*) AS rows FROM losses l JOIN seen r ON r.step = l.step "
        "JOIN row_ids(samples AT (VERSION => 1)) s ON s.row_id = r.row_id GROUP BY l.step, l.loss ORDER BY l.step"
    ).to_arrow()
    assert joined["step"].to_pylist() == list(losses)
    assert joined["ids"].to_pylist() == joined["loss"].to_pylist()
    assert sum(joined["rows"].to_pylist()) == 90
    with pytest.raises(stoker.InvalidRequestError, match="row_ids"):
        place.sql("SELECT row_id FROM row_ids(samples)").stream(batch_size=4)


def test_the_command_line_replays(own_lake: stoker.Lake) -> None:
    query = own_lake.sql(QUERY)
    stream = query.stream(global_batch_size=20, seed=3, run_id="exp-3", run_log=True, rank=0, world_size=1)
    seen = [(ids_of(batch), stream.state_dict()) for batch in stream]

    def replay(*args: str) -> subprocess.CompletedProcess[str]:
        command = [os.environ["STOKER_BIN"], "replay", *args, "--lake", own_lake.target, "--format", "json"]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    def rows_of(*args: str) -> list[dict[str, object]]:
        done = replay(*args)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    for step in (0, 2, 4):
        found = rows_of("exp-3", "--step", str(step))
        assert [row["id"] for row in found] == seen[step][0]
        assert [row["_position"] for row in found] == list(range(20 * step, min(20 * step + 20, 90)))
        assert {row["_table"] for row in found} == {"samples@1"}
    assert [row["id"] for row in rows_of(json.dumps(seen[3][1]), "--step", "1")] == seen[1][0]
    shares = [
        [row["id"] for row in rows_of("exp-3", "--step", "1", "--rank", rank, "--world-size", "3")] for rank in "012"
    ]
    assert sorted(row for share in shares for row in share) == sorted(seen[1][0])
    for args, text in [
        (("exp-3", "--step", "5"), "ends before step 5"),
        (("exp-9", "--step", "0"), "no log of this run"),
        (("a/b", "--step", "0"), "run id"),
        (("{}", "--step", "0"), "cannot read stream state"),
    ]:
        done = replay(*args)
        assert done.returncode == 1, done.stdout
        assert text in done.stderr


def test_steps_are_skipped_and_that_is_recorded(place: stoker.Lake) -> None:
    query = place.sql(QUERY)
    plain = [ids_of(batch) for batch in query.stream(batch_size=10, seed=3)]
    stream = query.stream(batch_size=10, seed=3, run_id="exp-4", run_log=True)
    taken = {}
    for batch in stream:
        taken[batch.step] = ids_of(batch)
        if batch.step == 1:
            assert stream.skip(3) == 3
    assert taken == {0: plain[0], 1: plain[1], 2: plain[5], 3: plain[6], 4: plain[7], 5: plain[8]}
    (verdict,) = place.verify([stream.receipt()])
    assert verdict.is_exactly_once
    assert (verdict.num_skipped, verdict.skipped) == (30, [(20, 50)])
    assert [entry.event for entry in place.run("exp-4").entries()] == ["epoch", "skip"]
    assert all(ids_of(place.run("exp-4").batch(step)) == rows for step, rows in taken.items())
    assert stream.skip(100) == 9, "no more than the epoch has"
    assert [ids_of(batch) for batch in stream] == []
    assert stream.epoch == 2
    with pytest.raises(stoker.InvalidRequestError, match="steps is -1"):
        stream.skip(-1)
