"""The processor time of this process and all its descendants."""

from __future__ import annotations

import os
import resource
from collections import defaultdict
from pathlib import Path

__all__ = ["tree_cpu_secs"]


def tree_cpu_secs() -> float:
    """Returns the seconds of processor time that this process and all its descendants have used.

    It reads ``/proc``, where the time of an ended process is added to the parent that waited for it. Without ``/proc``,
    a descendant counts only once it has ended.
    """
    if not Path("/proc/self/stat").exists():
        used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in used)
    ticks: dict[int, int] = {}
    children = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(entry)):
            parent, ticks[int(entry.name)] = stat
            children[parent].append(int(entry.name))
    total, queue = 0, [os.getpid()]
    while queue:
        process = queue.pop()
        total += ticks.get(process, 0)
        queue += children[process]
    return total / os.sysconf("SC_CLK_TCK")


def _stat(process: Path) -> tuple[int, int] | None:
    """Returns the parent of a process, and the ticks that the process and its ended children have used.

    The fields are described in proc_pid_stat(5). Returns None if the process has ended.
    """
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # the process has ended
        return None
    return int(fields[1]), sum(int(field) for field in fields[11:15])
