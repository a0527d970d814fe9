"""An epoch ends with its last batch in every kind of loop; lengths, restarts, evaluations and concurrent iterators."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import NUM_ROWS, Server, make_columns

import stoker

pytest.importorskip("torch")

QUERY = "SELECT id FROM samples"


@pytest.fixture(params=["in process", "through a server"])
def place(request: pytest.FixtureRequest, lake_path: str, server: Server) -> stoker.Lake:
    return stoker.connect(lake_path if request.param == "in process" else server.url)


def ids_of(batch: Any) -> list[int]:
    return batch["id"][batch.valid].tolist()


def by_islice(loader: Any) -> list[Any]:
    return list(itertools.islice(loader, len(loader)))


def by_zip(loader: Any) -> list[Any]:
    return [batch for _, batch in zip(range(len(loader)), loader, strict=False)]


def by_break(loader: Any) -> list[Any]:
    batches = []
    for batch in loader:
        batches.append(batch)
        if len(batches) == len(loader):
            break
    return batches


class HeldIterator:
    """Takes `len(loader)` batches from an iterator, and keeps the iterator until the next pass, as Lightning does."""

    def __init__(self) -> None:
        self.iterator: Iterator[Any] | None = None

    def __call__(self, loader: Any) -> list[Any]:
        self.iterator = iter(loader)
        return [next(self.iterator) for _ in range(len(loader))]


LOOPS = {"list": list, "islice": by_islice, "zip": by_zip, "break": by_break, "held": HeldIterator()}


@pytest.mark.parametrize("last_batch", ["pad", "drop", "uneven"])
@pytest.mark.parametrize("kind", ["stream", "torch", "device"])
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_an_epoch_ends_with_its_last_batch(
    place: stoker.Lake, loop: Callable[[Any], list[Any]], kind: str, last_batch: str
) -> None:
    query, options = place.sql(QUERY), {"batch_size": 10, "seed": 5, "last_batch": last_batch}
    expected = query.stream(**options)
    more = {"device": "meta"} if kind == "device" else {}
    loader = query.stream(**options) if kind == "stream" else query.torch(**options, **more)
    for epoch in range(4):
        want = [batch.row_ids.tolist() for batch in expected]
        assert [batch.row_ids.tolist() for batch in loop(loader)] == want, f"epoch {epoch}"
        state, plain = loader.state_dict(), expected.state_dict()
        assert {**state, "log": []} == {**plain, "log": []}
        stream = loader if kind == "stream" else loader.stream
        assert stream.receipt() == expected.receipt()
        assert (len(loader), stream.remaining in (0, len(loader))) == (len(expected), True)
    verdicts = place.verify([loader.receipt()])
    assert [verdict.is_exactly_once for verdict in verdicts] == [True] * 4
    assert {verdict.num_dropped for verdict in verdicts} == {1 if last_batch == "drop" else 0}
    assert {tuple(verdict.dropped) for verdict in verdicts} == {((100, 101),) if last_batch == "drop" else ()}


def test_the_run_log_is_that_of_a_loop_that_asks_on(tmp_path: Path) -> None:
    place, logs = stoker.connect(str(tmp_path)), []
    place.create_table("samples", make_columns(NUM_ROWS))
    for run, loop in (("ends-list", list), ("ends-islice", by_islice)):
        stream = place.sql(QUERY).stream(batch_size=25, run_id=run, run_log=True)
        for _ in range(3):
            loop(stream)
        logs.append([(entry.event, entry.step, entry.epoch, entry.position) for entry in place.run(run).entries()])
    assert logs[0] == logs[1] == [("epoch", 5 * epoch, epoch, 0) for epoch in range(3)]


@pytest.mark.parametrize("steps", [0, 1, 6, 10, 11])
def test_a_length_is_that_of_the_epoch_also_after_a_resume(place: stoker.Lake, steps: int) -> None:
    query = place.sql(QUERY)
    loader = query.torch(batch_size=10, seed=1)
    iterator = iter(loader)
    seen = [row for _ in range(steps) for row in ids_of(next(iterator))]
    resumed = query.torch(batch_size=10, seed=1)
    resumed.load_state_dict(loader.state_dict())
    assert len(resumed) == 11
    assert resumed.remaining == (11 - steps or 11)
    rest = [row for batch in resumed for row in ids_of(batch)]
    assert sorted((seen if steps < 11 else []) + rest) == list(range(NUM_ROWS))
    assert len(resumed) == 11
    twice = query.torch(batch_size=7, seed=1)
    if 0 < steps < 11:
        twice.load_state_dict(loader.state_dict())
        for _ in itertools.islice(twice, 1):
            pass
        resumed.load_state_dict(twice.state_dict())
        left = -(-(NUM_ROWS - steps * 10 - 7) // 10) if steps < 10 else 0
        assert len(resumed) == (steps + 1 + left if left else 11)


def test_the_first_entry_of_the_log_survives_many_resumes(lake: stoker.Lake) -> None:
    query, state = lake.sql(QUERY), None
    for size in [3, 4] * 7:
        stream = query.stream(batch_size=size)
        if state is not None:
            stream.load_state_dict(state)
        next(iter(stream))
        state = stream.state_dict()
    assert len(state["log"]) == 8
    stream.load_state_dict(state)
    assert len(stream) == 14 + -(-(NUM_ROWS - 49) // 4)


def test_an_evaluation_has_every_row_in_every_pass(place: stoker.Lake) -> None:
    loader = place.sql(QUERY).torch(batch_size=10, evaluation=True)
    first = None
    for _ in range(3):
        for _batch in itertools.islice(loader, 2):  # As the sanity check of a trainer does.
            pass
        rows = [ids_of(batch) for batch in loader]
        assert sorted(row for some in rows for row in some) == list(range(NUM_ROWS))
        assert first in (None, rows)
        first = rows
        assert (loader.epoch, len(loader)) == (0, 11)
        assert [verdict.is_exactly_once for verdict in place.verify([loader.receipt()])] == [True]
    for rank in range(3):
        uneven = place.sql(QUERY).stream(global_batch_size=50, evaluation=True, rank=rank, world_size=3)
        assert [batch.num_rows == batch.num_valid for batch in uneven] == [True] * 3
    with pytest.raises(stoker.InvalidRequestError, match="evaluation=True and run_log=True"):
        place.sql(QUERY).stream(batch_size=4, evaluation=True, run_id="x", run_log=True)


def test_restart_goes_back_to_the_start_of_the_epoch(place: stoker.Lake) -> None:
    loader = place.sql(QUERY).torch(batch_size=10, seed=3)
    first = [ids_of(batch) for batch in loader]
    second = [ids_of(batch) for batch in itertools.islice(loader, 4)]
    loader.restart()
    assert (loader.epoch, loader.stream.step) == (1, 11)
    assert [ids_of(batch) for batch in itertools.islice(loader, 4)] == second != first[:4]
    inside = []
    for batch in loader:
        inside.append(ids_of(batch))
        if len(inside) == 2:
            loader.restart()
    assert inside[2:6] == second
    assert len(inside) == 2 + 11
    assert loader.epoch == 2


def test_close_ends_the_loop_around_it(place: stoker.Lake) -> None:
    for kind in ("stream", "torch"):
        options = {"batch_size": 10, "seed": 3}
        loader = place.sql(QUERY).stream(**options) if kind == "stream" else place.sql(QUERY).torch(**options)
        rows = []
        for batch in loader:
            rows += ids_of(batch)
            if len(rows) == 30:
                loader.close()
        assert len(rows) == 30
        rows += [row for batch in loader for row in ids_of(batch)]
        assert sorted(rows) == list(range(NUM_ROWS))


def test_an_abandoned_iterator_leaves_the_pass_alone_that_runs(place: stoker.Lake) -> None:
    for kind in ("stream", "torch"):
        options = {"batch_size": 10, "seed": 3}
        loader = place.sql(QUERY).stream(**options) if kind == "stream" else place.sql(QUERY).torch(**options)
        abandoned = iter(loader)
        rows = ids_of(next(abandoned))
        newer = iter(loader)
        rows += ids_of(next(newer))
        del abandoned
        gc.collect()
        rows += [row for batch in newer for row in ids_of(batch)]
        assert sorted(rows) == list(range(NUM_ROWS))


def test_an_older_iterator_says_that_a_newer_one_took_over(place: stoker.Lake) -> None:
    for device in (None, "meta"):
        loader = place.sql(QUERY).torch(batch_size=10, device=device)
        older = iter(loader)
        next(older)
        newer = iter(loader)
        next(newer)
        with pytest.raises(stoker.InvalidRequestError, match="a newer iterator over this loader took over"):
            next(older)
        assert len([1 for _ in newer]) == 9


def test_a_receipt_tells_what_the_loop_got(place: stoker.Lake) -> None:
    # A loader with a device is one batch behind the engine: a batch that waits for the device is not delivered yet.
    loader = place.sql(QUERY).torch(batch_size=10, device="meta")
    for _ in range(3):
        for _batch in itertools.islice(loader, 2):
            pass
        (part,) = [loader.receipt()["parts"][-1]]
        assert part["end"] == loader.state_dict()["position"]
    for _batch in loader:
        pass
    (verdict,) = place.verify([loader.receipt()])
    assert verdict.is_exactly_once
    assert (verdict.num_repeated, verdict.num_missing) == (0, 0)


def test_fewer_rows_than_a_batch_are_dropped_and_not_missing(place: stoker.Lake) -> None:
    stream = place.sql(QUERY).stream(batch_size=200, drop_last=True)
    assert (list(stream), len(stream), stream.epoch) == ([], 0, 1)
    (verdict,) = place.verify([stream.receipt()])
    assert (verdict.is_exactly_once, verdict.num_dropped, verdict.num_missing) == (True, NUM_ROWS, 0)


def test_defaults_of_the_last_batch(place: stoker.Lake) -> None:
    alone = list(place.sql(QUERY).stream(batch_size=10))
    assert (len(alone[-1]["id"]), alone[-1].valid.tolist()) == (1, [True])
    second = list(place.sql(QUERY).stream(batch_size=10, rank=1, world_size=2))
    assert (len(second[-1]["id"]), second[-1].num_valid) == (10, 0)


def test_a_batch_that_never_reached_the_loop_counts_nowhere(place: stoker.Lake) -> None:
    # The transform raises as Ctrl-C would: the engine has handed over the batch, but the loop has not got it.
    interrupted = []

    def transform(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["id"][0] % 5 == 0 and batch["id"][0] not in interrupted:
            interrupted.append(batch["id"][0])
            raise KeyboardInterrupt
        return batch

    loader = place.sql(QUERY).torch(batch_size=10, seed=6, transform=transform)
    rows: list[int] = []
    while loader.epoch == 0:
        try:
            for batch in loader:
                rows += ids_of(batch)
        except KeyboardInterrupt:
            assert sum(part["end"] - part["start"] for part in loader.receipt()["parts"]) == len(rows)
            assert loader.state_dict()["position"] == len(rows)
    assert interrupted
    assert sorted(rows) == list(range(NUM_ROWS))
    (verdict,) = place.verify([loader.receipt()])
    assert verdict.is_exactly_once
