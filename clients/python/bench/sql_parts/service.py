"""The smallest query, in this process and through ``stoker serve``."""

from __future__ import annotations

from functools import partial

import stoker
from sql_parts.context import Context, Measure
from sql_parts.line import Line, median_secs
from sql_parts.servers import serving

__all__ = ["smallest"]

_RUNS = 100


def smallest() -> list[Measure]:
    """``SELECT 1`` in both places."""
    return [Measure("SELECT 1, in process", _in_process), Measure("SELECT 1, served", _served)]


def _in_process(context: Context) -> list[Line]:
    return [Line("SELECT 1, in process", 0.5, _turns(context, context.lake), judged="value")]


def _served(context: Context) -> list[Line]:
    with serving(context) as address:
        figures = _turns(context, stoker.connect(address))
    return [Line("SELECT 1, served", 2.0, figures, judged="value", remark="by Stoker's client, over TCP")]


def _turns(context: Context, lake: stoker.Lake) -> list[float]:
    """Returns the median milliseconds of each turn, after one that does not count."""
    calls = [partial(_select, lake)] * _RUNS
    return [median_secs([*calls]) * 1e3 for _ in range(context.repeat + 1)][1:]


def _select(lake: stoker.Lake) -> None:
    if lake.sql("SELECT 1 AS one").to_arrow()["one"].to_pylist() != [1]:
        raise RuntimeError("SELECT 1 did not give 1")
