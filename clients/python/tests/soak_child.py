"""What the processes of the soak have in common. Each of them ends when its standard input does."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import stoker

Got = TypeVar("Got")

#: Seconds for which a process looks for a server or a store when it begins.
CONNECT_SECS = 90
#: Seconds for which a request that finds the queue of queries full is repeated.
QUEUE_SECS = 120


def told_to_end() -> threading.Event:
    """An event that is set when the parent closes the standard input of this process, or is gone."""
    over = threading.Event()

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1 << 10):
            pass
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


def admitted(ask: Callable[[], Got]) -> Got:
    """What a request returns that is repeated while others fill the queue of queries, which is refused at once."""
    deadline = time.monotonic() + QUEUE_SECS
    while True:
        try:
            return ask()
        except stoker.ResourceExhaustedError as refusal:
            print(f"{time.monotonic():.1f}: {refusal}", flush=True)
            if time.monotonic() > deadline:
                raise
            threading.Event().wait(0.5)
