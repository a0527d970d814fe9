"""One measurement, in a process of its own: ``python -m first_epoch.child REQUEST``.

The request and the answer, which is the last line on standard output, are JSON documents.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from first_epoch.profile import profiled
from harness.resident import Watch

__all__ = ["main"]

#: The most bytes of a range that a GET of the ceiling reads.
_RANGE_BYTES = 8 << 20
#: The number of GETs of the ceiling at once.
_GETS = 16
#: The number of batches that the ceiling reads ahead.
_BATCHES_AHEAD = 3

_Epochs = Callable[[int], Iterator[Any]]


def main() -> int:
    """Measures what the request says, and prints the answer."""
    request = json.loads(sys.argv[1])
    for name in request["imports"]:
        __import__(name)
    if request["system"] == "touch":
        print(json.dumps(_touched(request["is_huge"])))
        return 0
    from first_epoch.data import DATA

    rows = DATA[request["data"]].divided(request["divisor"])
    file = request.get("profile")
    with profiled(Path(file)) if file else nullcontext():
        measured = _measured(_SYSTEMS[request["system"]], request, rows)
    print(json.dumps(measured))
    return 0


def _measured(open_system: Callable[..., _Epochs], request: dict[str, Any], rows: Any) -> list[dict[str, float]]:
    """Returns the figures of each epoch."""
    watch = Watch()
    began = time.perf_counter()
    epochs = open_system(request, rows)
    found = []
    for number in range(request["epochs"]):
        num_bytes = first_bytes = 0
        first = cpu = 0.0
        for tensor in epochs(number):
            if not first:
                first, cpu, first_bytes = time.perf_counter(), time.process_time(), tensor.nbytes
            num_bytes += tensor.nbytes
        end, used = time.perf_counter(), time.process_time() - cpu
        if num_bytes != rows.num_bytes:
            raise RuntimeError(f"epoch {number} has {num_bytes} bytes of {rows.name}, not {rows.num_bytes}")
        counted = num_bytes - first_bytes
        found.append(
            {
                "first_secs": first - began,
                "bytes_per_sec": counted / (end - first),
                "cpu_secs_per_byte": used / counted,
                "peak_bytes": watch.peak(),
            }
        )
        began = time.perf_counter()
    return found


def _stoker(request: dict[str, Any], rows: Any) -> _Epochs:
    import stoker
    from first_epoch.data import BATCH_ROWS

    lake = stoker.connect(request["lake"], storage_options=request["storage_options"])
    loader = getattr(lake.sql(rows.query), "torch" if "torch" in request["imports"] else "numpy")
    batches = loader(
        batch_size=BATCH_ROWS,
        seed=1,
        shuffle="block" if request["is_shuffled"] else False,
        last_batch="uneven",
        rank=0,
        world_size=1,
        **request["options"],
    )

    def epoch(number: int) -> Iterator[Any]:
        batches.set_epoch(number)
        for batch in batches:
            yield batch[rows.column]

    return epoch


def _from_map(request: dict[str, Any], rows: Any) -> _Epochs:
    """Copies rows from a memory map into tensors that are used again."""
    import numpy as np
    import torch

    from first_epoch.data import BATCH_ROWS

    mapped = np.memmap(rows.file(Path(request["folder"])), rows.dtype, "r", shape=(rows.num_rows, *rows.shape))
    source = torch.from_numpy(mapped)
    targets = [torch.empty((BATCH_ROWS, *rows.shape), dtype=source.dtype) for _ in range(2)]

    def epoch(number: int) -> Iterator[Any]:
        order = torch.randperm(rows.num_rows, generator=torch.Generator().manual_seed(number))
        for index, start in enumerate(range(0, rows.num_rows, BATCH_ROWS)):
            target = targets[index % 2]
            if request["is_shuffled"]:
                torch.index_select(source, 0, order[start : start + BATCH_ROWS], out=target)
            else:
                target.copy_(source[start : start + BATCH_ROWS])
            yield target

    return epoch


def _from_store(request: dict[str, Any], rows: Any) -> _Epochs:
    """Reads all bytes with GETs of ranges, in the order of the file, into tensors that are used again."""
    from concurrent.futures import ThreadPoolExecutor

    import torch

    from first_epoch.data import BATCH_ROWS, BUCKET
    from harness.getter import Getter

    getter = Getter(f"{request['endpoint']}/{BUCKET}/{rows.name}.bin")
    pool = ThreadPoolExecutor(_GETS)
    batch_bytes = BATCH_ROWS * rows.row_bytes
    # A unit of several small batches is read at once, as no store is fast with small ranges.
    unit_bytes = max(1, (_RANGE_BYTES * 4) // batch_bytes) * batch_bytes
    units = [torch.empty(unit_bytes, dtype=torch.uint8) for _ in range(_BATCHES_AHEAD + 1)]

    def ask(start: int) -> tuple[Any, list[Any]]:
        unit = units[start // unit_bytes % len(units)][: min(unit_bytes, rows.num_bytes - start)]
        memory = unit.numpy()
        parts = range(0, len(memory), _RANGE_BYTES)
        return unit, [pool.submit(getter.get, start + at, memory[at : at + _RANGE_BYTES]) for at in parts]

    def epoch(_: int) -> Iterator[Any]:
        starts = range(0, rows.num_bytes, unit_bytes)
        asked = [ask(start) for start in starts[:_BATCHES_AHEAD]]
        for index in range(len(starts)):
            unit, done = asked.pop(0)
            for part in done:
                part.result()
            for at in range(0, len(unit), batch_bytes):
                yield unit[at : at + batch_bytes]
            if index + _BATCHES_AHEAD < len(starts):
                asked.append(ask(starts[index + _BATCHES_AHEAD]))

    return epoch


def _touched(is_huge: bool) -> float:
    """Returns the bytes per second with which the system hands out memory that was never used."""
    import mmap

    size = 256 << 20
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE if is_huge else mmap.MADV_NOHUGEPAGE)
    began = time.perf_counter()
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1
    return size / (time.perf_counter() - began)


_SYSTEMS: dict[str, Callable[..., _Epochs]] = {"stoker": _stoker, "map": _from_map, "store": _from_store}

if __name__ == "__main__":
    sys.exit(main())
