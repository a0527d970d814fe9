"""Proxies that inject faults: one between Stoker and an S3 server, one between clients and a gRPC server.

The broken requests and connections, and their faults, are drawn from a seed. As several processes send requests in no
fixed order, the same seed gives the same mix of faults, but not the same run.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

#: Bytes that a `GrpcProxy` reads at once from its server, and the limit of the read buffer of that connection and of
#: each client's connection.
_PIECE_BYTES = 8 << 10
#: The least and the most seconds for which a stalled connection is silent before the proxy resets it.
_STALL_SECS = (0.1, 1.5)


class Faults:
    """Draws faults with given probabilities from a seed, and counts those that were injected.

    Several proxies may share one instance.
    """

    def __init__(self, seed: int, rates: Mapping[str, float]) -> None:
        self.rates = dict(rates)
        self.num_asked = 0
        self.fired: Counter[str] = Counter()
        self.random = random.Random(seed)
        self._lock = threading.Lock()

    def draw(self) -> str | None:
        """Draws the fault of the next request or connection; most get None."""
        with self._lock:
            self.num_asked += 1
            point = self.random.random()
        for kind, rate in self.rates.items():
            if point < rate:
                return kind
            point -= rate
        return None

    async def fire(self, kind: str) -> None:
        """Counts a fault; for `stalled`, also waits for the time of the stall."""
        self.count(kind)
        if kind == "stalled":
            await asyncio.sleep(self.random.uniform(*_STALL_SECS))

    def count(self, kind: str) -> None:
        with self._lock:
            self.fired[kind] += 1

    def __repr__(self) -> str:
        return f"{dict(sorted(self.fired.items()))} in {self.num_asked}"


class Proxy(ABC):
    """A listener on a port that the system chooses; its own thread serves it until it is closed."""

    def __init__(self, upstream_port: int, faults: Faults) -> None:
        self.faults = faults
        self._upstream_port = upstream_port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        # The event loop itself keeps only weak references to its tasks.
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @abstractmethod
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one client's connection. If this raises a connection error, the caller resets the connection."""

    def close(self) -> None:
        """Closes the listener and resets all connections."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        server = await asyncio.start_server(self._connected, sock=self._listener, limit=_PIECE_BYTES)
        await self._stop.wait()
        server.close()
        self._cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _cancel(self) -> None:
        """Resets all connections."""
        for task in self._tasks:
            task.cancel()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.serve(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            reset(writer)
        finally:
            writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection with a TCP reset; bytes that were not sent yet are lost."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def run_until_one_ends(*pumps: Coroutine[Any, Any, None]) -> None:
    """Runs the two directions of a connection until one of them ends."""
    tasks = [asyncio.ensure_future(pump) for pump in pumps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class Head:
    """The first line and the headers of an HTTP/1.1 message."""

    first: str
    headers: dict[str, str]

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> Head | None:
        """Reads the next head; returns None at the end of the connection."""
        first = await reader.readline()
        if not first:
            return None
        headers = {}
        while (line := (await reader.readline()).decode().strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return cls(first.decode().strip(), headers)

    def to_bytes(self) -> bytes:
        lines = [self.first, *(f"{name}: {value}" for name, value in self.headers.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    @property
    def method(self) -> str:
        return self.first.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.first.split(" ")[1]

    @property
    def status(self) -> int:
        return int(self.first.split(" ")[1])

    @property
    def length(self) -> int | None:
        """The length of the body in bytes, or None if the head has no `content-length`."""
        length = self.headers.get("content-length")
        return None if length is None else int(length)


_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class S3Proxy(Proxy):
    """Injects faults into GET and HEAD requests to an S3 server over HTTP/1.1. Writes pass unchanged.

    Faults: `slow_down` answers 503. `reset` resets the connection before the response. `truncated` closes the
    connection in the middle of a body. `cut` resets the connection in the middle of a body. `stalled` sends nothing
    for a while and then resets the connection, either before the response or in the middle of a body.
    """

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await Head.read(reader)) is not None:
            fault = self.faults.draw() if request.method in ("GET", "HEAD") else None
            if fault == "reset" or (fault == "stalled" and self.faults.random.random() < 0.5):
                await self.faults.fire(fault)
                return reset(writer)
            if fault == "slow_down":
                await self.faults.fire(fault)
                body = _SLOW_DOWN if request.method == "GET" else b""
                head = {"content-type": "application/xml", "content-length": str(len(body))}
                writer.write(Head("HTTP/1.1 503 Slow Down", head).to_bytes() + body)
                await writer.drain()
            elif not await self._forward(request, reader, writer, fault):
                return None
        return None

    async def _answer(
        self, request: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int
    ) -> None:
        """Answers a request with a status and no body, without asking the store."""
        await reader.readexactly(request.length or 0)
        writer.write(Head(f"HTTP/1.1 {status} by the proxy", {"content-length": "0"}).to_bytes())
        await writer.drain()

    async def _forward(
        self, request: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: str | None
    ) -> bool:
        """Forwards a request to the store and its response to the client.

        Returns whether the client's connection may be used again.
        """
        answers, asking = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        try:
            asking.write(Head(request.first, {**request.headers, "connection": "close"}).to_bytes())
            await _copy(reader, asking, request.length or 0)
            answer = await Head.read(answers)
            if answer is None:
                raise ConnectionResetError("the store gave no answer")
            has_body = request.method != "HEAD" and answer.status not in (204, 304)
            length = answer.length if has_body else 0
            answer.headers["connection"] = "close" if length is None else "keep-alive"
            writer.write(answer.to_bytes())
            if fault is not None and length is not None and length > 1:
                await _copy(answers, writer, self.faults.random.randrange(1, length))
                await self.faults.fire(fault)
                if fault != "truncated":
                    reset(writer)
                return False
            await _copy(answers, writer, length)
            return length is not None
        finally:
            asking.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, length: int | None) -> None:
    """Copies `length` bytes, or all bytes up to the end of the connection if `length` is None."""
    while length is None or length > 0:
        piece = await reader.read(1 << 16 if length is None else min(length, 1 << 16))
        if not piece and length is None:
            break
        if not piece:
            raise EOFError("a body ended early")
        writer.write(piece)
        await writer.drain()
        length = None if length is None else length - len(piece)
    await writer.drain()


class Http2Frames:
    """Tracks the frames in the bytes that one side of an HTTP/2 connection sends."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._left = 0

    def feed(self, data: bytes) -> None:
        """Takes the next bytes."""
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
            else:
                step = min(9 - len(self._head), len(data) - at)
                self._head += data[at : at + step]
            at += step
            if len(self._head) == 9 and not self._left:
                self._left = int.from_bytes(self._head[:3], "big")
                self._kind = self._head[3]
                self._head.clear()

    @property
    def in_data(self) -> bool:
        """Whether the bytes so far end inside the payload of a DATA frame, and so inside a message."""
        return self._left > 0 and self._kind == 0


class GrpcProxy(Proxy):
    """Forwards gRPC connections at a limited rate, and breaks some of them inside a message from the server.

    The fault of a connection is drawn when it is opened, with the number of bytes after which it comes: `reset` resets
    the connection, `stalled` sends nothing for a while and then resets it. The proxy counts also `lost`, the
    connections that ended with their server; `lost_in_message`, those of them that ended inside a message; and
    `refused`, the connections for which no server listened.
    """

    def __init__(self, upstream_port: int, faults: Faults, bytes_per_sec: int, fault_bytes_max: int) -> None:
        self._bytes_per_sec = bytes_per_sec
        self._fault_bytes_max = fault_bytes_max
        super().__init__(upstream_port, faults)

    def lose_server(self) -> None:
        """Resets all connections, as if the server's whole machine were lost.

        A kill of the process alone has a weaker effect: the kernel still sends all bytes that the process had written
        to its sockets, so only the largest responses are cut.
        """
        self._loop.call_soon_threadsafe(self._cancel)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, asking = await asyncio.open_connection("127.0.0.1", self._upstream_port, limit=_PIECE_BYTES)
        except OSError:
            self.faults.count("refused")
            return reset(writer)
        frames = Http2Frames()
        try:
            await run_until_one_ends(_copy(reader, asking, None), self._answer(answers, writer, frames))
        except asyncio.CancelledError:
            self._lost(frames)
            raise
        finally:
            reset(asking)
            reset(writer)

    async def _answer(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter, frames: Http2Frames) -> None:
        """Forwards the server's bytes until the server closes the connection or the fault of the connection is due."""
        fault, num_bytes = self.faults.draw(), 0
        due = self.faults.random.randrange(1, self._fault_bytes_max)
        while True:
            try:
                piece = await answers.read(_PIECE_BYTES)
            except ConnectionError:
                piece = b""
            if not piece:
                return self._lost(frames)
            frames.feed(piece)
            num_bytes += len(piece)
            writer.write(piece)
            await writer.drain()
            if fault is not None and num_bytes >= due and frames.in_data:
                return await self.faults.fire(fault)
            await asyncio.sleep(len(piece) / self._bytes_per_sec)

    def _lost(self, frames: Http2Frames) -> None:
        self.faults.count("lost")
        if frames.in_data:
            self.faults.count("lost_in_message")
