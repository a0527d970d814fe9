"""The smallest query, in this process and through ``stoker serve``."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import stoker
from sql_parts.context import Context, Measure
from sql_parts.line import Line, SkippedError, median_secs

__all__ = ["smallest"]

_RUNS = 100


def smallest() -> list[Measure]:
    """``SELECT 1`` in both places."""
    return [Measure("SELECT 1, in process", _in_process), Measure("SELECT 1, served", _served)]


def _in_process(context: Context) -> list[Line]:
    return [Line("SELECT 1, in process", 0.5, _turns(context, context.lake), judged="value")]


def _served(context: Context) -> list[Line]:
    if context.binary is None or not Path(context.binary).exists():
        raise SkippedError(f"skipped: the stoker binary is needed; found {context.binary}; give --stoker")
    context.folder.joinpath("lake").mkdir(exist_ok=True)
    with _serving(context.binary, context.folder / "lake") as address:
        figures = _turns(context, stoker.connect(address))
    return [Line("SELECT 1, served", 2.0, figures, judged="value", remark="by Stoker's client, over TCP")]


def _turns(context: Context, lake: stoker.Lake) -> list[float]:
    """Returns the median milliseconds of each turn, after one that does not count."""
    calls = [partial(_select, lake)] * _RUNS
    return [median_secs([*calls]) * 1e3 for _ in range(context.repeat + 1)][1:]


def _select(lake: stoker.Lake) -> None:
    if lake.sql("SELECT 1 AS one").to_arrow()["one"].to_pylist() != [1]:
        raise RuntimeError("SELECT 1 did not give 1")


@contextmanager
def _serving(binary: str, lake: Path) -> Iterator[str]:
    """Serves the lake on the loopback interface, with default options, and gives the address."""
    command = [binary, "serve", "--lake", str(lake), "--listen", "127.0.0.1:0"]
    settings = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=settings
    )
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if found := re.search(r"listening on (grpc://\S+)", line):
                yield found[1]
                return
        raise RuntimeError(f"`{' '.join(command)}` did not listen: {''.join(lines).strip()}")
    finally:
        process.terminate()
        process.stdout.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
