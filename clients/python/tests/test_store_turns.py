"""A client with many streams leaves the store to others: their requests take turns by client."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
import raw_http2 as http2
from fault_proxy import Faults, Head, S3Proxy
from pyarrow import flight
from s3_store import BUCKET, Store
from test_hostile_connections import until
from test_safe_defaults import TOKENS, authorized, tokens_file
from test_service import serving

import stoker

#: Requests that a server has under way at first.
NUM_UNDER_WAY = 128
#: Streams of the crowd, each of which wants more rows at once than requests of it get a turn in one rotation.
NUM_CROWD, CROWD_BATCH = 100, 16
#: Turns of the crowd within which the other client gets its first one. Where streams take turns, it comes after that of
#: each stream which began to wait before.
NUM_TURNS = 30
#: Rows of tables: too far from each other for one request.
NUM_ROWS, SHAPE = {"crowd": 1_000, "other": 100}, (3, 128, 128)
CROWD, OTHER = TOKENS["read"], TOKENS["write"]


class Gate(S3Proxy):
    """A store that answers requests for data one by one while its gate is closed."""

    def __init__(self, store: Store) -> None:
        #: The paths that were asked for since the gate was closed.
        self.asked: list[str] = []
        self._is_closed = False
        self._passes = asyncio.Semaphore(0)
        super().__init__(store.port, Faults(0, {}))

    def close_gate(self) -> None:
        self._is_closed = True

    def let_pass(self, num: int = 1) -> None:
        """Answers so many of the requests that wait."""
        for _ in range(num):
            self._loop.call_soon_threadsafe(self._passes.release)

    def open_gate(self) -> None:
        """Answers all requests from now on."""
        self._is_closed = False
        self.let_pass(len(self.asked))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await Head.read(reader)) is not None:
            if self._is_closed and request.method == "GET" and "/data/" in request.path:
                self.asked.append(request.path)
                await self._passes.acquire()
            if not await self._forward(request, reader, writer, None):
                return None
        return None


@pytest.fixture
def gate(store: Store) -> Iterator[Gate]:
    with closing(Gate(store)) as gate:
        yield gate


def create(store: Store, table: str) -> None:
    lake = stoker.connect(f"s3://{BUCKET}/turns", storage_options=store.options)
    lake.create_table(table, {"image": np.ones((NUM_ROWS[table], *SHAPE), np.uint8)})


def ticket(url: str) -> bytes:
    """The ticket for a stream of the crowd."""
    command = http2.stream_command("SELECT image FROM crowd", CROWD_BATCH)
    with flight.connect(url) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(command), authorized(CROWD))
        return bytes(info.endpoints[0].ticket.ticket)


def reading(port: int, wanted: bytes) -> socket.socket:
    """A stream of the crowd."""
    reader = http2.connect(port)
    reader.sendall(http2.PREFACE + http2.settings() + http2.do_get(wanted, token=CROWD))
    return reader


def num_running(url: str) -> int:
    """Streams that have a place."""
    with flight.connect(url) as client:
        (answer,) = client.do_action(flight.Action("status", b""), authorized(TOKENS["admin"]))
        return int(json.loads(answer.body.to_pybytes())["streams_running"])


def test_another_client_gets_every_other_turn(store: Store, gate: Gate, tmp_path: Path) -> None:
    for table in NUM_ROWS:
        create(store, table)
    args = ["--lake", f"s3://{BUCKET}/turns", "--listen", "127.0.0.1:0", "--tokens-file", str(tokens_file(tmp_path))]
    variables = {name.upper(): value for name, value in store.options_at(gate.port).items()}
    with serving(*args, **variables) as url, ThreadPoolExecutor(1) as pool, ExitStack() as opened:
        wanted, port = ticket(url), int(url.rsplit(":", 1)[1])
        for token, table in ((CROWD, "crowd"), (OTHER, "other")):
            stream = stoker.connect(url, token=token).sql(f"SELECT image FROM {table}").stream(batch_size=4, seed=1)
            # What the first reader of a file has to find out is known after an epoch.
            assert sum(batch.num_valid for batch in stream) == NUM_ROWS[table]
            stream.close()
        # Planned now, and read later: of the one above, the next epoch's first batch may be there already.
        stream = stoker.connect(url, token=OTHER).sql("SELECT image FROM other").stream(batch_size=4, seed=2)
        until(lambda: num_running(url) == 0)
        gate.close_gate()
        opened.callback(gate.open_gate)
        for _ in range(NUM_CROWD):
            opened.enter_context(reading(port, wanted))
        until(lambda: num_running(url) == NUM_CROWD and len(gate.asked) >= NUM_UNDER_WAY)
        batch = pool.submit(lambda: next(iter(stream)))
        until(lambda: num_running(url) == NUM_CROWD + 1)
        begun = len(gate.asked)
        while not any("/other.lance/" in path for path in gate.asked):
            num_asked = len(gate.asked)
            assert num_asked < begun + NUM_TURNS, f"no turn within {NUM_TURNS} of {gate.asked[begun:]}"
            gate.let_pass()
            until(lambda num=num_asked: len(gate.asked) > num)
        gate.open_gate()
        assert len(batch.result()["image"]) == 4
