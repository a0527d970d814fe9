"""The ``stoker`` command of an installed package."""

from __future__ import annotations

import signal
import sys

from stoker import _native

__all__ = ["main"]


def main() -> int:
    """Runs the command with the arguments of this process, and returns its exit status.

    The native module holds the engine and the command, so that the package needs no second copy of the engine.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the command, or stops its server, as in the binary
    return _native.main(sys.argv)
