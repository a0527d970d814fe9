"""What the processes of the soak have in common. Each of them ends when its standard input does."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import stoker

#: Seconds for which a process looks for a server or a store when it begins.
CONNECT_SECS = 90


def told_to_end() -> threading.Event:
    """An event that is set when the parent closes the standard input of this process, or is gone."""
    over = threading.Event()

    def wait() -> None:
        sys.stdin.buffer.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    return over


def connected(target: str, **options: Any) -> stoker.Lake:
    """A connection to a lake whose tables can be listed. The first contact fails at once, so that it is repeated."""
    deadline = time.monotonic() + CONNECT_SECS
    while True:
        try:
            lake = stoker.connect(target, **options)
            lake.tables()
        except stoker.UnavailableError:
            if time.monotonic() > deadline:
                raise
            threading.Event().wait(0.2)
        else:
            return lake
