"""A process that streams images, and prints the highest anonymous memory above that after its imports.

``python peak_child.py REQUEST``; the request is a JSON document.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import stoker

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from harness.resident import Watch

#: The seconds between two looks at what the stream holds.
LOOK_SECS = 0.002
#: A stream that holds the same memory at so many looks reads nothing more.
NUM_SAME = 250


def main() -> None:
    """Takes the batches as the request says."""
    request = json.loads(sys.argv[1])
    watch = Watch()
    lake = stoker.connect(request["lake"], storage_options=request["storage_options"])
    query = lake.sql(f"SELECT image, id FROM {request['table']}")
    num_rows = 0
    for step, batch in enumerate(query.numpy(batch_size=256, seed=1, rank=0, world_size=1, **request["options"])):
        num_rows += len(batch["id"])
        if request["consumer"] == "slow":
            for _ in range(4):
                batch["image"].max()  # allocates nothing
        if request["consumer"] == "stops" and step == 2:
            wait_until_idle(lake)
            break
    print(json.dumps({"peak_bytes": watch.peak(), "num_rows": num_rows}))


def wait_until_idle(lake: stoker.Lake) -> None:
    """Waits until the stream has read ahead all that it wants to."""
    same, before, pause = 0, -1, threading.Event()
    while same < NUM_SAME:
        held = sum(stream["held_bytes"] for stream in lake.streams())
        same, before = (same + 1 if held == before else 0), held
        pause.wait(LOOK_SECS)


if __name__ == "__main__":
    main()
