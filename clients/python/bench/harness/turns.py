"""Pairs of measurements that take turns: a path, its ceiling or peer, and the bar of the ratio of their figures.

Figures are medians over the turns; ``x`` is the median of the ratios within each turn.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

__all__ = ["Figure", "Pair", "Turns", "Unit", "measure", "parser", "report", "timed"]


@dataclass(frozen=True)
class Figure:
    """What was measured in one turn: the figure that is compared, and processor time."""

    value: float
    cpu: float


@dataclass(frozen=True)
class Unit:
    """The units of the figures of a table, with the digits behind their points."""

    value: str
    cpu: str
    digits: int = 0


Measure = Callable[[], Figure]
#: For each pair, the figures of both sides in each turn.
Turns = dict[str, list[tuple[Figure, Figure]]]


@dataclass(frozen=True)
class Pair:
    """A path, and what it is compared with in the same turns.

    Attributes:
        name: The path.
        mine: Measures it once.
        beside: The name of the ceiling or peer.
        other: Measures that once.
        unit: The units of the figures.
        bar: The bar of the ratio, or a function that returns it after the measurements; ``None`` for no bar.
        at_least: Whether the bar is met by ratios above it.
    """

    name: str
    mine: Measure
    beside: str
    other: Measure
    unit: Unit
    bar: float | Callable[[], float] | None
    at_least: bool = True


def parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser of the arguments that all programs of pairs have."""
    found = argparse.ArgumentParser(description=description)
    add = found.add_argument
    add("--only", default="", help="measure the paths whose name has this text")
    add("--repeat", type=int, default=5, help="turns (default %(default)s)")
    add("--dir", type=Path, help="where the data is written, and kept for the next run; default: a temporary folder")
    add("--stoker", default=os.environ.get("STOKER_BIN"), help="the stoker binary; default: STOKER_BIN")
    add("--json", type=Path, help="write all figures to this file")
    return found


def measure(pairs: Iterable[Pair], repeat: int) -> Turns:
    """Measures pairs, one after the other, and returns their figures. A turn before the first one warms up."""
    found: Turns = {}
    for pair in pairs:
        turns = found[pair.name] = []
        for turn in range(-1, repeat):
            print(f"{pair.name}: turn {turn + 1} of {repeat}", file=sys.stderr)
            figures = pair.mine(), pair.other()
            if turn >= 0:
                turns.append(figures)
    return found


def report(pairs: Sequence[Pair], found: Turns, heading: str, json_file: Path | None) -> None:
    """Prints a table in Markdown for each unit, and writes all figures to a file if one is asked for."""
    print(heading)
    for unit in dict.fromkeys(pair.unit for pair in pairs):
        print(f"\n| path | beside | {unit.value} | of the other | x | bar | {unit.cpu} | of the other | x CPU |")
        print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
        for pair in pairs:
            if pair.unit == unit:
                print(_row(pair, found[pair.name]))
    if json_file is not None:
        values = {name: [[asdict(mine), asdict(its)] for mine, its in turns] for name, turns in found.items()}
        json_file.write_text(json.dumps(values, indent=2) + "\n")


def timed(work: Callable[[], float], *, per_unit: float = 1) -> Figure:
    """Runs work that returns how much it did. Returns its rate, and the processor time for each ``per_unit`` of it."""
    begun, used = time.perf_counter(), time.process_time()
    done = work()
    elapsed, used = time.perf_counter() - begun, time.process_time() - used
    return Figure(done / elapsed, used * per_unit / done)


def _row(pair: Pair, turns: Sequence[tuple[Figure, Figure]]) -> str:
    values = [median(figure.value for figure in side) for side in zip(*turns, strict=True)]
    cpu = [median(figure.cpu for figure in side) for side in zip(*turns, strict=True)]
    ratio = median(mine.value / its.value for mine, its in turns)
    cells = [
        pair.name,
        pair.beside,
        *(f"{value:,.{pair.unit.digits}f}" for value in values),
        f"{ratio:.2f}",
        _verdict(pair, ratio),
        *(f"{value:.2f}" for value in cpu),
        f"{median(mine.cpu / its.cpu for mine, its in turns):.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def _verdict(pair: Pair, ratio: float) -> str:
    bar = pair.bar() if callable(pair.bar) else pair.bar
    if bar is None:
        return "-"
    is_met = ratio >= bar if pair.at_least else ratio <= bar
    return f"{bar:.3g} {'met' if is_met else 'missed'}"
