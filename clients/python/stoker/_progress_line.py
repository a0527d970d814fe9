"""A line of progress on a terminal, or below a cell of a notebook."""

from __future__ import annotations

import sys
from typing import TextIO

__all__ = ["ProgressLine", "progress_line"]


class ProgressLine:
    """A line that is written again and again, in its place."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._width = 0

    def show(self, text: str) -> None:
        """Writes the line in place of the one before."""
        self._out.write(f"\r{text.ljust(self._width)}")
        self._out.flush()
        self._width = len(text)

    def clear(self) -> None:
        """Removes the line."""
        if self._width:
            self._out.write(f"\r{' ' * self._width}\r")
            self._out.flush()
            self._width = 0


def progress_line(wanted: bool | None) -> ProgressLine | None:
    """Returns a line on standard error; with ``None``, only where somebody watches: in a terminal or a notebook."""
    shown = _is_watched() if wanted is None else wanted
    return ProgressLine(sys.stderr) if shown else None


def _is_watched() -> bool:
    if sys.stderr is not None and sys.stderr.isatty():
        return True
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    # The shell of a kernel has notebooks; that of a terminal was found above.
    return running is not None and type(running).__name__ == "ZMQInteractiveShell"
