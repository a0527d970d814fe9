"""Weights: rows come as often as a column says."""

from __future__ import annotations

import json
import subprocess
from collections import Counter

import numpy as np
import pytest
from conftest import Server, expected_image, stoker_bin

import stoker

QUERY = "SELECT id, image, name, CAST(id % 4 AS DOUBLE) * 0.75 AS w FROM samples"
#: The weights add up to 0.75 times 0 + 1 + 2 + 3, for each four rows; the last one of 101 rows has the weight 0.
EPOCH_ROWS = 112


@pytest.fixture(params=["in process", "through a server"])
def place(request: pytest.FixtureRequest, lake_path: str, server: Server) -> stoker.Lake:
    """The lake, in process and through a server."""
    return stoker.connect(lake_path if request.param == "in process" else server.url)


def ids_of(batch: stoker.Batch) -> list[int]:
    return batch["id"][batch.valid].tolist()


def check_times(ids: list[int]) -> None:
    times = Counter(ids)
    for row in range(101):
        weight = row % 4 * 0.75
        assert np.floor(weight) <= times[row] <= np.ceil(weight), f"row {row} comes {times[row]} times"
    assert len(ids) == EPOCH_ROWS


def test_rows_come_as_often_as_they_weigh(place: stoker.Lake) -> None:
    stream = place.sql(QUERY).stream(batch_size=16, seed=3, weight="w")
    assert (stream.num_rows, len(stream)) == (EPOCH_ROWS, 7)
    epochs = []
    for _ in range(3):
        ids: list[int] = []
        for batch in stream:
            for row, image in zip(batch["id"], batch["image"], strict=True):
                np.testing.assert_array_equal(image, expected_image(row))
            ids += ids_of(batch)
        check_times(ids)
        epochs.append(ids)
    assert len({tuple(sorted(ids)) for ids in epochs}) == 3, "each epoch draws its own copies"


def test_a_resume_on_other_ranks_loses_and_repeats_nothing(place: stoker.Lake) -> None:
    def streams(world_size: int) -> list[stoker.Stream]:
        query = place.sql(QUERY)
        options = {"global_batch_size": 24, "seed": 5, "weight": "w", "world_size": world_size}
        return [query.stream(rank=rank, **options) for rank in range(world_size)]

    whole = [ids_of(batch) for batch in streams(1)[0]]
    first, rest = streams(3), streams(2)
    ids = [row for stream in first for _, batch in zip(range(2), stream, strict=False) for row in ids_of(batch)]
    assert sorted(ids) == sorted(whole[0] + whole[1])
    (state,) = {json.dumps(stream.state_dict()) for stream in first}
    assert len(state) < 1024
    for stream in rest:
        stream.load_state_dict(state)
        ids += [row for batch in stream for row in ids_of(batch)]
    check_times(ids)
    (verdict,) = place.verify([stream.receipt() for stream in [*first, *rest]])
    assert (verdict.num_rows, verdict.num_missing, verdict.num_repeated) == (EPOCH_ROWS, 0, 0)
    for other, words in [(None, "the stream has none; plan the stream with the weight"), ("id", "the stream has id;")]:
        with pytest.raises(stoker.StateMismatchError, match=f"another stream: weight: the state has w, {words}"):
            place.sql(QUERY).stream(batch_size=8, seed=5, weight=other).load_state_dict(state)


def test_loaders_have_as_many_steps_as_the_weights_say(lake: stoker.Lake) -> None:
    torch = pytest.importorskip("torch")
    loader = lake.sql(QUERY).torch(batch_size=10, seed=1, weight="w")
    batches = list(loader)
    assert len(loader) == len(batches) == 12
    check_times(torch.cat([batch["id"] for batch in batches]).tolist())


def test_weights_that_are_none_are_refused(place: stoker.Lake) -> None:
    def refused(expression: str, match: str, weight: object = "w") -> None:
        with pytest.raises(stoker.InvalidRequestError, match=match):
            place.sql(f"SELECT id, {expression} AS w FROM samples").stream(batch_size=8, weight=weight)

    refused("1", "weight is a int; it must be the name of a column", weight=3)
    refused("1", "the query has no such column; it has id, w", weight="x")
    refused("name", "weights are numbers")
    refused("nullif(id, 70)", r"row 0x[0-9a-f]+ of samples.* has NULL")
    refused("CAST(id AS DOUBLE) - 1", r"row 0x0 of samples.* has -1; weights are numbers from 0")
    refused("CAST('inf' AS DOUBLE)", "has inf")
    refused("CAST(0.001 AS DOUBLE)", "the weights of 101 rows add up to 0.10")


def test_the_command_line_streams_weighted_rows(lake_path: str) -> None:
    command = [stoker_bin(), "stream", QUERY, "--lake", lake_path, "--batch-size", "8", "--weight", "w", "--json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert report["rows"] == EPOCH_ROWS
