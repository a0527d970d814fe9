"""The measurements as tables and as JSON."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from harness.plan import Line, Options
from harness.rows import IMAGES, SUBSET_PREDICATE, RowKind
from harness.task import DataPath, Order, Place, System

__all__ = ["bar", "comparisons", "tables", "to_json"]

#: A peer counts as one that mixes well if its mixing is at least this.
_MIXING_MIN = 0.95
#: The peers among which the strongest is looked for.
_ALL, _MIX_WELL = "all peers", f"peers with mixing of at least {_MIXING_MIN}"
#: The rates of first and of later epochs.
_FIRST, _LATER = "first_epoch_mb_per_sec", "mb_per_sec"
_DASH, _TIMES = "\N{EN DASH}", "\N{MULTIPLICATION SIGN}"
_COLUMNS = (
    "system",
    "workers",
    "first epoch MB/s",
    f"{_TIMES} ceiling",
    "first batch s",
    "later epochs MB/s",
    f"min{_DASH}max",
    f"{_TIMES} ceiling",
    "CPU s/GB",
    "mixing",
    "remarks",
)
_HEADER = f"| {' | '.join(_COLUMNS)} |"
_RULE = f"|---{'|--:' * (len(_COLUMNS) - 2)}|---|"
_NO_NUMBERS = f" {_DASH} |" * (len(_COLUMNS) - 2)
_COMPARED_COLUMNS = ("rows, path", "epochs", "among", "strongest peer", f"Stoker {_TIMES} it", "bar", "mixing of both")
_COMPARED_HEADER = f"| {' | '.join(_COMPARED_COLUMNS)} |"
_COMPARED_RULE = f"|{'---|' * 4}{'--:|' * 3}"


def tables(lines: Sequence[Line], absent: Sequence[System]) -> str:
    """Returns a Markdown table for each kind of rows and path, and one with the comparisons of Stoker with peers."""
    parts = []
    for (kind, path), group in groupby(lines, key=_kind_and_path):
        rows = list(group)
        ceiling = next((line for line in rows if line.system.key == "ceiling" and line.best is not None), None)
        parts += [f"\n{kind}, {path}\n", _HEADER, _RULE, *(_row(line, ceiling) for line in rows)]
        parts += [f"| {system.title} |{_NO_NUMBERS} {_how_to_install(system)} |" for system in absent]
    if compared := comparisons(lines):
        parts += ["", _COMPARED_HEADER, _COMPARED_RULE, *map(_compared_row, compared)]
    return "\n".join(parts)


def bar(kind: RowKind, path: DataPath) -> float | None:
    """Returns the bar of Stoker's rate in the first epoch over that of the strongest peer, or None if there is none.

    In sequential order all peers count, in shuffled order those that mix well. For the subset there is no bar.
    """
    if path.order is Order.SUBSET:
        return None
    if path.place is Place.S3:
        return 2.0
    if path.order is Order.SEQUENTIAL:
        return 1.2
    return 1.6 if kind == IMAGES else 2.0


def comparisons(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Returns Stoker's rate on each path divided by that of the strongest peer, and of the strongest that mixes well.

    First epochs are compared, and then later ones. Of a peer that keeps a copy, only the first epoch counts. Where
    there is a :func:`bar`, ``is_met`` tells whether Stoker meets it, which in shuffled order must mix well too.
    """
    found = []
    for (kind, path), group in groupby(lines, key=_kind_and_path):
        rows = [line for line in group if line.best is not None]
        stoker = next((line for line in rows if line.system.key == "stoker"), None)
        peers = [line for line in rows if line.system.key not in ("ceiling", "stoker")]
        if stoker is None or not peers:
            continue
        mixing = [line for line in peers if _number(line, "mixing") >= _MIXING_MIN]
        for rate in (_FIRST, _LATER):
            for among, candidates in ((_ALL, peers), (_MIX_WELL, mixing)):
                compared = [
                    _comparison(stoker, peer, rate)
                    for peer in candidates
                    if rate == _FIRST or not peer.only_first_epoch
                ]
                if compared:
                    strongest = min(compared, key=lambda one: one["ratio"])
                    judgement = _judgement(stoker, strongest, among)
                    found.append({"kind": kind, "path": path, "among": among, **strongest, **judgement})
    return found


def to_json(options: Sequence[Options], lines: Sequence[Line], absent: Sequence[System]) -> dict[str, Any]:
    """Returns all measurements with the machine, the versions and the options, as a dict for JSON.

    Args:
        options: The options for each kind of rows.
        lines: The measurements of all kinds.
        absent: The systems that are not installed.
    """
    return {
        "machine": _machine(),
        "versions": _versions({line.system.distribution for line in lines}),
        "options": {one.kind.name: {**asdict(one), "kind": one.kind.name} for one in options},
        "data": {one.kind.name: _data(one.kind) for one in options},
        "results": [_result(line) for line in lines],
        "not_installed": {system.key: _how_to_install(system) for system in absent},
        "comparisons": comparisons(lines),
    }


def _kind_and_path(line: Line) -> tuple[str, str]:
    return line.kind.name, str(line.path)


def _data(kind: RowKind) -> dict[str, Any]:
    return {"row_bytes": kind.row_bytes, "dtype": kind.dtype, "shape": kind.shape, "subset": SUBSET_PREDICATE}


def _row(line: Line, ceiling: Line | None) -> str:
    if line.best is None:
        return f"| {line.system.title} |{_NO_NUMBERS} {_remarks(line)} |"
    rates = line.values(_LATER)

    def over_ceiling(rate: str) -> str:
        return f"{_number(line, rate) / _number(ceiling, rate):.2f}" if ceiling else _DASH

    cells = [
        line.system.title,
        str(line.best),
        f"{_number(line, _FIRST):.0f}",
        over_ceiling(_FIRST),
        f"{_number(line, 'first_batch_secs'):.2f}",
        f"{_number(line, _LATER):.0f}",
        f"{min(rates):.0f}{_DASH}{max(rates):.0f}",
        over_ceiling(_LATER),
        f"{_number(line, 'cpu_secs_per_gb'):.2f}",
        f"{_number(line, 'mixing'):.2f}",
        _remarks(line),
    ]
    return f"| {' | '.join(cells)} |"


def _remarks(line: Line) -> str:
    remarks = [line.lacking, line.fault]
    if line.best is not None:
        samples = line.measured[line.best]
        remarks.append("epoch cut" if any(sample["is_cut"] for sample in samples) else None)
        remarks.append("first epoch, then from its copy" if line.only_first_epoch else None)
        remarks.append("did not end by itself" if any(sample["unclean_exit"] for sample in samples) else None)
    remarks += [f"workers {setting}: {_in_short(why)}" for setting, why in line.failed.items()]
    return "; ".join(filter(None, remarks)).replace("|", "/")


def _in_short(text: str) -> str:
    """Returns how a process ended, and the last error that it printed, from the text of a :class:`ChildError`."""
    first, *others = text.strip().splitlines()
    errors = [line for line in others if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return ": ".join([first, *(errors or others)[-1:]])


def _how_to_install(system: System) -> str:
    return f"not installed: pip install {system.distribution}"


def _number(line: Line, name: str) -> float:
    number = line.median(name)
    assert number is not None, "only lines with measurements have numbers"
    return number


def _comparison(stoker: Line, peer: Line, rate: str) -> dict[str, Any]:
    return {
        "peer": peer.system.key,
        "ratio": _number(stoker, rate) / _number(peer, rate),
        "is_first_epoch": rate == _FIRST,
        "stoker_mixing": _number(stoker, "mixing"),
        "peer_mixing": _number(peer, "mixing"),
    }


def _judgement(stoker: Line, strongest: dict[str, Any], among: str) -> dict[str, Any]:
    """Returns the bar of a comparison and whether it is met; both are None if the comparison has no bar."""
    is_sequential = stoker.path.order is Order.SEQUENTIAL
    is_judged = strongest["is_first_epoch"] and among == (_ALL if is_sequential else _MIX_WELL)
    at_least = bar(stoker.kind, stoker.path) if is_judged else None
    if at_least is None:
        return {"bar": None, "is_met": None}
    mixes = is_sequential or strongest["stoker_mixing"] >= _MIXING_MIN
    return {"bar": at_least, "is_met": mixes and strongest["ratio"] >= at_least}


def _compared_row(comparison: dict[str, Any]) -> str:
    at_least, is_met = comparison["bar"], comparison["is_met"]
    cells = [
        f"{comparison['kind']}, {comparison['path']}",
        "first" if comparison["is_first_epoch"] else "later",
        comparison["among"],
        comparison["peer"],
        f"{comparison['ratio']:.2f}",
        _DASH if at_least is None else f"{at_least:g} {'met' if is_met else 'missed'}",
        f"{comparison['stoker_mixing']:.2f}, {comparison['peer_mixing']:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def _result(line: Line) -> dict[str, Any]:
    return {
        "kind": line.kind.name,
        "path": str(line.path),
        "system": line.system.key,
        "title": line.system.title,
        "lacking": line.lacking,
        "setting": None if line.best is None else asdict(line.best),
        "mb_per_sec": line.median("mb_per_sec"),
        "first_epoch_mb_per_sec": line.median("first_epoch_mb_per_sec"),
        "first_batch_secs": line.median("first_batch_secs"),
        "cpu_secs_per_gb": line.median("cpu_secs_per_gb"),
        "mixing": line.median("mixing"),
        "fault": line.fault,
        "measured": [
            {"setting": asdict(setting), "repetitions": samples} for setting, samples in line.measured.items()
        ],
        "failed": [{"setting": asdict(setting), "why": why} for setting, why in line.failed.items()],
    }


def _machine() -> dict[str, Any]:
    models = [
        line.partition(":")[2].strip()
        for line in (Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else [])
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": models[0] if models else platform.processor(),
        "num_processors": os.cpu_count(),
        "memory_bytes": memory,
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _versions(distributions: Iterable[str | None]) -> dict[str, str | None]:
    names = sorted({"numpy", "pyarrow", "torch", *filter(None, distributions)})
    return {name: _version(name) for name in names}


def _version(distribution: str) -> str | None:
    if distribution == "stoker":  # a package on PYTHONPATH has no metadata
        import stoker

        return stoker.__version__
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
