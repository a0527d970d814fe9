"""The ``stoker`` command of an installed package."""

from __future__ import annotations

import signal
import sys

from stoker import _native
from stoker._errors import InvalidRequestError

__all__ = ["main"]


def main() -> int:
    """Runs the command with the arguments of this process, and returns its exit status.

    The native module of `stoker-engine` holds both the engine and the command, so that there is one copy of the engine.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the command, or stops its server, as in the binary
    try:
        return _native.main(sys.argv)
    except InvalidRequestError as no_engine:
        print(f"error: {no_engine}", file=sys.stderr)
        return 1
