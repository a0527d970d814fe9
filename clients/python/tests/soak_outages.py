"""Outages of the soak's store, and the longest wait of a stream outside of all outages."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from fault_proxy import Faults, Head, S3Proxy, reset

#: The kinds of outages. `503` and `500`: the store answers with this status; with 500, it executes half of the writes
#: nevertheless. `refused`: it resets connections. `hung`: it answers nothing; at the end of the outage it serves half
#: of the waiting requests and resets the connections of the others.
KINDS = ["503", "500", "refused", "hung"]
#: Seconds after the end of an outage within which streams must be running again.
RECOVERY_SECS = 10.0


class Nowhere:
    """A writer that discards a response."""

    def write(self, data: bytes) -> None:
        """Discards the bytes."""

    async def drain(self) -> None:
        """Returns at once."""


class OutageProxy(S3Proxy):
    """A proxy of an S3 server that simulates outages of the server."""

    def __init__(self, upstream_port: int, seed: int) -> None:
        self._kind: str | None = None
        self._is_back = asyncio.Event()
        super().__init__(upstream_port, Faults(seed, {}))

    def begin(self, kind: str) -> None:
        """Begins an outage. Must be followed by `end`."""
        self._loop.call_soon_threadsafe(self._is_back.clear)
        self._kind = kind

    def end(self) -> None:
        """Ends the outage."""
        self._kind = None
        self._loop.call_soon_threadsafe(self._is_back.set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._kind == "refused":
            self.faults.count("refused")
            return reset(writer)
        while (request := await Head.read(reader)) is not None:
            if (kind := self._kind) is not None:
                self.faults.count(kind)
            if kind == "refused":
                return reset(writer)
            if kind == "hung":
                await self._is_back.wait()
                if self.faults.random.random() < 0.5:
                    return reset(writer)
            if kind in ("503", "500"):
                await self._fail(request, reader, writer, int(kind))
            elif not await self._forward(request, reader, writer, None):
                return None
        return None

    async def _fail(
        self, request: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int
    ) -> None:
        """Answers a request with an error status. With 500, half of the PUTs are executed nevertheless."""
        if status == 500 and request.method == "PUT" and self.faults.random.random() < 0.5:
            await self._forward(request, reader, cast(asyncio.StreamWriter, Nowhere()), None)
            self.faults.count("done and answered 500")
            request = Head(request.first, {})
        await self._answer(request, reader, writer, status)


class ProxyProcess:
    """An `OutageProxy` in its own process."""

    def __init__(self, upstream_port: int, seed: int) -> None:
        #: The numbers of refused requests and connections at the last begin or end of an outage, by kind.
        self.refused: dict[str, int] = {}
        command = [sys.executable, str(Path(__file__).with_name("soak_proxy.py")), str(upstream_port), str(seed)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self._answer())

    def begin(self, kind: str) -> None:
        """Begins an outage. Must be followed by `end`."""
        self._tell(kind)

    def end(self) -> None:
        """Ends the outage."""
        self._tell("")

    def close(self) -> None:
        """Ends the proxy."""
        self._process.kill()
        self._process.communicate()

    def _tell(self, kind: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{kind}\n")
        self._process.stdin.flush()
        self.refused = json.loads(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the proxy ended with {self._process.wait()}"
        return line


@dataclass(frozen=True)
class Window:
    """A period in which the store or the server was unavailable, by the machine's monotonic clock."""

    kind: str
    begin: float
    end: float


def longest_outside(waits: Iterable[tuple[float, float]], windows: Sequence[Window]) -> tuple[float, float]:
    """Returns the longest part of a wait that lies in no window or `RECOVERY_SECS` after it, as (seconds, begin)."""
    away = sorted((window.begin, window.end + RECOVERY_SECS) for window in windows)
    longest = (0.0, 0.0)
    for begin, end in waits:
        at = begin
        for away_begin, away_end in away:
            longest = max(longest, (min(away_begin, end) - at, at))
            at = max(at, min(away_end, end))
        longest = max(longest, (end - at, at))
    return longest
