"""Transforms of single rows."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from conftest import Server

import stoker

NUM_ROWS = 40
QUERY = "SELECT id, x, text, tokens FROM samples"


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake with the table `samples`."""
    path = str(tmp_path_factory.mktemp("samples"))
    columns = {
        "id": np.arange(NUM_ROWS),
        "x": np.arange(NUM_ROWS * 4, dtype=np.float32).reshape(NUM_ROWS, 4),
        "text": [f"row {row}" for row in range(NUM_ROWS)],
        "tokens": pa.array([list(range(row % 5)) for row in range(NUM_ROWS)], pa.list_(pa.int32())),
    }
    stoker.connect(path).create_table("samples", columns)
    return path


@pytest.fixture
def query(samples: str) -> stoker.Query:
    return stoker.connect(samples).sql(QUERY)


def tripled(row: dict[str, Any]) -> dict[str, Any]:
    """A transform that can be pickled."""
    return {"id": row["id"], "x": row["x"] * 3, "length": len(row["tokens"]), "text": row["text"].upper()}


def noisy(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"id": row["id"], "noise": rng.random(3)}


def noises(loader: Any) -> dict[int, list[float]]:
    found = {}
    for batch in loader:
        for row, noise in zip(batch["id"][batch.valid].tolist(), batch["noise"][batch.valid].tolist(), strict=True):
            found[row] = noise
    return found


@pytest.mark.parametrize("num_threads", [0, 3])
def test_rows_become_arrays(query: stoker.Query, num_threads: int) -> None:
    seen = []
    transform = stoker.PerRow(tripled)
    for batch in query.numpy(batch_size=8, seed=7, transform=transform, transform_threads=num_threads):
        assert isinstance(batch, stoker._numpy.NumpyBatch)
        assert (batch["x"].shape, batch["x"].dtype, batch["length"].dtype) == ((8, 4), np.float32, np.int64)
        ids = batch["id"].tolist()
        np.testing.assert_array_equal(batch["x"][:, 0], [3.0 * 4 * row for row in ids])
        assert batch["length"].tolist() == [row % 5 for row in ids]
        assert batch["text"].tolist() == [f"ROW {row}" for row in ids]
        seen += ids
    assert sorted(seen) == list(range(NUM_ROWS))


@pytest.mark.parametrize("behind_a_server", [False, True])
def test_rows_become_tensors(samples: str, behind_a_server: bool) -> None:
    def transform(row: dict[str, Any]) -> dict[str, Any]:
        assert isinstance(row["x"], torch.Tensor)
        return {"x": row["x"] * 3, "id": row["id"], "half": float(row["id"]) / 2, "tokens": row["tokens"] + 1}

    server = Server(samples) if behind_a_server else None
    try:
        lake = stoker.connect(samples if server is None else server.url)
        for batch in lake.sql(QUERY).torch(batch_size=8, seed=7, transform=stoker.PerRow(transform)):
            ids = batch["id"].tolist()
            assert batch["x"][:, 0].tolist() == [12.0 * row for row in ids]
            assert batch["half"].tolist() == [row / 2 for row in ids]
            assert batch["half"].dtype == torch.float64
            assert [row.tolist() for row in batch["tokens"]] == [[token + 1 for token in range(row % 5)] for row in ids]
            assert batch.num_valid == 8
    finally:
        if server is not None:
            server.stop()


def test_a_collate_function_gets_the_dicts(query: stoker.Query) -> None:
    def collate(rows: list[dict[str, Any]]) -> list[int]:
        return [int(row["id"]) for row in rows]

    loader = query.torch(batch_size=8, shuffle=False, transform=stoker.PerRow(tripled), collate_fn=collate)
    assert [row for batch in loader for row in batch] == list(range(NUM_ROWS))


def test_random_numbers_depend_on_seed_epoch_and_position_alone(query: stoker.Query) -> None:
    transform = stoker.PerRow(noisy, seeded=True)
    loader = query.numpy(batch_size=8, seed=7, transform=transform)
    first, second = noises(loader), noises(loader)
    assert len({tuple(noise) for noise in first.values()}) == NUM_ROWS
    assert all(first[row] != second[row] for row in first)
    ranks: dict[int, list[float]] = {}
    for rank in range(3):
        ranks |= noises(query.torch(batch_size=3, seed=7, rank=rank, world_size=3, transform=transform))
    assert ranks == first
    assert noises(query.numpy(batch_size=8, seed=8, transform=transform)) != first


def test_seeds_of_rows_are_what_they_always_were(query: stoker.Query) -> None:
    stream = query.stream(batch_size=8, seed=7)
    assert int(next(iter(stream)).rows.row_seeds()[0]) == 0x2A0637DA167561EE
    stream.set_epoch(1)
    assert int(next(iter(stream)).rows.row_seeds()[3]) == 0xE25728BBAF5CFD2D


def test_random_numbers_stay_after_a_resume(query: stoker.Query) -> None:
    def loader(batch_size: int) -> Any:
        return query.numpy(
            batch_size=batch_size, seed=7, transform=stoker.PerRow(noisy, seeded=True), transform_threads=2
        )

    expected = noises(loader(8))
    first = loader(8)
    found = {}
    for batch in first:
        found |= dict(zip(batch["id"].tolist(), batch["noise"].tolist(), strict=True))
        if len(found) == 16:
            break
    second = loader(4)
    second.load_state_dict(first.state_dict())
    found |= noises(second)
    assert found == expected


@pytest.mark.parametrize("num_threads", [0, 2])
def test_an_exception_names_table_and_row(query: stoker.Query, num_threads: int) -> None:
    def broken(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 17:
            raise KeyError("seventeen")
        return row

    loader = query.numpy(batch_size=4, seed=7, transform=stoker.PerRow(broken), transform_threads=num_threads)
    with pytest.raises(KeyError, match="seventeen") as raised:
        list(loader)
    notes = getattr(raised.value, "__notes__", ["row id 17 of samples version 1 (position"])
    assert "row id 17 of samples version 1 (position" in notes[0]
    # The loop may go on behind the batch.
    steps = loader.skip(1)
    assert steps == 1
    assert 17 not in [row for batch in loader for row in batch["id"].tolist()]


@pytest.mark.parametrize("bad_rows", ["error", "substitute"])
def test_a_bad_row_names_table_and_row(query: stoker.Query, bad_rows: str) -> None:
    def picky(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 17:
            raise stoker.BadRow("it is seventeen")
        return row

    words = r"refused row id 17 of samples version 1 \(position \d+ of epoch 0\): it is seventeen"
    for loader in (query.numpy, query.torch):
        with pytest.raises(stoker.DataCorruptError, match=words):
            list(loader(batch_size=4, seed=7, transform=stoker.PerRow(picky), bad_rows=bad_rows))


def test_other_results_are_refused_by_row(query: stoker.Query) -> None:
    def check(function: Any, words: str, **options: Any) -> None:
        with pytest.raises(stoker.InvalidRequestError, match=words):
            list(query.numpy(batch_size=4, shuffle=False, transform=stoker.PerRow(function, **options)))

    check(lambda row: 3, r"row id 0 of samples version 1 .*returned int; it must be a dict")
    check(
        lambda row: {"a": 1} if row["id"] != 2 else {"b": 1},
        r"row id 2 of samples .*returned the keys \['b'\], and for other rows \['a'\]",
    )
    outputs = {"x": (4, "float32")}
    check(lambda row: {"x": row["x"][:3]}, r"returned float32\[3\] as x; outputs says float32\[4\]", outputs=outputs)
    check(lambda row: {"x": row["id"]}, r"returned int64\[\] as x; outputs says float32\[4\]", outputs=outputs)
    check(lambda row: {"y": 1}, r"returned the keys \['y'\]; outputs has \['x'\]", outputs=outputs)


def test_arrays_of_different_shapes_stay_arrays(query: stoker.Query) -> None:
    def transform(row: dict[str, Any]) -> dict[str, Any]:
        return {"tokens": row["tokens"], "pair": (row["id"], "x"), "none": None}

    batch = next(iter(query.numpy(batch_size=6, shuffle=False, transform=stoker.PerRow(transform))))
    assert [row.tolist() for row in batch["tokens"]] == [list(range(row % 5)) for row in range(6)]
    assert batch["pair"].tolist() == [(row, "x") for row in range(6)]
    assert batch["none"].tolist() == [None] * 6
    batch = next(iter(query.torch(batch_size=6, shuffle=False, transform=stoker.PerRow(transform))))
    assert [row.tolist() for row in batch["tokens"]] == [list(range(row % 5)) for row in range(6)]
    assert batch["none"] == [None] * 6


def test_outputs_give_types_and_batches_without_rows(query: stoker.Query) -> None:
    outputs = {"x": (4, "float32"), "n": ((), "int16")}
    transform = stoker.PerRow(lambda row: {"x": row["x"], "n": 5}, outputs=outputs)
    options: dict[str, Any] = {"batch_size": 13, "world_size": 3, "last_batch": "uneven", "transform": transform}
    sizes = []
    for rank in range(3):
        *_, last = query.numpy(rank=rank, **options)
        sizes.append(last.num_rows)
        assert (last["x"].shape, last["x"].dtype) == ((last.num_rows, 4), np.float32)
        assert (last["n"].shape, last["n"].dtype) == ((last.num_rows,), np.int16)
        *_, last = query.torch(rank=rank, **options)
        assert (last["x"].shape, last["x"].dtype) == ((sizes[-1], 4), torch.float32)
    assert sorted(sizes) == [0, 0, 1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"function": 3}, "function is 3"),
        ({"function": len, "outputs": [1]}, "outputs is"),
        ({"function": len, "outputs": {"x": 3}}, r"outputs\['x'\] is 3"),
        ({"function": len, "outputs": {"x": (3, "nothing")}}, r"outputs\['x'\]"),
        ({"function": len, "outputs": {"x": (-3, "int8")}}, "size is -3"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(stoker.InvalidRequestError, match=words):
        stoker.PerRow(**options)


def test_loaders_with_transforms_of_rows_are_pickled(query: stoker.Query) -> None:
    loader = query.numpy(batch_size=8, seed=7, transform=stoker.PerRow(tripled))
    copy = pickle.loads(pickle.dumps(loader))
    assert [batch["id"].tolist() for batch in copy] == [batch["id"].tolist() for batch in loader]
