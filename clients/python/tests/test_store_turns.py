"""A client with many streams cannot keep others from the store: permits for GETs rotate among clients, not streams."""

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

#: The number of GETs that a new server may have in flight.
NUM_UNDER_WAY = 128
#: The number of streams of the client "crowd", and the rows of their batches. Each row needs a GET of its own, so each
#: stream has more GETs that wait than it gets permits in one rotation.
NUM_CROWD, CROWD_BATCH = 100, 16
#: The number of permits for the crowd before which the other client must get its first one. If permits rotated among
#: streams, all streams that began to wait earlier would come first.
NUM_TURNS = 30
#: The rows of each table, and the shape of their images, which are so large that one GET does not read several rows of
#: a shuffled batch.
NUM_ROWS, SHAPE = {"crowd": 1_000, "other": 100}, (3, 128, 128)
CROWD, OTHER = TOKENS["read"], TOKENS["write"]


class Gate(S3Proxy):
    """A store with a gate. While the gate is closed, GETs of data files wait until :meth:`let_pass` releases them."""

    def __init__(self, store: Store) -> None:
        #: The paths of the GETs that arrived while the gate was closed.
        self.asked: list[str] = []
        self._is_closed = False
        self._passes = asyncio.Semaphore(0)
        super().__init__(store.port, Faults(0, {}))

    def close_gate(self) -> None:
        self._is_closed = True

    def let_pass(self, num: int = 1) -> None:
        """Releases `num` of the waiting GETs."""
        for _ in range(num):
            self._loop.call_soon_threadsafe(self._passes.release)

    def open_gate(self) -> None:
        """Releases all waiting GETs, and lets later ones pass."""
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
    """Returns the ticket for a stream of the crowd."""
    command = http2.stream_command("SELECT image FROM crowd", CROWD_BATCH)
    with flight.connect(url) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(command), authorized(CROWD))
        return bytes(info.endpoints[0].ticket.ticket)


def reading(port: int, wanted: bytes) -> socket.socket:
    """Requests a stream for the crowd, and returns its socket."""
    reader = http2.connect(port)
    reader.sendall(http2.PREFACE + http2.settings() + http2.do_get(wanted, token=CROWD))
    return reader


def num_running(url: str) -> int:
    """Returns the number of streams that the server is running."""
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
            # After one epoch, the server has cached the metadata of all files, so that later streams only read rows.
            assert sum(batch.num_valid for batch in stream) == NUM_ROWS[table]
            stream.close()
        # This stream is planned now and read later. The stream above does not serve for that, because the first batch
        # of its next epoch may have been prefetched.
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
