"""The anonymous resident memory of this process."""

from __future__ import annotations

import threading
import time
from pathlib import Path

__all__ = ["Watch"]

#: The seconds between two looks at the resident memory.
_WATCH_SECS = 0.005


class Watch:
    """The highest anonymous resident memory above that at the start."""

    def __init__(self) -> None:
        self._base = self._highest = _resident_bytes()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            self._highest = max(self._highest, _resident_bytes())
            time.sleep(_WATCH_SECS)

    def peak(self) -> int:
        """Returns the bytes above those at the start."""
        return self._highest - self._base


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("the system does not tell the anonymous memory of a process")
