"""The cost of a batch in Python: its function calls do not depend on its number of rows, and no tensor is copied."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from conftest import Server

import stoker

torch = pytest.importorskip("torch")

NUM_BATCHES = 6
QUERY = "SELECT id, image, label, weight FROM rows"


@pytest.fixture(scope="module", params=["in process", "through a server"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[stoker.Lake]:
    """A lake with a table of 6,000 rows of 3 KiB each, in process and through a server."""
    path = str(tmp_path_factory.mktemp("lake"))
    rows = np.arange(NUM_BATCHES * 1000)
    image = np.broadcast_to(rows.astype(np.uint8)[:, None, None, None], (len(rows), 3, 32, 32))
    columns = {"id": rows, "image": image, "label": rows.astype(np.int32) % 10, "weight": rows.astype(np.float32)}
    stoker.connect(path).create_table("rows", columns)
    if request.param == "in process":
        yield stoker.connect(path)
        return
    server = Server(path)
    try:
        yield stoker.connect(server.url)
    finally:
        server.stop()


def calls_per_batch(batches: Iterator[Any]) -> list[int]:
    """Returns the number of calls of Python and C functions for each batch."""
    counts = []
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    while True:
        count = 0
        sys.setprofile(note)
        batch = next(batches, None)
        sys.setprofile(None)
        if batch is None:
            return counts
        counts.append(count)


@pytest.mark.parametrize("kind", ["torch", "stream"])
def test_the_python_work_of_a_batch_does_not_depend_on_its_rows(source: stoker.Lake, kind: str) -> None:
    query = source.sql(QUERY)

    def median(batch_size: int) -> int:
        options: dict[str, Any] = {"batch_size": batch_size, "rank": 0, "world_size": 1}
        batches = query.torch(**options) if kind == "torch" else query.stream(**options)
        counts = calls_per_batch(iter(batches))
        assert len(counts) == NUM_BATCHES * 1000 // batch_size
        return sorted(counts)[len(counts) // 2]

    # Once the rows of the epoch are all read, each further batch checks whether the next epoch is already opened, which
    # is a call or two.
    few, many = median(10), median(1000)
    assert few > 0
    assert abs(many - few) <= 2


def test_no_tensor_is_copied(source: stoker.Lake) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operations(TorchDispatchMode):
        """Records the names of the operations that run on tensors."""

        def __init__(self) -> None:
            super().__init__()
            self.names: set[str] = set()

        def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.add(str(operation))
            return operation(*args, **(kwargs or {}))

    loader = source.sql(QUERY).torch(batch_size=1000, rank=0, world_size=1)
    next(iter(loader))
    tracemalloc.start()
    with Operations() as operations:
        num_bytes = sum(batch["image"].nbytes for batch in loader)
        names = set(operations.names)
        torch.zeros(1).clone()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert num_bytes == (NUM_BATCHES - 1) * 1000 * 3 * 32 * 32, "the loop goes on after its first batch"
    assert not names, "no tensor is made from another one"
    assert "aten.clone.default" in operations.names, "operations are recorded"
    assert peak < num_bytes / 20, "NumPy and Python allocate no memory for values"


def test_the_profile_would_notice_work_per_row(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    lake.create_table("rows", {"name": [f"row {row}" for row in range(1000)], "id": np.arange(1000)})
    batches = iter(lake.sql("SELECT id, name FROM rows").torch(batch_size=100, rank=0, world_size=1))
    named = ([text.upper() for text in batch["name"]] for batch in batches)
    assert min(calls_per_batch(named)) > 100
