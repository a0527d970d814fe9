"""A process that changes tables while others do, and prints what it begins and what is done.

``python write_worker.py TARGET WRITER FIRST END`` executes the statements from FIRST to END, without END. Before each
one it prints ``begin N``, and after it ``done N``.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import stoker

#: The bytes of the image of a row.
IMAGE_BYTES = 1_600
#: The ids of the rows that are merged.
MERGED = range(1, 5)

UPDATE = "UPDATE counters SET n = n + 1 WHERE id = 0"
MERGE = (
    "MERGE INTO counters USING (VALUES ($1, 1)) AS v (id, more) ON counters.id = v.id "
    "WHEN MATCHED THEN UPDATE SET n = counters.n + v.more "
    "WHEN NOT MATCHED THEN INSERT (id, n, image) VALUES (v.id, v.more, $2)"
)
INSERT = "INSERT INTO log VALUES ($1, $2)"


def image_of(row: int) -> np.ndarray:
    """Returns the image of the row with this id."""
    return np.full(IMAGE_BYTES, row, np.uint8)


def merged_id(number: int) -> int:
    """Returns the id that a statement merges."""
    return MERGED[number // 3 % len(MERGED)]


def statement(writer: int, number: int) -> tuple[str, list[Any]]:
    """Returns a statement and its parameters."""
    if number % 3 == 0:
        return UPDATE, []
    if number % 3 == 1:
        return MERGE, [merged_id(number), image_of(merged_id(number))]
    return INSERT, [writer, number]


def main() -> None:
    target, (writer, first, end) = sys.argv[1], map(int, sys.argv[2:])
    lake = stoker.connect(target)
    for number in range(first, end):
        sql, params = statement(writer, number)
        print(f"begin {number}", flush=True)
        outcome = lake.execute(sql, params)
        assert outcome.num_rows == 1, outcome
        print(f"done {number}", flush=True)


if __name__ == "__main__":
    main()
