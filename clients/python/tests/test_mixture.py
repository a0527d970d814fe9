"""Mixtures of queries: shares, epochs, resumes, changes of weights."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from conftest import NUM_ROWS, Server, expected_image

import stoker

COLUMNS = "id, image, name"
LOW = f"SELECT {COLUMNS} FROM samples WHERE id < 40"
HIGH = f"SELECT {COLUMNS} FROM samples WHERE id >= 40"


@pytest.fixture(params=["in process", "through a server"])
def place(request: pytest.FixtureRequest, lake_path: str, server: Server) -> stoker.Lake:
    """The lake, in process and through a server."""
    return stoker.connect(lake_path if request.param == "in process" else server.url)


def low_and_high(place: stoker.Lake, low: float = 0.5, high: float = 0.5, **options: Any) -> stoker.Mixture:
    return stoker.mix({place.sql(LOW): low, place.sql(HIGH): high}, **options)


def ids_of(batch: stoker.Batch) -> list[int]:
    return batch["id"][batch.valid].tolist()


def test_shares_hold_at_any_row(place: stoker.Lake) -> None:
    stream = low_and_high(place, 3, 1).stream(batch_size=10, seed=5)
    rows: list[int] = []
    for batch in stream:
        assert batch.source.tolist() == [int(row >= 40) for row in batch["id"]]
        for row, image in zip(batch["id"], batch["image"], strict=True):
            np.testing.assert_array_equal(image, expected_image(row))
        rows += ids_of(batch)
    low = np.cumsum([row < 40 for row in rows])
    assert np.all(np.abs(low - 0.75 * np.arange(1, len(rows) + 1)) < 1)
    assert len(rows) == stream.num_rows
    assert sorted(row for row in rows if row < 40) == list(range(40))
    assert stream.weights == [0.75, 0.25]
    assert [table for table, _ in batch.tables] == ["samples", "samples"]


@pytest.mark.parametrize("stop", ["first", "all"])
def test_an_epoch_ends_with_the_first_or_last_query(place: stoker.Lake, stop: str) -> None:
    stream = low_and_high(place, stop=stop).stream(batch_size=8)
    rows = [row for batch in stream for row in ids_of(batch)]
    whole = range(40) if stop == "first" else range(40, NUM_ROWS)
    assert sorted(row for row in rows if row in whole) == list(whole)
    assert len(rows) in ({79, 80} if stop == "first" else {121, 122})


def test_queries_go_on_over_epochs(place: stoker.Lake) -> None:
    stream = low_and_high(place, epoch_rows=50).stream(batch_size=10, seed=2)
    rows = [row for _ in range(5) for batch in stream for row in ids_of(batch)]
    low, high = [row for row in rows if row < 40], [row for row in rows if row >= 40]
    assert len(rows) == 250
    for source, size in ((low, 40), (high, 61)):
        for epoch in range(len(source) // size):
            assert len(set(source[epoch * size : (epoch + 1) * size])) == size


def test_resumes_on_other_ranks(place: stoker.Lake) -> None:
    mixture = low_and_high(place, 0.7, 0.3)
    whole = [ids_of(batch) for batch in mixture.stream(global_batch_size=12, seed=1)]
    ranks = [mixture.stream(global_batch_size=12, seed=1, rank=rank, world_size=3) for rank in range(3)]
    first = [[ids_of(batch) for _, batch in zip(range(2), stream, strict=False)] for stream in ranks]
    states = [json.dumps(stream.state_dict()) for stream in ranks]
    assert len(set(states)) == 1
    assert len(states[0]) < 1024
    others = [mixture.stream(global_batch_size=12, seed=1, rank=rank, world_size=2) for rank in range(2)]
    for stream in others:
        stream.load_state_dict(states[0])
    rest = [[ids_of(batch) for batch in stream] for stream in others]
    seen = [sorted(row for rank in first for row in rank[step]) for step in range(2)]
    seen += [sorted(row for rank in rest for row in rank[step]) for step in range(len(rest[0]))]
    assert seen == [sorted(batch) for batch in whole]
    verdicts = place.verify([stream.receipt() for stream in [*ranks, *others]])
    assert [verdict.is_exactly_once for verdict in verdicts] == [True]


def test_weights_change_inside_the_loop_and_come_with_the_state(place: stoker.Lake) -> None:
    mixture = low_and_high(place, epoch_rows=96)
    stream = mixture.stream(batch_size=8, seed=4)
    before = [ids_of(batch) for batch in mixture.stream(batch_size=8, seed=4)]
    taken, state = [], ""
    for batch in stream:
        taken.append(ids_of(batch))
        if batch.step == 3:
            stream.set_weights([1, 3])
        if batch.step == 5:
            state = json.dumps(stream.state_dict())
    assert taken[:4] == before[:4]
    assert [sum(row < 40 for row in rows) for rows in taken[4:]] == [2] * 8
    assert stream.weights == [0.25, 0.75]
    again = mixture.stream(batch_size=8, seed=4)
    assert again.weights == [0.5, 0.5]
    again.load_state_dict(state)
    assert again.weights == [0.25, 0.75]
    assert [ids_of(batch) for batch in again] == taken[6:]
    # A state from before the change of weights restores the old weights too.
    start = mixture.stream(batch_size=8, seed=4).state_dict()
    again.load_state_dict(start)
    assert [ids_of(batch) for batch in again] == before
    low = [row for rows in taken for row in rows if row < 40]
    assert len(low) == len(set(low)), "a query goes on where it was"


def test_receipts_of_both_sides_of_a_change_belong_together(place: stoker.Lake) -> None:
    mixture = low_and_high(place, epoch_rows=96)
    first = mixture.stream(batch_size=8, seed=4)
    for batch in first:
        if batch.step == 4:
            break
    second = mixture.stream(batch_size=8, seed=4)
    second.load_state_dict(first.state_dict())
    second.set_weights([1, 3])
    assert sum(batch.num_valid for batch in second) == 96 - 40
    assert first.stream_id != second.stream_id
    verdicts = place.verify([first.receipt(), second.receipt()])
    assert [verdict.is_exactly_once for verdict in verdicts] == [True]
    with pytest.raises(stoker.InvalidRequestError, match="it belongs to stream"):
        place.verify([first.receipt(), place.sql(LOW).stream(batch_size=4).receipt()])


def test_other_mixtures_are_refused(place: stoker.Lake) -> None:
    state = low_and_high(place).stream(batch_size=8).state_dict()
    for other in (low_and_high(place, 0.6, 0.4), stoker.mix([(place.sql(LOW), 0.5), (place.sql(LOW), 0.5)])):
        with pytest.raises(stoker.StateMismatchError, match=r"mixture|query"):
            other.stream(batch_size=8).load_state_dict(state)
    with pytest.raises(stoker.StateMismatchError):
        place.sql(LOW).stream(batch_size=8).load_state_dict(state)


def test_bad_mixtures(place: stoker.Lake) -> None:
    low = place.sql(LOW)
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ({}, {}, "at least one query"),
        ([(low, "much")], {}, "must be numbers"),
        ([(low, 0)], {}, "not a positive number"),
        ([(low, float("nan")), (low, 1)], {}, "not a positive number"),
        ([(low, 1e-9), (low, 1)], {}, "less than 1/65536"),
        ([(low, 1)], {"stop": "never"}, "'first' or 'all'"),
        ([(low, 1)], {"epoch_rows": 0}, "epoch_rows is 0"),
        ([("SELECT 1", 1)], {}, "pairs of a query and its weight"),
        ([(low, 1), (stoker.connect("memory://").sql("SELECT 1 AS id"), 1)], {}, "need one lake"),
        ([(low, 1), (place.sql("SELECT id, image FROM samples"), 1)], {}, "2 columns, not 3"),
        ([(low, 1), (place.sql("SELECT label AS id, image, name FROM samples"), 1)], {}, "Int32 where"),
        ([(low, 1), (place.sql(f"SELECT {COLUMNS} FROM samples WHERE id < 0"), 1)], {}, "query 2 .* selects no rows"),
        ([(low, 1)] * 65, {}, "1 to 64 sources"),
    ]
    for weights, options, text in cases:
        with pytest.raises(stoker.InvalidRequestError, match=text):
            stoker.mix(weights, **options).stream(batch_size=4)
    for weights in ([0.5], [1, -1], ["x", "y"]):
        with pytest.raises(stoker.InvalidRequestError, match="weight"):
            low_and_high(place).stream(batch_size=4).set_weights(weights)
    with pytest.raises(stoker.InvalidRequestError, match="only a mixture"):
        low.stream(batch_size=4).set_weights([1])


def test_a_mixture_in_torch(place: stoker.Lake) -> None:
    torch = pytest.importorskip("torch")
    loader = low_and_high(place, epoch_rows=80).torch(batch_size=10, seed=3)
    sizes = []
    for batch in loader:
        assert batch["image"].dtype == torch.uint8
        sizes.append(int((batch["id"] < 40).sum()))
        if batch.step == 3:
            loader.set_weights([9, 1])
    assert sizes == [5, 5, 5, 5, 9, 9, 9, 9]


def test_union_all_keeps_storage_proportions(place: stoker.Lake) -> None:
    query = place.sql(f"{LOW} UNION ALL {HIGH} UNION ALL {LOW}")
    rows = [row for batch in query.stream(batch_size=16) for row in ids_of(batch)]
    assert sorted(rows) == sorted([*range(40), *range(40), *range(40, NUM_ROWS)])
