"""Functions that the child processes of the soak share. Each process ends at the end of its standard input."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import stoker

Got = TypeVar("Got")

#: Seconds for which a process that starts retries its first request to a server or a store.
CONNECT_SECS = 90
#: Seconds for which a request is retried while the server's queue of queries is full.
QUEUE_SECS = 120


def told_to_end() -> threading.Event:
    """Returns an event that is set when the parent closes this process's standard input, or is dead."""
    over = threading.Event()

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1 << 10):
            pass
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    return over


def connected(target: str, **options: Any) -> stoker.Lake:
    """Returns a connection to a lake, once its tables can be listed.

    The client does not retry its first contact with a server, so this function does, for `CONNECT_SECS`.
    """
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
    """Returns the result of a request; retries it for `QUEUE_SECS` while the queue of queries is full.

    A server refuses a query at once if the queue is full.
    """
    deadline = time.monotonic() + QUEUE_SECS
    while True:
        try:
            return ask()
        except stoker.ResourceExhaustedError as refusal:
            print(f"{time.monotonic():.1f}: {refusal}", flush=True)
            if time.monotonic() > deadline:
                raise
            threading.Event().wait(0.5)
