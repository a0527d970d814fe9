"""A process that adds a column by a function, and prints the bytes that it read and wrote meanwhile.

``python column_bytes.py LAKE TABLE`` adds the column ``mean`` and the column ``copy``, computed from the column ``x``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import stoker


def counted() -> tuple[int, int]:
    """Returns the bytes that this process has read and written by system calls."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"]), int(lines["wchar"])


def doubled(batch: Any) -> np.ndarray[Any, Any]:
    return batch["x"] * 2


def main() -> None:
    table = stoker.connect(sys.argv[1]).table(sys.argv[2])
    # What is loaded once does not count.
    table.add_column("first", lambda batch: batch["id"], columns=["id"])
    before = counted()
    table.add_column("copy", doubled, columns=["x"], batch_size=64)
    after = counted()
    print(json.dumps([after[0] - before[0], after[1] - before[1]]))


if __name__ == "__main__":
    main()
