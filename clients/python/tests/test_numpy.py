"""The NumPy loader, and what loaders of frameworks may use of a stream."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import NUM_ROWS, SHAPE, expected_image

import stoker

QUERY = "SELECT id, image, label, name FROM samples"

#: The modules that adapt streams to a framework.
ADAPTERS = ["_numpy", "_torch", "_jax", "_tensorflow", "_lightning"]

#: The most lines of such a module.
LINES_MAX = 150


def ids_of(batch: Any) -> list[int]:
    return batch["id"][batch.valid].tolist()


def test_batches_are_dicts_of_arrays(lake: stoker.Lake) -> None:
    batches = list(lake.sql(QUERY).numpy(batch_size=16, seed=7))
    assert len(batches) == 7
    batch = batches[0]
    assert isinstance(batch, dict)
    assert list(batch) == ["id", "image", "label", "name"]
    assert (batch["image"].shape, batch["image"].dtype, batch["label"].dtype) == ((16, *SHAPE), np.uint8, np.int32)
    assert batch["name"].tolist() == [f"row {row}" for row in batch["id"]]
    assert (batch.num_valid, batch.step, batch.cursor.position, len(batch.row_ids)) == (16, 0, 16, 16)
    assert batch.valid.all()
    for row, image in zip(batch["id"], batch["image"], strict=True):
        np.testing.assert_array_equal(image, expected_image(row))
    assert sorted(row for batch in batches for row in ids_of(batch)) == list(range(NUM_ROWS))


def test_the_batches_are_those_of_the_stream(lake: stoker.Lake) -> None:
    stream = lake.sql(QUERY).stream(batch_size=10, seed=3)
    loader = lake.sql(QUERY).stream(batch_size=10, seed=3).numpy()
    for mine, theirs in zip(loader, stream, strict=True):
        assert (mine.cursor, mine.step) == (theirs.cursor, theirs.step)
        for name in theirs:
            np.testing.assert_array_equal(mine[name], theirs[name])
    assert loader.receipt() == stream.receipt()
    assert (len(loader), loader.epoch, loader.num_rows, loader.batch_size) == (11, 1, NUM_ROWS, 10)


def test_a_loader_resumes_and_pickles(lake: stoker.Lake) -> None:
    loader = lake.sql(QUERY).numpy(batch_size=10, seed=7)
    rows: list[int] = []
    for batch in loader:
        rows += ids_of(batch)
        if batch.step == 3:
            break
    resumed = lake.sql(QUERY).numpy(global_batch_size=9, seed=7)
    resumed.load_state_dict(loader.state_dict())
    copy = pickle.loads(pickle.dumps(loader))
    for other in (resumed, copy):
        assert sorted(rows + [row for batch in other for row in ids_of(batch)]) == list(range(NUM_ROWS))
    assert [verdict.is_exactly_once for verdict in lake.verify([copy.receipt()])] == [True]


def test_transforms_and_masks(lake: stoker.Lake) -> None:
    query = lake.sql("SELECT id, image FROM samples")

    def floats(batch: dict[str, Any]) -> dict[str, Any]:
        return {"x": batch["image"].astype(np.float32), "valid": batch["valid"]}

    batches = list(query.numpy(batch_size=40, last_batch="pad", valid_key="valid", transform=floats))
    assert batches[-1]["x"].dtype == np.float32
    assert batches[-1]["valid"].tolist() == batches[-1].valid.tolist() == [True] * 21 + [False] * 19
    sums = query.numpy(batch_size=40, transform=lambda batch: int(batch["id"].sum()))
    assert sum(sums) == sum(range(NUM_ROWS))
    with pytest.raises(stoker.InvalidRequestError, match="valid_key is 'id'"):
        query.numpy(batch_size=2, valid_key="id")
    with pytest.raises(stoker.InvalidRequestError, match="transform is 3"):
        query.numpy(batch_size=2, transform=3)  # type: ignore[arg-type]


def test_a_batch_that_was_rebuilt_has_no_mask(lake: stoker.Lake) -> None:
    batch = next(iter(lake.sql(QUERY).numpy(batch_size=10)))
    with pytest.raises(stoker.InvalidRequestError, match=r"rebuilt from its columns.*numpy\(valid_key"):
        type(batch)({**batch}).valid  # noqa: B018


def test_adapters_may_read_ahead_and_be_moved(lake: stoker.Lake) -> None:
    stream = lake.sql("SELECT id FROM samples").stream(batch_size=10, seed=1)

    def ahead(batches: Any) -> Any:
        """Reads one batch ahead of the loop."""
        waiting = None
        for batch in batches:
            if waiting is not None:
                yield waiting, ids_of(waiting)
            waiting = batch
        if waiting is not None:
            yield waiting, ids_of(waiting)

    rows: list[int] = []
    for number, ids in enumerate(stream.passes(ahead)):
        rows += ids
        assert stream.state_dict()["position"] == len(rows) + (20 if number > 1 else 0) or number == 8
        if number == 1:
            assert stream.skip(2) == 2
    (verdict,) = lake.verify([stream.receipt()])
    assert (verdict.is_exactly_once, verdict.num_skipped, len(set(rows))) == (True, 20, NUM_ROWS - 20)


@pytest.mark.parametrize("name", ADAPTERS)
def test_adapters_are_short_and_use_no_private_member_of_another_object(name: str) -> None:
    text = (Path(stoker.__file__).parent / f"{name}.py").read_text()
    assert len(text.splitlines()) <= LINES_MAX
    private = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]
    assert not private
