"""A process that adds a column by a function, and may be killed while it does.

``python column_worker.py LAKE TABLE COLUMN LOG [KILL_AT]`` adds a column with ``id * 2``. It appends the id of each row
that the function gets to LOG, and kills itself in the call with the number KILL_AT. It prints the version.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import numpy as np

import stoker

BATCH_SIZE = 4


def main() -> None:
    target, table, column, log = sys.argv[1:5]
    kill_at = int(sys.argv[5]) if len(sys.argv) > 5 else None
    num_calls = 0

    def double(batch: Any) -> np.ndarray[Any, Any]:
        nonlocal num_calls
        num_calls += 1
        with open(log, "a") as lines:
            lines.writelines(f"{row}\n" for row in batch["id"])
        if num_calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.stack([batch["id"] * 2] * 300, axis=1).astype(np.float32)

    found = (
        stoker.connect(target)
        .table(table)
        .add_column(column, double, columns=["id"], batch_size=BATCH_SIZE, checkpoint_secs=0, resume_key="double")
    )
    print(found.version)


if __name__ == "__main__":
    main()
