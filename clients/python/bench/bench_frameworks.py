"""Measures batches of JAX and TensorFlow beside the NumPy batches of the same stream.

    python clients/python/bench/bench_frameworks.py

``cargo xtask bench frameworks`` builds what it needs and runs it in the environment of ``cargo xtask test --extras``.
Each measurement is a process of its own that imports ``stoker`` and the framework, opens the lake, and takes each batch
of ``--epochs`` epochs in a Python loop; JAX waits until the array is there. NumPy does the same in turn with it,
``--repeat`` times. Its figure is the median of the rates of its epochs, each from the first batch on; figures are
medians of the turns. ``x`` is the median of the ratios within each turn: bar 0.95.

- ``tensors``: 2,048 rows of ``uint8[3,224,224]``, in batches of 256;
- ``padded tokens``: ``--mib`` MiB of lists of int32 (mean about 512 tokens, lengths as those of texts), in batches of
  256, padded to a multiple of 128; their bytes are those of the padded arrays.

Both are in order and shuffled, in process, from local files.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from first_epoch.data import BATCH_ROWS, BUCKET, DATA, prepare

from harness.child import environment
from harness.folder import data_folder
from harness.token_lists import write_tokens
from harness.turns import Figure, Pair, Unit, measure, parser, report

_BAR = 0.95
_UNIT = Unit("MB/s", "CPU s/GB")
_FRAMEWORKS = ("jax", "tensorflow")
#: Divides the rows of the images of ``bench_python.py``.
_DIVISOR = 4
_MULTIPLE = 128


def main() -> int:
    """Measures and prints one table, or one measurement of a process of its own; returns the exit status."""
    arguments = _parser().parse_args()
    if arguments.request is not None:
        print(json.dumps(_measured(json.loads(arguments.request))))
        return 0
    import stoker

    try:
        with data_folder(arguments.dir, "stoker-frameworks-") as folder:
            prepare(folder, DATA["images"].divided(_DIVISOR * arguments.divisor))
            lake = str(folder / BUCKET / "lake")
            write_tokens(stoker.connect(lake), arguments.mib, ("ragged",))
            pairs = [pair for pair in _pairs(lake, arguments) if arguments.only in pair.name]
            found = measure(pairs, arguments.repeat)
    except subprocess.CalledProcessError as failed:
        print(failed, file=sys.stderr)
        return 1
    heading = (
        f"fresh processes, {arguments.epochs} epochs of each; medians of {arguments.repeat} turns; "
        f"{os.cpu_count()} processors"
    )
    report(pairs, found, heading, arguments.json)
    return 0


def _parser() -> argparse.ArgumentParser:
    found = parser("Measure batches of JAX and TensorFlow beside those of NumPy.")
    add = found.add_argument
    add("--epochs", type=int, default=3, help="epochs of a process (default %(default)s)")
    add("--divisor", type=int, default=1, help="divides the number of images, for a quick look (default %(default)s)")
    add("--mib", type=int, default=64, help="MiB of tokens (default %(default)s)")
    add("--request", help=argparse.SUPPRESS)
    return found


def _pairs(lake: str, arguments: argparse.Namespace) -> Iterator[Pair]:
    def measured(framework: str, column: str, shuffle: Any) -> Figure:
        request = {
            "framework": framework,
            "lake": lake,
            "column": column,
            "table": "images" if column == "image" else "ragged",
            "shuffle": shuffle,
            "epochs": arguments.epochs,
        }
        command = [sys.executable, __file__, "--request", json.dumps(request)]
        done = subprocess.run(command, stdout=subprocess.PIPE, env=environment(None), timeout=600, check=True)
        return Figure(**json.loads(done.stdout.splitlines()[-1]))

    for name, column in (("tensors", "image"), ("padded tokens", "tokens")):
        for order, shuffle in (("in order", False), ("shuffled", "block")):
            for framework in _FRAMEWORKS:
                yield Pair(
                    f"{framework}, {name}, {order}",
                    lambda what=(framework, column, shuffle): measured(*what),
                    "NumPy",
                    lambda what=("numpy", column, shuffle): measured(*what),
                    _UNIT,
                    _BAR,
                )


def _measured(request: dict[str, Any]) -> dict[str, float]:
    """Returns the figure of this process."""
    framework = request["framework"]
    os.environ |= {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2"}
    __import__(framework)
    import stoker

    column = request["column"]
    query = stoker.connect(request["lake"]).sql(f"SELECT {column} FROM {request['table']}")
    options: dict[str, Any] = {"batch_size": BATCH_ROWS, "seed": 1, "shuffle": request["shuffle"], "last_batch": "drop"}
    if column == "tokens":
        options["ragged"] = stoker.Pad(multiple=_MULTIPLE)
    batches = getattr(query, framework)(**options)
    rates, cpu = [], []
    for _ in range(request["epochs"]):
        num_bytes, begun, used = 0, 0.0, 0.0
        for batch in batches:
            values = batch[column]
            if framework == "jax":
                values.block_until_ready()
            if not begun:
                begun, used = time.perf_counter(), time.process_time()
            else:
                num_bytes += _nbytes(values)
        if not num_bytes:
            raise SystemExit(f"an epoch of {column} has one batch; it needs two of {BATCH_ROWS} rows")
        rates.append(num_bytes / (time.perf_counter() - begun) / 1e6)
        cpu.append((time.process_time() - used) / (num_bytes / 1e9))
    return {"value": median(rates), "cpu": median(cpu)}


def _nbytes(values: Any) -> int:
    """Returns the bytes of an array or a tensor, whose memory is not touched."""
    nbytes = getattr(values, "nbytes", None)
    return int(values.shape.num_elements() * values.dtype.size if nbytes is None else nbytes)


if __name__ == "__main__":
    sys.exit(main())
