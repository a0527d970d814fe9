"""Measures streams of rows of different lengths, such as tokens, beside rows of one length, and packs beside both.

    python clients/python/bench/bench_tokens.py --stoker target/release/stoker

``cargo xtask bench tokens`` builds what it needs and runs it. Each path streams all rows of a local table in a loop
of this process, first in order and then shuffled; the path that it is compared with streams the same tokens in turn
with it, ``--repeat`` times. Figures are medians: MB of tokens per second, and seconds of processor time per GB. ``x``
is the median of the ratios of the rates of the same turn.

- Rows of different lengths (lists, mean about 512 tokens, lengths as those of texts), beside rows of 512 tokens:
  bar 0.8.
- Packs of 8,192 tokens, lengths from a column, beside the rows that they are made of: bar 0.9. ``filled`` is the
  share of the packs that tokens fill (bar 0.99).
- Rows that come as often as a weight says (1 on average), beside rows without weights.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import stoker
from harness.folder import data_folder

_MEAN = 512
_LENGTH = 8_192
_ROWS_AT_ONCE = 8_192


@dataclass(frozen=True)
class _Figure:
    mb_per_sec: float
    cpu_secs_per_gb: float


@dataclass(frozen=True)
class _Side:
    """A stream of tokens."""

    table: str
    columns: str
    options: dict[str, Any]
    batch_rows: int


@dataclass(frozen=True)
class _Path:
    """Two streams of the same tokens, and the bar of the ratio of their rates."""

    name: str
    mine: _Side
    beside: str
    other: _Side
    bar: float


def main() -> int:
    """Measures and prints one table; returns the exit status."""
    arguments = _parser().parse_args()
    with data_folder(arguments.dir, "stoker-tokens-") as folder:
        lake = stoker.connect(str(folder / "lake"))
        lengths = _write(lake, arguments.mib)
        paths = [path for path in _paths() if arguments.only in path.name]
        found = {path.name: _measure(lake, path, arguments) for path in paths}
        packs = lake.sql("SELECT tokens, n FROM ragged").stream(batch_size=64, pack=_pack())
        filled = int(lengths.sum()) / (packs.num_rows * _LENGTH)
    print(f"medians of {arguments.repeat} turns; {os.cpu_count()} processors; packs are filled to {filled:.4f}")
    print("| path | beside | MB/s | of the other | x | bar | CPU s/GB | of the other |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for path in paths:
        turns = found[path.name]
        rate = median(mine.mb_per_sec / its.mb_per_sec for mine, its in turns)
        figures = [median(side.mb_per_sec for side in sides) for sides in zip(*turns, strict=True)]
        cpu = [median(side.cpu_secs_per_gb for side in sides) for sides in zip(*turns, strict=True)]
        print(
            f"| {path.name} | {path.beside} | {figures[0]:,.0f} | {figures[1]:,.0f} | {rate:.2f} | {path.bar} | "
            f"{cpu[0]:.2f} | {cpu[1]:.2f} |"
        )
    if arguments.json is not None:
        values = {name: [[vars(mine), vars(its)] for mine, its in turns] for name, turns in found.items()}
        arguments.json.write_text(json.dumps({"filled": filled, "paths": values}, indent=2) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure streams of rows of different lengths, and packs.")
    add = parser.add_argument
    add("--only", default="", help="measure the paths whose name has this text")
    add("--repeat", type=int, default=5, help="turns (default %(default)s)")
    add("--mib", type=int, default=512, help="MiB of tokens in each table (default %(default)s)")
    add("--dir", type=Path, help="where the data is written, and kept for the next run; default: a temporary folder")
    add("--stoker", help="the stoker binary; it is not used")
    add("--json", type=Path, help="write all figures to this file")
    return parser


def _pack() -> stoker.Pack:
    return stoker.Pack("tokens", length=_LENGTH, lengths="n")


def _paths() -> Iterator[_Path]:
    for name, shuffle in (("in order", False), ("shuffled", "block")):
        ragged = _Side("ragged", "tokens", {"shuffle": shuffle}, 256)
        fixed = _Side("fixed", "tokens", {"shuffle": shuffle}, 256)
        yield _Path(f"lists, {name}", ragged, "rows of 512 tokens", fixed, 0.8)
        packed = _Side("ragged", "tokens, n", {"shuffle": shuffle, "pack": _pack()}, 256 * _MEAN // _LENGTH)
        yield _Path(f"packs, {name}", packed, "the same lists", ragged, 0.9)
        weighted = _Side("fixed", "tokens, w", {"shuffle": shuffle, "weight": "w"}, 256)
        yield _Path(f"weights, {name}", weighted, "rows without weights", fixed, 0.8)


def _measure(lake: stoker.Lake, path: _Path, arguments: argparse.Namespace) -> list[tuple[_Figure, _Figure]]:
    turns = []
    for turn in range(-1, arguments.repeat):  # the first turn warms up
        print(f"{path.name}: turn {turn + 1} of {arguments.repeat}", file=sys.stderr)
        mine, its = (_timed(lake, side, arguments.mib) for side in (path.mine, path.other))
        if turn >= 0:
            turns.append((mine, its))
    return turns


def _timed(lake: stoker.Lake, side: _Side, mib: int) -> _Figure:
    """Measures the first epoch of a new stream, its plan included. Another open stream would read ahead beside it."""
    query = lake.sql(f"SELECT {side.columns} FROM {side.table}")
    begun, used = time.perf_counter(), time.process_time()
    with query.stream(batch_size=side.batch_rows, evaluation=True, **side.options) as stream:
        rows = sum(len(batch["tokens"]) for batch in stream)
        elapsed, used = time.perf_counter() - begun, time.process_time() - used
    # All tables have about as many bytes of tokens. A weighted epoch has those of its rows.
    num_bytes = rows * _MEAN * 4 if side.table == "fixed" else mib << 20
    return _Figure(num_bytes / elapsed / 1e6, used / (num_bytes / 1e9))


def _write(lake: stoker.Lake, mib: int) -> np.ndarray[Any, Any]:
    """Writes both tables unless they are there; returns the lengths of the lists."""
    num_rows = (mib << 20) // (_MEAN * 4)
    random = np.random.default_rng(5)
    lengths = np.exp(random.normal(0, 1, num_rows))
    lengths = np.maximum(1, np.rint(lengths * (_MEAN / lengths.mean()))).astype(np.int64)
    try:
        if "ragged" in lake.tables():
            return lengths
    except stoker.NotFoundError:
        pass  # the first run: there is no lake yet
    for name in ("fixed", "ragged"):
        table = None
        for start in range(0, num_rows, _ROWS_AT_ONCE):
            print(f"writing {name}: {start:,} of {num_rows:,} rows", file=sys.stderr)
            some = lengths[start : start + _ROWS_AT_ONCE]
            if name == "fixed":
                tokens = random.integers(0, 50_000, (len(some), _MEAN), dtype=np.int32)
                columns: Any = {"tokens": tokens, "w": (0.5 + np.arange(len(some)) % 2).astype(np.float32)}
            else:
                values = pa.array(random.integers(0, 50_000, int(some.sum()), dtype=np.int32))
                offsets = pa.array(np.concatenate([[0], np.cumsum(some)]).astype(np.int32))
                columns = pa.table({"tokens": pa.ListArray.from_arrays(offsets, values), "n": pa.array(some)})
            table = lake.create_table(name, columns) if table is None else table.append(columns) or lake.table(name)
    return lengths


if __name__ == "__main__":
    sys.exit(main())
