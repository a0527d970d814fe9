"""Lines of the table: figures of both sides, and the bar."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

__all__ = ["Line", "Row", "SkippedError", "alternate", "median_secs", "secs", "table"]

#: A cell without a figure.
_DASH = "-"
#: What a cell says about a bar, by whether it is met.
_VERDICTS = {True: "met", False: "missed", None: "not judged"}
#: A figure of one turn.
_Figure = Callable[[], float]


class SkippedError(Exception):
    """What a measurement needs is not here; the message says what."""


@dataclass
class Line:
    """The figures of one line of the table.

    Attributes:
        what: What was measured.
        bar: The bar of what is judged.
        ours: The figures of Stoker, one of each turn.
        theirs: The figures of the other side, in the same turns; ``None`` if there is no other side.
        other: The name of the other side.
        unit: The unit of the figures.
        judged: Whether the bar is one of the median ratio (ours over theirs) or of our median figure.
        at_least: Whether the bar is met by what is above it.
        remark: How the other side was set, and the like.
    """

    what: str
    bar: float
    ours: list[float] = field(default_factory=list)
    theirs: list[float] | None = None
    other: str = "pylance"
    unit: str = "ms"
    judged: Literal["ratio", "value"] = "ratio"
    at_least: bool = False
    remark: str = ""

    @property
    def ratio(self) -> float | None:
        """The median of the ratios within each turn; none without figures of the other side above zero."""
        if self.theirs is None or min(self.theirs) <= 0:
            return None
        return median(one / other for one, other in zip(self.ours, self.theirs, strict=True))

    @property
    def is_met(self) -> bool | None:
        """Whether the bar is met; ``None`` if it is one of the ratio, and there is no other side."""
        if self.judged == "ratio" and self.theirs is None:
            return None
        value = self.ratio if self.judged == "ratio" else median(self.ours)
        if value is None:
            return False
        return value >= self.bar if self.at_least else value <= self.bar

    def row(self) -> str:
        """The line as a row of a table in Markdown."""
        ratio = self.ratio
        bar = f"{'≥' if self.at_least else '≤'} {self.bar:g}"
        if self.judged == "value" and self.unit:
            bar += f" {self.unit}"
        cells = [
            self.what,
            _number(self.ours),
            _DASH if self.theirs is None else _number(self.theirs),
            self.unit or _DASH,
            _DASH if self.theirs is None else self.other,
            _DASH if ratio is None else f"{ratio:.2f}",
            f"{bar} {_VERDICTS[self.is_met]}",
            self.remark.replace("|", "/"),
        ]
        return f"| {' | '.join(cells)} |"

    def to_json(self) -> dict[str, Any]:
        """All figures, as a dict for JSON."""
        return {**asdict(self), "ratio": self.ratio, "is_met": self.is_met}


#: A line, or what has no figures and why.
Row = Line | tuple[str, str]


def table(lines: list[Row]) -> str:
    """Returns the lines as a table in Markdown."""
    head = [
        "| what | Stoker | the other | unit | the other is | ratio | bar | remarks |",
        "|---|--:|--:|---|---|--:|--:|---|",
    ]
    rows = []
    for line in lines:
        if isinstance(line, Line):
            rows.append(line.row())
        else:
            what, why = line
            cells = [what, *[_DASH] * 6, " ".join(why.split()).replace("|", "/")]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([*head, *rows])


def alternate(
    repeat: int, ours: _Figure, theirs: _Figure, *, warm_up: bool = True, after: Callable[[], None] | None = None
) -> tuple[list[float], list[float]]:
    """Returns the figures of both sides, which take turns; the side that begins changes with each turn.

    Args:
        repeat: The number of turns.
        ours: Measures Stoker once.
        theirs: Measures the other side once.
        warm_up: Whether each side runs once before the first turn.
        after: What is done after each turn, outside of both figures.
    """
    if warm_up:
        ours()
        theirs()
    found: tuple[list[float], list[float]] = ([], [])
    for turn in range(repeat):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            found[side].append((ours, theirs)[side]())
        if after is not None:
            after()
    return found


def secs(call: Callable[[], object]) -> float:
    """Returns the seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def median_secs(calls: list[Callable[[], object]]) -> float:
    """Returns the median of the seconds of calls that run one after the other."""
    return median(secs(call) for call in calls)


def _number(figures: list[float]) -> str:
    value = median(figures)
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"
