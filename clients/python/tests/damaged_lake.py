"""A lake with damaged rows, for tests of what streams do about them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from damage import damage_rows

import stoker

NUM_ROWS = 300
WIDTH = 2_000
QUERY = "SELECT id, x FROM samples"
#: The damaged rows, 1 % of all.
DAMAGED = (17, 150, 151)


def values(ids: np.ndarray) -> np.ndarray:
    """Returns the tensors of these ids. All are different, so the bytes of each occur once in the files."""
    return np.random.default_rng(0).integers(0, 256, (NUM_ROWS, WIDTH), dtype=np.uint8)[ids]


def damaged_lake(folder: Path) -> stoker.Lake:
    """Makes a lake in a folder, whose table ``samples`` has three damaged rows."""
    lake = stoker.connect(str(folder))
    ids = np.arange(NUM_ROWS)
    lake.create_table("samples", {"id": ids, "x": values(ids)}, rows_per_fragment=128)
    damage_rows(folder / "samples.lance", [values(np.array([row])).tobytes() for row in DAMAGED])
    return stoker.connect(lake.target)
