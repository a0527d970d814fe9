"""Clients that are silent, read nothing or flood a server stop neither the server nor a running job."""

from __future__ import annotations

import json
import re
import resource
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import raw_http2 as http2
from certificates import Certificates
from conftest import stoker_bin
from pyarrow import flight
from test_service import environment
from test_unix_socket import address, killable

import stoker

#: The table has 96 MiB, more than the buffers between a server and a client that pauses can hold.
NUM_ROWS = 1024
SHAPE = (3, 128, 256)
QUERY = "SELECT id, image FROM samples"
#: Seconds after which a test that waits for a condition fails.
PATIENCE = 120
TOKEN = "the token of this server"
#: If a server takes this many bytes of a flood, it does not end the flood.
FLOOD_BYTES_MAX = 1 << 28


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake whose images are functions of the ids of their rows."""
    path = str(tmp_path_factory.mktemp("large"))
    ids = np.arange(NUM_ROWS)
    image = np.broadcast_to((ids % 251).astype(np.uint8).reshape(-1, 1, 1, 1), (NUM_ROWS, *SHAPE))
    stoker.connect(path).create_table("samples", {"id": ids, "image": np.ascontiguousarray(image)})
    return path


@pytest.fixture(autouse=True, scope="module")
def files() -> Iterator[None]:
    """Raises this process's limit of open files to the system's maximum, for the clients' connections."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@dataclass
class Server:
    """A server process with a low limit of open files."""

    process: subprocess.Popen[str]
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def resident_bytes(self) -> int:
        """Returns the resident memory of the server in bytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        (found,) = re.findall(r"VmRSS:\s+(\d+) kB", text)
        return int(found) * 1024

    def num_files(self) -> int:
        """Returns the number of the server's open files."""
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    def num_running(self) -> int:
        """Returns the number of running streams."""
        with flight.connect(self.url) as client:
            (answer,) = client.do_action(flight.Action("status", b""))
            return int(json.loads(answer.body.to_pybytes())["streams_running"])


@contextmanager
def serving(lake_path: str, *args: str, files_max: int = 1024, **variables: str) -> Iterator[Server]:
    """Runs a server, which must still be alive after the body."""
    command = [stoker_bin(), "serve", "--lake", lake_path, "--listen", "127.0.0.1:0", *args]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))

    with subprocess.Popen(
        command, env=environment(variables), stdout=subprocess.PIPE, text=True, preexec_fn=limit
    ) as process:
        try:
            assert process.stdout is not None
            found = re.match(r"listening on (\S+)", process.stdout.readline())
            assert found
            yield Server(process, found[1])
            assert process.poll() is None
        finally:
            process.kill()


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Waits for a condition; returns whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
    return True


def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition; fails if it does not become true within `PATIENCE` seconds."""
    assert within(PATIENCE, condition)


def check_rows(stream: Iterable[stoker.Batch], first: list[int] | None = None) -> None:
    """Reads the rest of an epoch; checks that each row came once, with the right image."""
    seen = list(first or [])
    for batch in stream:
        ids = batch["id"]
        assert (batch["image"] == (ids % 251).astype(np.uint8).reshape(-1, 1, 1, 1)).all()
        seen += ids.tolist()
    assert sorted(seen) == list(range(NUM_ROWS))


@contextmanager
def canary(url: str, **options: str) -> Iterator[Callable[[], int]]:
    """Runs a job that streams all the time, and yields a function that returns the number of its epochs.

    The rows of each epoch must be exact, and the job must finish at least two more epochs after the body.
    """
    over, failures, epochs = threading.Event(), [], 0

    def run() -> None:
        nonlocal epochs
        try:
            lake = stoker.connect(url, retry_budget_secs=30, **options)
            while not over.is_set():
                check_rows(lake.sql(QUERY).stream(batch_size=32, seed=epochs))
                epochs += 1
        except BaseException as error:
            failures.append(error)
            raise

    job = threading.Thread(target=run)
    job.start()
    try:
        until(lambda: epochs > 0 or bool(failures))
        yield lambda: epochs
        before = epochs
        until(lambda: epochs > before + 1 or bool(failures))
    finally:
        over.set()
        job.join()
    assert not failures


def check_newcomer(url: str, **options: str) -> None:
    """Checks that a new client is served within 20 s. On an idle machine, it takes less than a second."""
    begun = time.monotonic()
    lake = stoker.connect(url, retry_budget_secs=PATIENCE, **options)
    assert lake.sql("SELECT count(*) AS n FROM samples").to_arrow()["n"].to_pylist() == [NUM_ROWS]
    assert len(next(iter(lake.sql(QUERY).stream(batch_size=4, seed=1)))["id"]) == 4
    assert time.monotonic() - begun < 20


SAID = {
    "nothing": b"",
    "half a preface": http2.PREFACE[:9],
    "a preface": http2.PREFACE,
    "settings": http2.PREFACE + http2.settings(),
    "half the headers": http2.PREFACE + http2.settings() + http2.headers("DoGet")[:40],
}


@pytest.mark.parametrize("said", SAID)
def test_silent_connections_make_room(large: str, said: str) -> None:
    # One kind is tested with 2,000 connections; fewer suffice to show that the server treats the other kinds alike.
    num, files_max = (2000, 1024) if said == "nothing" else (600, 256)
    with serving(large, files_max=files_max) as server, ExitStack() as silent, canary(server.url):
        for _ in range(num):
            silent.enter_context(http2.connect(server.port)).sendall(SAID[said])
        check_newcomer(server.url)
        assert server.num_files() < 0.8 * files_max


def test_silent_connections_before_tls(large: str, tmp_path: Path) -> None:
    certificates = Certificates.issue(tmp_path)
    cert, key = map(str, certificates.good)
    options = {"tls_ca": str(certificates.ca)}
    with (
        serving(large, "--tls-cert", cert, "--tls-key", key, files_max=256) as server,
        ExitStack() as silent,
        canary(server.url, **options),
    ):
        for said in (b"", b"\x16\x03\x01\x02\x00\x01"):
            for _ in range(300):
                silent.enter_context(http2.connect(server.port)).sendall(said)
        check_newcomer(server.url, **options)


def test_handshakes_and_idle_connections_end(large: str) -> None:
    limits = ("--handshake-secs", "1", "--idle-secs", "1")
    with serving(large, *limits) as server:
        for said in SAID.values():
            with http2.connect(server.port) as silent:
                silent.sendall(said)
                http2.until_closed(silent)
        with http2.connect(server.port) as idle:
            idle.sendall(http2.PREFACE + http2.settings() + http2.headers("ListActions", ends=True))
            assert http2.GOAWAY in http2.until_closed(idle)
        # A connection with a running response is not idle.
        stream = iter(stoker.connect(server.url).sql(QUERY).stream(batch_size=32, seed=1))
        first = next(stream)["id"].tolist()
        with http2.connect(server.port) as silent:
            http2.until_closed(silent)
        check_rows(stream, first)


def resets() -> bytes:
    """Returns the frames of requests that the client cancels at once."""
    number = iter(range(1, 1 << 30, 2))
    return b"".join(
        http2.headers("DoGet", stream=stream) + http2.frame(http2.RESET, struct.pack(">I", 8), stream=stream)
        for stream in (next(number) for _ in range(2000))
    )


def refused() -> bytes:
    """Returns the frames of requests without a token."""
    return b"".join(http2.headers("DoGet", stream=stream, ends=True) for stream in range(1, 20_001, 2))


FLOODS = {
    "ping": http2.frame(http2.PING, bytes(8)) * 4096,
    "priority": http2.frame(http2.PRIORITY, bytes(5), stream=1) * 4096,
    "window update": http2.frame(http2.WINDOW_UPDATE, struct.pack(">I", 1)) * 4096,
    "settings": http2.settings() * 4096,
    "unknown": http2.frame(0xF0, b"x") * 4096,
    "reset": resets(),
    "unauthenticated": refused(),
}


def sent_before_the_end(hostile: socket.socket, flood: bytes) -> int:
    """Sends a flood until the server ends the connection; returns the number of bytes sent."""
    sent = 0
    with suppress(ConnectionError):
        hostile.sendall(http2.PREFACE + http2.settings())
        while sent < FLOOD_BYTES_MAX:
            hostile.sendall(flood)
            sent += len(flood)
    return sent


@pytest.mark.parametrize("flood", FLOODS)
def test_floods_end_their_connection(large: str, flood: str) -> None:
    with serving(large, STOKER_TOKEN=TOKEN) as server:
        check_newcomer(server.url, token=TOKEN)
        before = server.resident_bytes()
        with http2.connect(server.port) as hostile:
            assert sent_before_the_end(hostile, FLOODS[flood]) < FLOOD_BYTES_MAX
        assert server.resident_bytes() - before < 64 << 20
        with http2.connect(server.port) as hostile, ThreadPoolExecutor(1) as reader:
            kinds = reader.submit(http2.until_closed, hostile)
            sent_before_the_end(hostile, FLOODS[flood])
            assert http2.GOAWAY in kinds.result()
        check_newcomer(server.url, token=TOKEN)


def test_a_connection_that_shows_no_token_ends_after_some_requests(large: str) -> None:
    with serving(large, STOKER_TOKEN=TOKEN) as server, http2.connect(server.port) as hostile:
        # These are fewer frames than count as a flood, and fewer requests than a connection may have at once.
        requests = b"".join(http2.headers("ListActions", stream=stream, ends=True) for stream in range(1, 201, 2))
        hostile.sendall(http2.PREFACE + http2.settings() + requests)
        assert http2.GOAWAY in http2.until_closed(hostile)


def ticket(server: Server, kind: str) -> bytes:
    """Returns a ticket for a stream or for a query result."""
    with flight.connect(server.url) as client:
        descriptor = flight.FlightDescriptor.for_path("samples")
        if kind == "streams":
            descriptor = flight.FlightDescriptor.for_command(http2.stream_command(QUERY, 32))
        (endpoint,) = client.get_flight_info(descriptor).endpoints
        return bytes(endpoint.ticket.ticket)


def frozen(server: Server, ticket: bytes) -> socket.socket:
    """Connects a client that sends a DoGet request with an HTTP/2 window of 0 bytes for the response."""
    reader = http2.connect(server.port)
    reader.sendall(http2.PREFACE + http2.settings(initial_window_size=0) + http2.do_get(ticket))
    return reader


@pytest.mark.parametrize("kind", ["streams", "results"])
def test_frozen_readers_make_room(large: str, kind: str) -> None:
    memory = ("--memory-budget-bytes", str(256 << 20))
    with serving(large, *memory) as server, ExitStack() as readers, canary(server.url):
        wanted = ticket(server, kind)
        for _ in range(300):
            readers.enter_context(frozen(server, wanted))
        for _ in range(3):
            check_newcomer(server.url)


@pytest.mark.parametrize("kind", ["streams", "results"])
def test_an_answer_that_nobody_reads_is_cut(large: str, kind: str) -> None:
    with serving(large, "--stall-secs", "1") as server:
        wanted = ticket(server, kind)
        with frozen(server, wanted) as reader:
            received = b""
            cancelled = http2.frame(http2.RESET, struct.pack(">I", 8), stream=1)
            while cancelled not in received:
                part = reader.recv(1 << 16)
                assert part, "the connection ended before the answer"
                received += part
        until(lambda: server.num_running() == 0)


def test_a_consumer_that_pauses_loses_nothing(large: str) -> None:
    with serving(large, "--stall-secs", "1", "--keepalive-secs", "1") as server:
        lake = stoker.connect(server.url, retry_budget_secs=1)
        stream = lake.sql(QUERY).stream(batch_size=16, seed=3, memory_budget_bytes=4 << 20)
        first: list[int] = []
        batches = iter(stream)
        for _ in range(2):
            first += next(batches)["id"].tolist()
            # While the consumer pauses, the server cancels its stream after `--stall-secs`.
            until(lambda: server.num_running() == 0)
        check_rows(batches, first)
        assert stream.stats().retries >= 1


def test_an_outage_while_the_consumer_pauses_uses_none_of_its_patience(large: str, tmp_path: Path) -> None:
    listen = address(tmp_path)
    with ExitStack() as servers:
        process = servers.enter_context(killable(large, listen))
        lake = stoker.connect(listen, retry_budget_secs=1)
        stream = lake.sql(QUERY).stream(batch_size=4, seed=3)
        batches = iter(stream)
        first = next(batches)["id"].tolist()
        process.kill()
        process.wait()
        # If the received batches fill the stream's queue, the client sends its next request only when a batch is taken.
        # That request finds no server.
        while not within(1, lambda: stream.stats().retries > 0):
            first += next(batches)["id"].tolist()
        retries = stream.stats().retries
        until(lambda: stream.stats().retries > retries + 6)
        servers.enter_context(killable(large, listen))
        check_rows(batches, first)
