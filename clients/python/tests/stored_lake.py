"""A small lake, states and receipts as earlier versions of Stoker wrote them.

`python stored_lake.py FOLDER` writes the lake to `FOLDER/lake`, and the delivered batches, states and receipts to
`FOLDER/stored.json`. The folders in `stored/` must never be written again: `test_stored.py` checks that the current
version can resume their streams. Those of `0.1.0` have version 1 of the order; in `order-2`, the stream of one
query has version 2.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import stoker

#: The folder with the stored lakes, and the versions that wrote them.
STORED = Path(__file__).parent / "stored"
VERSIONS = ("0.1.0", "order-2")
NUM_ROWS = 48
QUERY = "SELECT id, vector FROM samples WHERE id < $1"
PARAMS = [40]
PARTS = ("SELECT id, vector FROM samples WHERE id < 20", "SELECT id, vector FROM samples WHERE id >= 20")
STREAM: dict[str, Any] = {"batch_size": 6, "seed": 11, "rank": 0, "world_size": 1}
RUN_ID = "exp-1"
#: The number of batches before the state is saved, and before the weights of the mixture change.
NUM_TAKEN, NUM_BEFORE = 3, 2


def columns() -> dict[str, Any]:
    """Returns rows whose values are functions of their ids."""
    ids = np.arange(NUM_ROWS)
    return {"id": ids, "vector": np.stack([ids, ids**2 % 17], axis=1).astype(np.float32)}


def single(lake: stoker.Lake) -> stoker.Stream:
    """Plans a stream over one query, in a run with a log."""
    return lake.sql(QUERY, PARAMS).stream(run_id=RUN_ID, run_log=True, **STREAM)


def mixture(lake: stoker.Lake) -> stoker.Stream:
    """Plans a stream over a mixture of two queries."""
    return stoker.mix([(lake.sql(part), 0.5) for part in PARTS], epoch_rows=48).stream(**STREAM)


def ids(batch: stoker.Batch) -> list[int]:
    return batch["id"][batch.valid].tolist()


def deliver(stream: stoker.Stream, weights: list[float] | None) -> dict[str, Any]:
    """Streams an epoch; returns its batches, and the state and receipt after `NUM_TAKEN` of them."""
    taken, saved = [], {}
    for batch in stream:
        taken.append(ids(batch))
        if weights is not None and len(taken) == NUM_BEFORE:
            stream.set_weights(weights)
        if len(taken) == NUM_TAKEN:
            saved = {"state": stream.state_dict(), "receipt": stream.receipt()}
    return {**saved, "stream_id": stream.stream_id, "batches": taken}


def main(folder: Path) -> None:
    lake = stoker.connect(str(folder / "lake"))
    lake.create_table("samples", columns(), rows_per_fragment=30)
    stored = {"single": deliver(single(lake), None), "mixture": deliver(mixture(lake), [1, 3])}
    (folder / "stored.json").write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
