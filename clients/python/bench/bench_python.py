"""Measures the first epoch of a fresh Python process, which is most of the life of many runs.

    python clients/python/bench/bench_python.py --stoker target/release/stoker

``cargo xtask bench python`` builds what it needs and runs it. Each measurement is a process of its own that imports
``stoker`` and ``torch``, opens the lake, and takes each tensor of ``--epochs`` epochs in a loop, with default options.
The ceiling of a path runs in the same way, in turn with Stoker, ``--repeat`` times:

- S3: GETs of ranges of 8 MiB, 16 at once, into tensors that are used again;
- local: copies from a memory map of the same rows into tensors that are used again, for shuffled rows with
  ``torch.index_select``, which has a thread for each processor.

Figures are medians, except ``peak``, which is the highest. Rates and processor time are those from the first batch on.
``first`` is the time from ``connect`` to the first batch; the row set of the query is stored before. ``peak`` is the
highest anonymous resident memory above that after the imports. ``x`` is the median of the ratios to the ceiling of the
same turn.

A path that misses a bar is measured once more at the end, for one epoch under Linux' ``perf``, if that is installed:
the second table says in which functions the threads of Stoker's process were. ``--no-profile`` leaves it out.

S3 is ``stoker bench object-server`` on the loopback interface, which waits ``--latency-ms`` before each response and
takes its share of the processors. Data: 8,192 rows of ``uint8[3,224,224]`` ("images") and 262,144 of ``int32[512]``
("tokens"), sorted by 100 classes, in batches of 256.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from first_epoch import profile
from first_epoch.data import BUCKET, DATA, prepare

from harness.child import environment
from harness.folder import data_folder
from harness.store import StoreError, serve

_BENCH = Path(__file__).parent
_MB = 1_000_000


@dataclass(frozen=True)
class _Path:
    """A way to read rows, and its bars."""

    place: str
    data: str
    is_shuffled: bool
    #: The rate of the first epoch over that of the ceiling.
    rate: float
    #: The processor time of the first epoch over that of the ceiling.
    cpu: float | None
    peak_mb: int

    @property
    def is_s3(self) -> bool:
        return self.place == "s3"

    @property
    def name(self) -> str:
        return f"{self.place}, {self.data}, {'shuffled' if self.is_shuffled else 'in order'}"


_PATHS = (
    _Path("s3", "images", False, 0.85, 1.3, 256),
    _Path("s3", "images", True, 0.70, 1.8, 512),
    _Path("s3", "tokens", False, 0.80, 2.0, 256),
    _Path("s3", "tokens", True, 0.65, 3.0, 512),
    _Path("local", "images", False, 0.85, None, 256),
    _Path("local", "images", True, 0.75, None, 512),
    _Path("local", "tokens", True, 0.75, None, 512),
)
#: The bars of the seconds to the first batch.
_FIRST_SECS = {"s3": 0.25, "local": 0.1}


def main() -> int:
    """Measures and prints one table; returns the exit status."""
    arguments = _parser().parse_args()
    paths = [path for path in _PATHS if not arguments.paths or path.name in arguments.paths]
    try:
        with (
            data_folder(arguments.dir, "stoker-python-") as folder,
            serve(arguments.stoker, folder, arguments.latency_ms) as endpoint,
        ):
            for name in sorted({path.data for path in paths}):
                rows = DATA[name].divided(arguments.divisor)
                if prepare(folder, rows):
                    print(f"wrote {rows.num_bytes // _MB} MB of {name}", file=sys.stderr)
            found = _measure(arguments, paths, folder, endpoint)
            missed = [path for path in paths if arguments.profile and _misses(path, found[path.name])]
            profiles = _profiles(arguments, missed, folder, endpoint)
    except (StoreError, subprocess.CalledProcessError) as failed:
        print(failed, file=sys.stderr)
        return 1
    print(_heading(arguments))
    print(_table(paths, found))
    if profiles:
        print(_profile_table(profiles))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({**found, "profiles": profiles}, indent=2) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    names = [path.name for path in _PATHS]
    parser = argparse.ArgumentParser(description="Measure the first epoch of fresh Python processes.")
    add = parser.add_argument
    add("--paths", nargs="*", choices=names, metavar="PATH", help=f"of {'; '.join(names)} (all)")
    add("--repeat", type=int, default=5, help="turns (default %(default)s)")
    add("--epochs", type=int, default=3, help="epochs of a process (default %(default)s)")
    add("--imports", default="stoker,torch", help="what a process imports; without torch, NumPy arrays are taken")
    add("--options", type=json.loads, default={}, help="options of the loader, as a JSON object")
    add("--divisor", type=int, default=1, help="divides the number of rows, for a quick look (default %(default)s)")
    add("--latency-ms", type=int, default=20, help="what S3 waits before it answers (default %(default)s)")
    add("--dir", type=Path, help="where the data is written, and kept for the next run; default: a temporary folder")
    add("--no-profile", dest="profile", action="store_false", help="do not profile the paths that miss a bar")
    add("--stoker", default=os.environ.get("STOKER_BIN"), help="the stoker binary; default: STOKER_BIN")
    add("--json", type=Path, help="write all figures to this file")
    return parser


def _measure(
    arguments: argparse.Namespace, paths: list[_Path], folder: Path, endpoint: str
) -> dict[str, dict[str, list[Any]]]:
    """Returns, for each path and system, the figures of the epochs of each turn."""
    found: dict[str, dict[str, list[Any]]] = {}
    variables = environment(endpoint)
    for path in paths:
        request = _request(arguments, path, folder, endpoint)
        ours = {**request, "system": "stoker", "imports": arguments.imports.split(",")}
        ceiling = {**request, "system": "store" if path.is_s3 else "map", "imports": ["torch"]}
        _child({**ours, "epochs": 1}, variables)  # stores the row set, and brings the files into the page cache
        turns = found[path.name] = {"stoker": [], "ceiling": []}
        for turn in range(arguments.repeat):
            print(f"{path.name}: turn {turn + 1} of {arguments.repeat}", file=sys.stderr)
            turns["ceiling"].append(_child(ceiling, variables))
            turns["stoker"].append(_child(ours, variables))
    touched = {
        name: [_child({"system": "touch", "imports": [], "is_huge": name == "huge"}, variables) for _ in range(3)]
        for name in ("huge", "small")
    }
    return {**found, "new memory": touched}


def _request(arguments: argparse.Namespace, path: _Path, folder: Path, endpoint: str) -> dict[str, Any]:
    """Returns what every measurement of a path asks for."""
    return {
        "data": path.data,
        "divisor": arguments.divisor,
        "is_shuffled": path.is_shuffled,
        "folder": str(folder),
        "endpoint": endpoint,
        "lake": f"s3://{BUCKET}/lake" if path.is_s3 else str(folder / BUCKET / "lake"),
        "storage_options": {"aws_endpoint": endpoint, "allow_http": "true"} if path.is_s3 else None,
        "options": arguments.options,
        "epochs": arguments.epochs,
    }


def _profiles(
    arguments: argparse.Namespace, paths: list[_Path], folder: Path, endpoint: str
) -> dict[str, list[tuple[float, str]]]:
    """Returns, for each path, the functions in which Stoker's process was in one first epoch, with their shares."""
    if not paths:
        return {}
    if not profile.is_available():
        print("no profiles: `perf` is not installed, or this user may not sample processes with it", file=sys.stderr)
        return {}
    profiles = {}
    with TemporaryDirectory(prefix="stoker-profile-") as recorded:
        file = Path(recorded) / "perf.data"
        for path in paths:
            print(f"{path.name}: profile", file=sys.stderr)
            request = {**_request(arguments, path, folder, endpoint), "epochs": 1, "profile": str(file)}
            _child({**request, "system": "stoker", "imports": arguments.imports.split(",")}, environment(endpoint))
            profiles[path.name] = profile.shares(file)
    return profiles


def _child(request: dict[str, Any], variables: dict[str, str]) -> Any:
    command = [sys.executable, "-m", "first_epoch.child", json.dumps(request)]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=variables, cwd=_BENCH, timeout=600, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _heading(arguments: argparse.Namespace) -> str:
    options = f", {json.dumps(arguments.options)}" if arguments.options else ""
    return (
        f"fresh processes that import {arguments.imports}{options}; medians of {arguments.repeat} turns;"
        f" S3 answers after {arguments.latency_ms} ms\n"
    )


def _table(paths: list[_Path], found: dict[str, dict[str, list[Any]]]) -> str:
    """Returns the table in Markdown, first epochs before later ones."""
    lines = [
        "| path | ceiling, MB/s | first epoch, MB/s | x | bar | later epochs, MB/s | x | first, s | bar | CPU, s/GB |"
        " x | bar | peak, MB | bar |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for path in paths:
        figures = _figures(found[path.name])
        cells = [
            path.name,
            f"{figures.ceiling / _MB:,.0f}",
            f"{figures.rate / _MB:,.0f}",
            f"{figures.rate_ratio:.2f}",
            _bar(path.rate, figures.rate_ratio >= path.rate),
            f"{figures.later_rate / _MB:,.0f}",
            f"{figures.later_ratio:.2f}",
            f"{figures.first_secs:.3f}",
            _bar(_FIRST_SECS[path.place], figures.first_secs <= _FIRST_SECS[path.place]),
            f"{figures.cpu_secs_per_byte * 1e9:.2f}",
            f"{figures.cpu_ratio:.2f}",
            _bar(path.cpu, path.cpu is None or figures.cpu_ratio <= path.cpu),
            f"{figures.peak_mb:.0f}",
            _bar(path.peak_mb, figures.peak_mb <= path.peak_mb),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    huge, small = (median(found["new memory"][name]) / 1e9 for name in ("huge", "small"))
    lines.append(f"\nnew memory, GB/s: {huge:.2f} in huge pages, {small:.2f} in small ones")
    return "\n".join(lines)


def _profile_table(profiles: dict[str, list[tuple[float, str]]]) -> str:
    lines = ["\n| path, first epoch | functions with at least 2 % of the samples |", "|---|---|"]
    for name, functions in profiles.items():
        told = ", ".join(f"{share:.0f} % `{function}`" for share, function in functions)
        lines.append(f"| {name} | {told or 'none'} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class _Figures:
    """The figures of a path: medians of its turns, and the highest memory."""

    ceiling: float
    rate: float
    rate_ratio: float
    later_rate: float
    later_ratio: float
    first_secs: float
    cpu_secs_per_byte: float
    cpu_ratio: float
    peak_mb: float


def _figures(turns: dict[str, list[Any]]) -> _Figures:
    ours, ceiling = turns["stoker"], turns["ceiling"]
    later = [_later(epochs) for epochs in ours]
    return _Figures(
        ceiling=median(_first(ceiling, "bytes_per_sec")),
        rate=median(_first(ours, "bytes_per_sec")),
        rate_ratio=_ratio(_first(ours, "bytes_per_sec"), _first(ceiling, "bytes_per_sec")),
        later_rate=median(later),
        later_ratio=_ratio(later, [_later(epochs) for epochs in ceiling]),
        first_secs=median(_first(ours, "first_secs")),
        cpu_secs_per_byte=median(_first(ours, "cpu_secs_per_byte")),
        cpu_ratio=_ratio(_first(ours, "cpu_secs_per_byte"), _first(ceiling, "cpu_secs_per_byte")),
        peak_mb=max(_first(ours, "peak_bytes")) / _MB,
    )


def _misses(path: _Path, turns: dict[str, list[Any]]) -> bool:
    """Returns whether a path misses one of its bars."""
    figures = _figures(turns)
    return (
        figures.rate_ratio < path.rate
        or figures.first_secs > _FIRST_SECS[path.place]
        or (path.cpu is not None and figures.cpu_ratio > path.cpu)
        or figures.peak_mb > path.peak_mb
    )


def _first(turns: list[Any], figure: str) -> list[float]:
    return [epochs[0][figure] for epochs in turns]


def _later(epochs: list[Any]) -> float:
    """Returns the median rate of the epochs after the first, or the first one's if it is the only one."""
    return float(median(epoch["bytes_per_sec"] for epoch in epochs[1:] or epochs))


def _ratio(ours: list[float], ceiling: list[float]) -> float:
    """Returns the median of the ratios within each turn."""
    return median(one / other for one, other in zip(ours, ceiling, strict=True))


def _bar(bar: float | None, is_met: bool) -> str:
    if bar is None:
        return "-"
    return f"{bar} {'met' if is_met else 'missed'}"


if __name__ == "__main__":
    sys.exit(main())
