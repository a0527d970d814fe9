"""Profiles this process with Linux' ``perf``, and reads what ``perf`` recorded."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["is_available", "profiled", "shares"]

#: Samples per second and thread. It is no divisor of a round number, so that samples do not fall into step with timers.
_FREQUENCY = 997
#: The smallest share of the samples that is told, in percent.
_SHARE_MIN = 2.0


def is_available() -> bool:
    """Returns whether ``perf`` is installed and may sample this user's processes, in the kernel, too."""
    if shutil.which("perf") is None:
        return False
    probe = ["perf", "stat", "-e", "cpu-clock", "--", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@contextmanager
def profiled(file: Path) -> Iterator[None]:
    """Records samples of all threads of this process while the block runs."""
    control, acknowledged = os.pipe(), os.pipe()
    command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(_FREQUENCY), "-p", str(os.getpid())]
    command += ["-o", str(file), "-D", "-1", f"--control=fd:{control[0]},{acknowledged[1]}"]
    recorder = subprocess.Popen(command, pass_fds=(control[0], acknowledged[1]), stdout=subprocess.DEVNULL)
    os.close(control[0])
    os.close(acknowledged[1])
    os.write(control[1], b"enable\n")
    # An empty answer means that `perf` has ended.
    if not os.read(acknowledged[0], 16):
        raise RuntimeError(f"perf cannot sample this process; it ended with status {recorder.wait()}")
    try:
        yield
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.wait()
        os.close(control[1])
        os.close(acknowledged[0])


def shares(file: Path) -> list[tuple[float, str]]:
    """Returns the functions with the most samples, each with its share in percent."""
    command = ["perf", "report", "-i", str(file), "--stdio", "--no-children", "-F", "overhead,sym", "-g", "none"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s*([0-9.]+)%\s+\[([.k])\]\s+(.+?)\s*$", printed, re.MULTILINE)
    named = [(float(share), f"{_short(name)}{' (kernel)' if kind == 'k' else ''}") for share, kind, name in found]
    return [(share, name) for share, name in named if share >= _SHARE_MIN]


def _short(name: str) -> str:
    """Returns the last two parts of the path of a Rust function, without generic arguments and hashes."""
    name = re.sub(r"::h[0-9a-f]{16}$", "", name)
    while name != (bare := re.sub(r"<[^<>]*>", "", name)):
        name = bare
    parts = [part for part in name.split("::") if part and part != "{{closure}}" and part != "_"]
    return "::".join(parts[-2:]) or name
