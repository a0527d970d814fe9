"""Measures Stoker, pylance, Grain, LitData, MosaicML Streaming, WebDataset and Deeplake on the same data in one run.

    python clients/python/bench/bench_peers.py --dir /data/bench --json peers.json

The Python that runs it must have the libraries (``requirements-peers.txt`` beside this file has versions that work
together) and the ``stoker`` package, which may be on ``PYTHONPATH``. Missing libraries are named and left out. All S3
traffic goes to ``stoker bench object-server`` on the loopback interface, which waits ``--latency-ms`` before each
response. HTTPS requests, such as the libraries' telemetry, go to a proxy that does not exist.

Data (``--data``): rows with a tensor, a label by which they are sorted, of 100 classes, and a score
(``harness/dataset.py``). By default 4,096 rows have an image ``uint8[3,224,224]``, and 131,072 other rows have tokens
``int32[512]``. Each library writes each kind of rows once into ``--dir`` in its own uncompressed format; the S3 paths
read the same files.

Paths: ``local`` and ``s3``, each ``sequential``, ``shuffled`` and ``subset``, which is the 5 % of the rows with
``score < 5``, shuffled. Each library is used as its documentation shows. Where the documentation shows two ways that
deliver different rows or orders, both are measured:

- pylance: ``LanceDataset``, shuffled by batches, ``take`` of random rows, and blocks of rows by hand
  (``peers/pylance.py``);
- Grain: a memory map of the flat files, local only (``peers/grain.py``);
- Deeplake: ``batches()`` of a query, and a ``DataLoader`` over ``pytorch()`` (``peers/deeplake.py``);
- LitData: ``StreamingDataset(shuffle=True)``; for the subset its ``subset``, or all rows filtered, whichever is faster
  (``peers/litdata.py``);
- MosaicML Streaming: ``StreamingDataset(shuffle=True)``; for the subset random access, or all rows filtered, whichever
  is faster (``peers/mosaicml.py``);
- WebDataset: ``shardshuffle`` and ``shuffle(1000)``; for the subset ``select`` (``peers/webdataset.py``);
- Stoker: ``Query.torch`` with its defaults (``peers/stoker.py``);
- the ceiling: a mapped file, and parallel GETs (``peers/ceiling.py``).

Each measurement runs in a fresh process with a time limit, so that a library that hangs or crashes loses only its own
line. Its first epoch is in the first columns of the table, because it is most of the life of many runs; later epochs
follow. Each setting (by default 0 and 2 workers) is measured once. Then the fastest setting of each system is
repeated, in turn with the other systems, until it has ``--repeat`` measurements. ``harness/measure.py`` describes what
is measured, and how it checks that each row came exactly once. By default an epoch has 32 batches of images, and 512 of
tokens; the subset has two, one for each of two workers, and 26; ``--rows`` and ``--batch-size`` change that. An epoch
that takes more than ``--epoch-secs`` is cut, and the table says so. ``mixing`` is the number of distinct labels per
batch, divided by its expectation under a uniform permutation. The last table has the ratios of Stoker's rate to that of
the strongest peer, and which of them meet their bars.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from harness.child import ChildError
from harness.folder import data_folder
from harness.plan import Bench, Options, is_installed, say
from harness.report import tables, to_json
from harness.rows import ROW_KINDS, RowKind
from harness.store import StoreError, check_loopback, serve
from harness.task import DataPath, Order, Place, System
from peers import SYSTEMS

_PATHS = [str(DataPath(place, order)) for place in Place for order in Order]


def main() -> int:
    """Makes the measurements and prints the tables; returns the exit status."""
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    paths = [DataPath.parse(name) for name in arguments.paths]
    chosen = [system for system in SYSTEMS.values() if {system.key, system.peer} & set(arguments.peers)]
    absent = [system for system in chosen if not is_installed(system)]
    options = [_options(arguments, ROW_KINDS[name]) for name in arguments.data]
    try:
        with data_folder(arguments.dir, "stoker-peers-") as folder, ExitStack() as stack:
            benches = [Bench(folder, one) for one in options]
            endpoint = None
            if any(path.place is Place.S3 for path in paths):
                endpoint = _endpoint(arguments, folder, stack)
            status = _run(benches, paths, chosen, endpoint)
    except StoreError as failed:
        print(failed, file=sys.stderr)
        return 1
    lines = [line for bench in benches for line in bench.lines]
    print("\n".join(map(_heading, options)))
    print(tables(lines, absent))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(to_json(options, lines, absent), indent=2) + "\n")
    return status


def _run(benches: list[Bench], paths: list[DataPath], systems: list[System], endpoint: str | None) -> int:
    """Makes the measurements, one kind of rows after the other, and returns the exit status.

    After SIGINT or SIGTERM, or if the rows of a kind could not be written, what was measured is reported.
    """
    try:
        for bench in benches:
            bench.run(paths, systems, endpoint)
    except KeyboardInterrupt:
        say("stopped")
        return 128 + signal.SIGINT
    except ChildError as failed:
        say(f"the rows could not be written: {failed}")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    names = sorted({name for system in SYSTEMS.values() for name in (system.key, system.peer)})
    parser = argparse.ArgumentParser(description="Measure Stoker beside its peers, on the same data in the same run.")
    add = parser.add_argument
    add("--peers", type=_list_of(names), default=names, help=f"comma-separated; default all: {', '.join(names)}")
    add("--paths", type=_list_of(_PATHS), default=_PATHS, help=f"comma-separated; default all: {', '.join(_PATHS)}")
    kinds = ROW_KINDS.values()
    add("--data", type=_list_of(list(ROW_KINDS)), default=list(ROW_KINDS), help=f"default all: {', '.join(ROW_KINDS)}")
    rows = ", ".join(f"{kind.num_rows_default} of {kind.name}" for kind in kinds)
    add("--rows", type=int, help=f"rows of each kind of data (default {rows})")
    batches = ", ".join(f"{kind.batch_size_default} of {kind.name}" for kind in kinds)
    add("--batch-size", type=int, help=f"rows per batch (default {batches})")
    add("--repeat", type=int, default=3, help="measurements of the best setting (default %(default)s)")
    add("--workers", type=_numbers, default=(0, 2), help="numbers of worker processes to try (default 0,2)")
    add("--seed", type=int, default=7, help="seed of the shuffled orders (default %(default)s)")
    add("--dir", type=Path, help="where the data is written, and kept for the next run; default: a temporary folder")
    add("--json", type=Path, help="write everything that was measured to this file")
    add("--latency-ms", type=int, default=20, help="what S3 waits before it answers (default %(default)s)")
    add("--stoker", default=os.environ.get("STOKER_BIN"), help="the stoker binary; default: STOKER_BIN")
    add("--s3-endpoint", help="a server on the loopback interface that serves the folders in --dir as buckets, instead")
    add("--epoch-secs", type=float, default=10, help="seconds after which an epoch is cut (default %(default)s)")
    add("--measured-secs", type=float, default=1, help="short epochs are repeated for so long (default %(default)s)")
    add("--timeout-secs", type=float, default=300, help="the limit of a measurement (default %(default)s)")
    return parser


def _options(arguments: argparse.Namespace, kind: RowKind) -> Options:
    return Options(
        kind=kind,
        num_rows=kind.num_rows_default if arguments.rows is None else arguments.rows,
        batch_size=kind.batch_size_default if arguments.batch_size is None else arguments.batch_size,
        repeat=arguments.repeat,
        workers=arguments.workers,
        seed=arguments.seed,
        latency_ms=arguments.latency_ms,
        epoch_secs_max=arguments.epoch_secs,
        measured_secs_min=arguments.measured_secs,
        timeout_secs=arguments.timeout_secs,
    )


def _list_of(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in allowed]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(allowed)}")
        return names

    return parse


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _endpoint(arguments: argparse.Namespace, folder: Path, stack: ExitStack) -> str:
    if arguments.s3_endpoint is not None:
        return check_loopback(arguments.s3_endpoint)
    endpoint = stack.enter_context(serve(arguments.stoker, folder, arguments.latency_ms))
    say(f"object server at {endpoint}")
    return endpoint


def _heading(options: Options) -> str:
    kind = options.kind
    return (
        f"{kind.name}: {options.num_rows} rows of {kind} sorted by class, batches of {options.batch_size}; "
        f"MB/s is the median of {options.repeat}; S3 answers after {options.latency_ms} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
