"""Measures streams of rows of different lengths, such as tokens, beside rows of one length, and packs beside both.

    python clients/python/bench/bench_tokens.py

``cargo xtask bench tokens`` builds what it needs and runs it. Each path streams all rows of a local table in a loop
of this process, first in order and then shuffled; the path that it is compared with streams the same tokens in turn
with it, ``--repeat`` times. Figures are medians: MB of tokens per second, and seconds of processor time per GB. ``x``
is the median of the ratios within each turn.

- Rows of different lengths (lists as they lie in memory, mean about 512 tokens, lengths as those of texts), beside
  rows of 512 tokens: bar 0.8.
- Packs of 8,192 tokens, lengths from a column, beside the rows that they are made of: bar 0.9. ``filled`` is the
  share of the packs that tokens fill (bar 0.99).
- Rows that come as often as a weight says (1 on average), beside rows without weights.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.folder import data_folder
from harness.token_lists import MEAN, token_lengths, write_tokens
from harness.turns import Figure, Pair, Unit, measure, parser, report, timed

if TYPE_CHECKING:
    import stoker

_LENGTH = 8_192
_FILLED = 0.99
_UNIT = Unit("MB/s", "CPU s/GB")


@dataclass(frozen=True)
class _Side:
    """A stream of tokens."""

    table: str
    columns: str
    options: dict[str, Any]
    batch_rows: int


def main() -> int:
    """Measures and prints one table; returns the exit status."""
    arguments = _parser().parse_args()
    import stoker

    with data_folder(arguments.dir, "stoker-tokens-") as folder:
        lake = stoker.connect(str(folder / "lake"))
        write_tokens(lake, arguments.mib)
        pairs = [pair for pair in _pairs(lake, arguments.mib) if arguments.only in pair.name]
        found = measure(pairs, arguments.repeat)
        packs = lake.sql("SELECT tokens, n FROM ragged").stream(batch_size=64, pack=_pack())
        filled = int(token_lengths(arguments.mib).sum()) / (packs.num_rows * _LENGTH)
    verdict = "met" if filled >= _FILLED else "missed"
    heading = (
        f"medians of {arguments.repeat} turns; {os.cpu_count()} processors; "
        f"packs are filled to {filled:.4f} (bar {_FILLED} {verdict})"
    )
    report(pairs, found, heading, arguments.json)
    return 0


def _parser() -> argparse.ArgumentParser:
    found = parser("Measure streams of rows of different lengths, and packs.")
    found.add_argument("--mib", type=int, default=512, help="MiB of tokens in each table (default %(default)s)")
    return found


def _pack() -> stoker.Pack:
    import stoker

    return stoker.Pack("tokens", length=_LENGTH, lengths="n")


def _pairs(lake: stoker.Lake, mib: int) -> Iterator[Pair]:
    def pair(name: str, mine: _Side, beside: str, other: _Side, bar: float) -> Pair:
        return Pair(name, lambda: _epoch(lake, mine, mib), beside, lambda: _epoch(lake, other, mib), _UNIT, bar)

    for name, shuffle in (("in order", False), ("shuffled", "block")):
        ragged = _Side("ragged", "tokens", {"shuffle": shuffle}, 256)
        fixed = _Side("fixed", "tokens", {"shuffle": shuffle}, 256)
        yield pair(f"lists, {name}", ragged, f"rows of {MEAN} tokens", fixed, 0.8)
        packed = _Side("ragged", "tokens, n", {"shuffle": shuffle, "pack": _pack()}, 256 * MEAN // _LENGTH)
        yield pair(f"packs, {name}", packed, "the same lists", ragged, 0.9)
        weighted = _Side("fixed", "tokens, w", {"shuffle": shuffle, "weight": "w"}, 256)
        yield pair(f"weights, {name}", weighted, "rows without weights", fixed, 0.8)


def _epoch(lake: stoker.Lake, side: _Side, mib: int) -> Figure:
    """Measures the first epoch of a new stream, its plan included. Another open stream would read ahead beside it."""
    query = lake.sql(f"SELECT {side.columns} FROM {side.table}")

    def megabytes() -> float:
        with query.stream(batch_size=side.batch_rows, evaluation=True, **side.options) as stream:
            rows = sum(_num_rows(batch, side) for batch in stream)
        # All tables have about as many bytes of tokens. A weighted epoch has those of its rows.
        return (rows * MEAN * 4 if side.table == "fixed" else mib << 20) / 1e6

    return timed(megabytes, per_unit=1e3)


def _num_rows(batch: stoker.Batch, side: _Side) -> int:
    """Makes the array of the tokens, and returns the number of rows. Lists are taken as they lie in memory."""
    if side.table == "ragged" and "pack" not in side.options:
        return len(batch.jagged("tokens").offsets) - 1
    return len(batch["tokens"])


if __name__ == "__main__":
    sys.exit(main())
