"""Chooses the measurements, makes them, and collects their results."""

from __future__ import annotations

import importlib.util
import json
import shutil
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from harness.child import ChildError, environment, run_module
from harness.progress import Progress
from harness.rows import RowKind
from harness.task import DataPath, Place, Setting, System, Task
from peers import SYSTEMS

__all__ = ["Bench", "Line", "Options", "is_installed"]


@dataclass(frozen=True)
class Options:
    """The options of the command line, for one kind of rows."""

    kind: RowKind
    num_rows: int
    batch_size: int
    repeat: int
    workers: tuple[int, ...]
    seed: int
    latency_ms: int
    epoch_secs_max: float
    measured_secs_min: float
    timeout_secs: float


@dataclass
class Line:
    """The measurements of a system on a path over one kind of rows, by setting."""

    kind: RowKind
    path: DataPath
    system: System
    #: The reason why there are no measurements, or None.
    lacking: str | None = None
    measured: dict[Setting, list[dict[str, Any]]] = field(default_factory=dict)
    failed: dict[Setting, str] = field(default_factory=dict)

    @property
    def only_first_epoch(self) -> bool:
        """Whether only the first epoch counts, because later epochs would read a copy that the system keeps."""
        return self.system.keeps_copy and self.path.place is Place.S3

    @property
    def best(self) -> Setting | None:
        """The setting with the highest rate in its first measurement. Settings that gave the right rows come first."""
        ranked = {
            setting: (samples[0]["fault"] is None, samples[0]["mb_per_sec"])
            for setting, samples in self.measured.items()
        }
        return max(ranked, key=lambda setting: ranked[setting], default=None)

    def median(self, name: str) -> float | None:
        """Returns the median of a number over the repetitions of the best setting."""
        values = self.values(name)
        return statistics.median(values) if values else None

    def values(self, name: str) -> list[float]:
        """Returns a number for each repetition of the best setting."""
        return [] if self.best is None else [sample[name] for sample in self.measured[self.best]]

    @property
    def fault(self) -> str | None:
        """What was wrong with the rows in the first faulty repetition of the best setting, or None."""
        faults = [] if self.best is None else [sample["fault"] for sample in self.measured[self.best]]
        return next(filter(None, faults), None)


def is_installed(system: System) -> bool:
    """Returns whether the libraries of a system can be found."""
    return all(importlib.util.find_spec(module.partition(".")[0]) for module in system.modules)


def say(text: str) -> None:
    """Prints a message about the progress to standard error."""
    print(text, file=sys.stderr, flush=True)


class Bench:
    """The data of one kind of rows in a folder, and the measurements over this data."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.options = options
        #: A line for each system and path, with what was measured so far.
        self.lines: list[Line] = []
        self.root = folder / f"stoker-peers-{options.kind.name}-{options.num_rows}"
        self._scratch = folder / "scratch"
        self._progress = Progress(0)

    def prepare(self, systems: Sequence[System]) -> dict[str, str]:
        """Writes the formats that do not exist yet. Returns the reason for each format that could not be written."""
        self.root.mkdir(parents=True, exist_ok=True)
        problems = {}
        writers = {system.data_format: system for system in [SYSTEMS["ceiling"], *systems] if is_installed(system)}
        for data_format, system in writers.items():
            try:
                self._write(data_format, system)
            except ChildError as failed:
                if data_format == "flat":
                    raise
                problems[data_format] = f"its data could not be written: {failed}"
                say(f"{system.title}: {problems[data_format]}")
        return problems

    def _write(self, data_format: str, system: System) -> None:
        target, stamp = self.root / data_format, self.root / f"{data_format}.done"
        if stamp.exists():
            return
        kind, num_rows = self.options.kind, self.options.num_rows
        say(f"writing {num_rows} rows of {kind.name} as {data_format}")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        arguments = [system.key, str(self.root), kind.name, str(num_rows)]
        run_module("harness.prepare", arguments, environment(None), self.options.timeout_secs)
        stamp.touch()

    def run(self, paths: Sequence[DataPath], systems: Sequence[System], endpoint: str | None) -> None:
        """Makes all measurements: each setting once, then the best setting of each system and path in turn."""
        problems = self.prepare(systems)
        self.lines = [
            Line(self.options.kind, path, system, system.lacking(path) or problems.get(system.data_format))
            for path in paths
            for system in systems
            if is_installed(system)
        ]
        measured = [line for line in self.lines if line.lacking is None]
        trials = [
            (line, setting) for line in measured for setting in line.system.settings(line.path, self.options.workers)
        ]
        repetitions = range(2, self.options.repeat + 1)
        num_repeated = len(repetitions) * len(measured)
        num_all = len(trials) + num_repeated
        kind = self.options.kind.name
        say(f"{kind}: {num_all} measurements, {len(trials)} of all settings, then {num_repeated} of the best")
        self._progress = Progress(num_all)
        for line, setting in trials:
            self._measure(line, setting, endpoint, 1)
        for repetition in repetitions:
            for line in measured:
                if line.best is None:
                    self._progress.leave_out()
                else:
                    self._measure(line, line.best, endpoint, repetition)

    def _measure(self, line: Line, setting: Setting, endpoint: str | None, repetition: int) -> None:
        begin = perf_counter()
        what = f"{line.kind.name} {line.path} {line.system.key} (workers {setting}), repetition {repetition}"
        try:
            sample = self._sample(line, setting, endpoint)
        except ChildError as failed:
            line.failed[setting] = str(failed)
            say(f"[{self._progress.done()}] {what}: {failed}")
            return
        line.measured.setdefault(setting, []).append(sample)
        fault = f", {sample['fault']}" if sample["fault"] else ""
        took = f"{perf_counter() - begin:.1f} s"
        say(f"[{self._progress.done()}] {what}: {sample['mb_per_sec']:.0f} MB/s{fault} ({took})")

    def _sample(self, line: Line, setting: Setting, endpoint: str | None) -> dict[str, Any]:
        shutil.rmtree(self._scratch, ignore_errors=True)
        cache = self._scratch / "cache"
        cache.mkdir(parents=True)
        options = self.options
        endpoint = endpoint if line.path.place is Place.S3 else None
        task = Task(
            system=line.system.key,
            path=str(line.path),
            setting=setting,
            root=str(self.root),
            kind=options.kind,
            num_rows=options.num_rows,
            batch_size=options.batch_size,
            seed=options.seed,
            scratch=str(cache),
            endpoint=endpoint,
            epoch_secs_max=options.epoch_secs_max,
            measured_secs_min=options.measured_secs_min,
        )
        task_file, result_file = self._scratch / "task.json", self._scratch / "result.json"
        task_file.write_text(task.dump())
        unclean = None
        try:
            arguments = [str(task_file), str(result_file)]
            run_module("harness.measure", arguments, environment(endpoint), options.timeout_secs)
        except ChildError as failed:
            if not result_file.exists():
                raise
            unclean = str(failed)
        finally:
            result = result_file.read_text() if result_file.exists() else ""
            shutil.rmtree(self._scratch, ignore_errors=True)
        return {**json.loads(result), "unclean_exit": unclean}
