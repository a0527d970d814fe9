"""Outages of servers and stores: calls are retried until the server or the store is back, and writes happen once."""

from __future__ import annotations

import asyncio
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Server, make_columns
from fault_proxy import Faults, Head, Proxy, S3Proxy, reset, run_until_one_ends
from s3_store import BUCKET, Store
from test_bad_images import OPTIONS as DECODED
from test_bad_images import QUERY as PHOTOS
from test_bad_images import broken_files
from test_bad_images import write as write_photos
from test_unix_socket import address, killable

import stoker

NUM_ROWS = 101
QUERY = "SELECT id, image FROM samples"
#: The timeout of a test's waits, in seconds.
PATIENCE = 120


@pytest.fixture
def own_path(tmp_path: Path) -> str:
    """The path of a lake that a test may write to."""
    path = str(tmp_path / "lake")
    stoker.connect(path).create_table("samples", make_columns(NUM_ROWS))
    return path


def mixture(lake: stoker.Lake, **options: Any) -> stoker.Stream:
    parts = [(lake.sql(f"{QUERY} WHERE id {side} 50"), 0.5) for side in ("<", ">=")]
    return stoker.mix(parts, epoch_rows=64).stream(batch_size=16, seed=1, **options)


def ids(stream: stoker.Stream) -> list[int]:
    return [row for batch in stream for row in batch["id"][batch.valid].tolist()]


class Job:
    """The calls that a training job makes beside reading batches, each of which may meet an outage."""

    def __init__(self, lake: stoker.Lake) -> None:
        self.lake = lake
        self.query = lake.sql(QUERY)
        self.table = lake.table("samples")
        self.mixture = mixture(lake)
        self.logged = self.query.stream(batch_size=32, seed=1, run_id="exp-1", run_log=True)
        self.pickled = pickle.dumps(self.query.stream(batch_size=32, seed=1))
        changed = mixture(lake)
        next(iter(changed))
        changed.set_weights([3, 1])
        self.state = changed.state_dict()

    def plan(self) -> None:
        assert self.query.stream(batch_size=8, seed=2).num_rows == NUM_ROWS

    def select(self) -> None:
        assert self.lake.sql("SELECT count(*) AS n FROM samples").to_arrow()["n"].to_pylist() == [NUM_ROWS]

    def change_weights(self) -> None:
        self.mixture.set_weights([1, 3])
        assert self.mixture.weights == [0.25, 0.75]

    def load_state(self) -> None:
        self.mixture.load_state_dict(self.state)
        assert self.mixture.weights == [0.75, 0.25]

    def begin_epoch(self) -> None:
        assert sorted(ids(self.logged)) == list(range(NUM_ROWS))

    def unpickle(self) -> None:
        assert sorted(ids(pickle.loads(self.pickled))) == list(range(NUM_ROWS))

    def tag(self) -> None:
        self.table.tag("kept")

    def list(self) -> None:
        assert "samples" in self.lake.tables()


CALLS: list[Callable[[Job], None]] = [
    Job.plan,
    Job.select,
    Job.change_weights,
    Job.load_state,
    Job.begin_epoch,
    Job.unpickle,
    Job.tag,
    Job.list,
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_calls_wait_for_a_server_that_is_started_again(
    tmp_path: Path, own_path: str, call: Callable[[Job], None]
) -> None:
    listen = address(tmp_path)
    with killable(own_path, listen) as first:
        patient, hasty = Job(stoker.connect(listen)), Job(stoker.connect(listen, retry_budget_secs=0))
        first.send_signal(signal.SIGKILL)
        first.wait(timeout=PATIENCE)
    with pytest.raises(stoker.UnavailableError, match=listen):
        call(hasty)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call, patient)
        with pytest.raises(stoker.UnavailableError, match=listen):
            call(hasty)
        with killable(own_path, listen):
            waiting.result(timeout=PATIENCE)
    lake = stoker.connect(own_path)
    if call is Job.begin_epoch:
        assert [(entry.event, entry.epoch) for entry in lake.run("exp-1").entries()] == [("epoch", 0)]
    if call is Job.tag:
        assert lake.table("samples").tags == {"kept": 1}


def test_an_epoch_begins_after_an_outage_and_is_logged_once(tmp_path: Path, own_path: str) -> None:
    listen = address(tmp_path)
    with killable(own_path, listen) as first:
        stream = Job(stoker.connect(listen)).logged
        epochs = [ids(stream)]
        first.send_signal(signal.SIGKILL)
        first.wait(timeout=PATIENCE)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ids, stream)
        with killable(own_path, listen):
            epochs.append(waiting.result(timeout=PATIENCE))
    assert all(sorted(epoch) == list(range(NUM_ROWS)) for epoch in epochs)
    entries = stoker.connect(own_path).run("exp-1").entries()
    assert [(entry.event, entry.epoch) for entry in entries] == [("epoch", 0), ("epoch", 1)]
    (verdict, other) = stoker.connect(own_path).verify([stream.receipt()])
    assert verdict.is_exactly_once
    assert other.is_exactly_once


def test_what_waited_in_vain_says_what_and_for_how_long(tmp_path: Path, own_path: str) -> None:
    listen = address(tmp_path)
    with killable(own_path, listen) as first:
        lake = stoker.connect(listen, retry_budget_secs=1)
        query = lake.sql(QUERY)
        stream = query.stream(batch_size=8, retry_budget_secs=0)
        first.send_signal(signal.SIGKILL)
        first.wait(timeout=PATIENCE)
    with pytest.raises(stoker.UnavailableError, match=rf"planning a stream failed \d+ times in 1 s, last: .*{listen}"):
        query.stream(batch_size=8)
    with pytest.raises(stoker.UnavailableError, match=listen):
        next(iter(stream))
    with pytest.raises(stoker.UnavailableError, match=listen):
        stoker.connect(listen)


INTERRUPTED = """
import signal, sys, stoker
signal.signal(signal.SIGINT, signal.default_int_handler)
lake = stoker.connect(sys.argv[1])
print("connected", flush=True)
sys.stdin.readline()
try:
    lake.tables()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_the_wait(tmp_path: Path, own_path: str) -> None:
    listen = address(tmp_path)
    command = [sys.executable, "-c", INTERRUPTED, listen]
    with killable(own_path, listen) as first:
        job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert job.stdin is not None
        assert job.stdout is not None
        assert job.stdout.readline() == "connected\n"
        first.send_signal(signal.SIGKILL)
        first.wait(timeout=PATIENCE)
    path = listen.removeprefix("unix://")
    Path(path).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(PATIENCE)
        listener.bind(path)
        listener.listen()
        job.stdin.write("\n")
        job.stdin.flush()
        # The server is gone. This connection shows that the call is being retried.
        listener.accept()[0].close()
        job.send_signal(signal.SIGINT)
        printed, _ = job.communicate(timeout=PATIENCE)
    assert printed == "interrupted\n"
    assert job.returncode == 0


class WordProxy(Proxy):
    """Passes bytes on to a server, and watches for requests that contain a word, whose responses may be dropped."""

    def __init__(self, server: Server, word: bytes) -> None:
        self._word = word
        super().__init__(port_of(server), Faults(0, {}))

    def notice(self) -> bool:
        """Handles a request that contains the word. Returns whether its connection's responses go to :meth:`drops`."""
        raise NotImplementedError

    def drops(self, piece: bytes) -> bool:
        """Returns whether the connection is reset instead of passing on this piece of a response."""
        raise NotImplementedError

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, asking = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        asked = asyncio.Event()

        async def requests() -> None:
            while piece := await reader.read(1 << 16):
                if self._word in piece and self.notice():
                    asked.set()
                asking.write(piece)
                await asking.drain()

        async def replies() -> None:
            while piece := await answers.read(1 << 16):
                if asked.is_set() and self.drops(piece):
                    return reset(writer)
                writer.write(piece)
                await writer.drain()

        try:
            await run_until_one_ends(requests(), replies())
        finally:
            reset(asking)
            reset(writer)


def port_of(server: Server) -> int:
    """Returns the port that a server listens on."""
    return int(server.url.rsplit(":", 1)[1])


class LostAnswer(WordProxy):
    """Resets the first connection whose request contains the word, in place of the response."""

    num_lost = 0

    def notice(self) -> bool:
        return self.num_lost == 0

    def drops(self, piece: bytes) -> bool:
        if not has_headers(piece):
            return False
        self.num_lost += 1
        return True


def has_headers(piece: bytes) -> bool:
    """Returns whether a HEADERS frame, with which a response begins, is among the HTTP/2 frames in these bytes."""
    at = 0
    while at + 9 <= len(piece):
        if piece[at + 3] == 1:
            return True
        at += 9 + int.from_bytes(piece[at : at + 3], "big")
    return False


@contextmanager
def losing(lake_path: str, word: bytes) -> Iterator[LostAnswer]:
    """Runs a server behind a proxy that loses one response, and gives the proxy."""
    server = Server(lake_path)
    with closing(LostAnswer(server, word)) as proxy:
        yield proxy
    server.stop()


def test_an_entry_whose_answer_was_lost_is_not_written_twice(own_path: str) -> None:
    with losing(own_path, b"log_run") as proxy:
        stream = Job(stoker.connect(f"grpc://127.0.0.1:{proxy.port}")).logged
        for _ in range(2):
            assert sorted(ids(stream)) == list(range(NUM_ROWS))
        assert proxy.num_lost == 1
    entries = stoker.connect(own_path).run("exp-1").entries()
    assert [(entry.event, entry.epoch) for entry in entries] == [("epoch", 0), ("epoch", 1)]


def test_a_tag_whose_answer_was_lost_is_there(own_path: str) -> None:
    with losing(own_path, b"new_tag") as proxy:
        table = stoker.connect(f"grpc://127.0.0.1:{proxy.port}").table("samples")
        table.tag("kept")
        assert proxy.num_lost == 1
        with pytest.raises(stoker.AlreadyExistsError):
            table.tag("kept")
    assert stoker.connect(own_path).table("samples").tags == {"kept": 1}


def test_a_bad_row_log_whose_answer_was_lost_is_not_written_twice(own_path: str) -> None:
    row = {
        "run_id": "exp-1",
        "stream_id": "0" * 64,
        "epoch": 0,
        "position": 7,
        "table": "samples",
        "version": 1,
        "row_addr": 3,
        "reason": "torn",
    }
    with losing(own_path, b"log_bad_rows") as proxy:
        native = stoker.connect(f"grpc://127.0.0.1:{proxy.port}")._native
        native.log_bad_rows([row])
        native.log_bad_rows([row])
        assert proxy.num_lost == 1
    found = stoker.connect(own_path).sql("SELECT position FROM stoker_bad_rows").to_arrow()
    assert found["position"].to_pylist() == [7, 7]


class Killer(WordProxy):
    """Kills the server when a request contains the word for the first time."""

    def __init__(self, server: Server, word: bytes) -> None:
        self.has_killed = threading.Event()
        self._server = server
        super().__init__(server, word)

    def go_on_with(self, server: Server) -> None:
        """Passes later connections on to another server."""
        self._upstream_port = port_of(server)

    def notice(self) -> bool:
        if not self.has_killed.is_set():
            self._server.process.kill()
            self._server.process.wait()
            self.has_killed.set()
        return False


def rows_of_photos(lake: stoker.Lake) -> list[tuple[int, int]]:
    """Returns the id and the pixel sum of each row of an epoch, in order; good rows are substituted for bad ones."""
    stream = lake.sql(PHOTOS).stream(batch_size=9, **DECODED)
    return [(row, int(image.sum())) for batch in stream for row, image in zip(batch["id"], batch["image"], strict=True)]


def test_a_server_killed_in_a_search_for_substitutes_costs_a_pause(tmp_path: Path) -> None:
    lake = write_photos(tmp_path, broken_files())
    rows = rows_of_photos(lake)
    first = Server(lake.target)
    with closing(Killer(first, b"rows_beside")) as proxy, ThreadPoolExecutor(1) as pool:
        streaming = pool.submit(rows_of_photos, stoker.connect(f"grpc://127.0.0.1:{proxy.port}"))
        assert proxy.has_killed.wait(PATIENCE)
        second = Server(lake.target)
        proxy.go_on_with(second)
        assert streaming.result(timeout=PATIENCE) == rows
    second.stop()
    # A stream without a retry budget fails.
    first = Server(lake.target)
    with closing(Killer(first, b"rows_beside")) as proxy:
        query = stoker.connect(f"grpc://127.0.0.1:{proxy.port}").sql(PHOTOS)
        with pytest.raises(stoker.UnavailableError, match=f"cannot reach .*{proxy.port}"):
            list(query.stream(batch_size=9, retry_budget_secs=0, **DECODED))


class Outage(S3Proxy):
    """An S3 server that is out while `is_shut` is set.

    During the outage, the proxy counts requests in `refused`, and resets their connections at once or, if it hangs,
    never responds.
    """

    def __init__(self, upstream_port: int, *, hangs: bool = False) -> None:
        self.is_shut = threading.Event()
        self.refused = threading.Semaphore(0)
        self._hangs = hangs
        super().__init__(upstream_port, Faults(0, {}))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await Head.read(reader)) is not None:
            if self.is_shut.is_set():
                self.refused.release()
                if self._hangs:
                    await until_closed(reader)
                return reset(writer)
            if not await self._forward(request, reader, writer, None):
                return None
        return None


async def until_closed(reader: asyncio.StreamReader) -> None:
    """Waits until the peer closes the connection."""
    with suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass


def test_opening_a_table_of_a_store_that_hangs_takes_two_timeouts_at_most(store: Store) -> None:
    uri = f"s3://{BUCKET}/hanging"
    stoker.connect(uri, storage_options=store.options).create_table("samples", make_columns(NUM_ROWS))
    with closing(Outage(store.port, hangs=True)) as proxy:
        # With these options, the client of the store alone would retry one request for 60 s.
        options = {
            **store.options_at(proxy.port),
            "timeout": "2s",
            "client_max_retries": "30",
            "client_retry_timeout": "60",
        }
        lake = stoker.connect(uri, storage_options=options, retry_budget_secs=0)
        proxy.is_shut.set()
        with pytest.raises(
            stoker.UnavailableError, match=r"opening table samples in .*: it took longer than 4 s, twice"
        ):
            lake.table("samples")
        proxy.is_shut.clear()
        assert lake.table("samples").num_rows == NUM_ROWS


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_calls_wait_for_a_store_that_comes_back(store: Store, call: Callable[[Job], None]) -> None:
    uri = f"s3://{BUCKET}/{call.__name__}"
    lake = stoker.connect(uri, storage_options=store.options)
    lake.create_table("samples", make_columns(NUM_ROWS))
    with closing(Outage(store.port)) as proxy:
        # The clients of the store make no retries of their own.
        options = {
            **store.options,
            "aws_endpoint": f"http://127.0.0.1:{proxy.port}",
            "client_max_retries": "0",
            "download_retry_count": "0",
        }
        job = Job(stoker.connect(uri, storage_options=options))
        proxy.is_shut.set()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(call, job)
            # Eight refusals are more than the six attempts of a single read-only request: the call itself is retried.
            for _ in range(8):
                assert proxy.refused.acquire(timeout=PATIENCE)
            assert not waiting.done()
            proxy.is_shut.clear()
            waiting.result(timeout=PATIENCE)
    if call is Job.begin_epoch:
        assert [(entry.event, entry.epoch) for entry in lake.run("exp-1").entries()] == [("epoch", 0)]


@pytest.mark.parametrize("columns", ["wide", "id, name", "id, wide, name"])
def test_a_stream_through_a_server_gives_a_store_up_by_its_own_budget(store: Store, columns: str) -> None:
    uri = f"s3://{BUCKET}/budget-{len(columns)}"
    rows = {**make_columns(NUM_ROWS), "wide": np.ones((NUM_ROWS, 2048), np.uint8)}
    stoker.connect(uri, storage_options=store.options).create_table("samples", rows)
    with closing(Outage(store.port)) as proxy:
        server = Server(uri, {**store.environment(), "AWS_ENDPOINT": f"http://127.0.0.1:{proxy.port}"})
        # The budgets of the connection (1,200 s) and of the server (120 s) are longer than the test waits (60 s).
        lake = stoker.connect(server.url, retry_budget_secs=10 * PATIENCE)
        stream = lake.sql(f"SELECT {columns} FROM samples").stream(batch_size=8, retry_budget_secs=1)
        proxy.is_shut.set()
        with ThreadPoolExecutor(1) as pool:
            streaming = pool.submit(list, stream)
            assert proxy.refused.acquire(timeout=PATIENCE)
            with pytest.raises(stoker.UnavailableError, match=r"samples@1|receiving step 0 failed"):
                streaming.result(timeout=PATIENCE / 2)
        proxy.is_shut.clear()
        assert sum(batch.num_valid for batch in stream) == NUM_ROWS
        server.stop()


class MissesOnce(S3Proxy):
    """Responds with 404 to the first `times` GETs of each range of a data file."""

    def __init__(self, upstream_port: int, times: int) -> None:
        self._times = times
        self._num_missed: dict[str, int] = {}
        super().__init__(upstream_port, Faults(0, {}))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await Head.read(reader)) is not None:
            asked = f"{request.path} {request.headers.get('range')}"
            if request.method == "GET" and "/data/" in asked and self._num_missed.get(asked, 0) < self._times:
                self._num_missed[asked] = self._num_missed.get(asked, 0) + 1
                self.faults.count("missed")
                await self._answer(request, reader, writer, 404)
            elif not await self._forward(request, reader, writer, None):
                return None
        return None


@pytest.mark.parametrize("times", [1, 1_000])
def test_a_file_that_is_missing_once_is_no_loss(store: Store, times: int) -> None:
    uri = f"s3://{BUCKET}/missing-{times}"
    # Lance retries its own reads. Stoker reads the rows of the dense column `wide` and must retry these itself.
    rows = {**make_columns(NUM_ROWS), "wide": np.ones((NUM_ROWS, 2048), np.uint8)}
    stoker.connect(uri, storage_options=store.options).create_table("samples", rows)
    with closing(MissesOnce(store.port, times)) as proxy:
        query = stoker.connect(uri, storage_options=store.options_at(proxy.port)).sql(
            "SELECT id, name, image, wide FROM samples"
        )
        if times == 1:
            assert sorted(ids(query.stream(batch_size=16, seed=1))) == list(range(NUM_ROWS))
        else:
            with pytest.raises(stoker.DataCorruptError, match="samples"):
                ids(query.stream(batch_size=16, seed=1))
        assert proxy.faults.fired["missed"] > 0


class GoesOut(S3Proxy):
    """A store with one outage of `OUTAGE_SECS`, which begins with the GET of data number `GETS_BEFORE_OUTAGE`.

    During the outage, the proxy responds with an error status, resets connections, or never responds.
    """

    def __init__(self, upstream_port: int, how: int | str) -> None:
        self._how = how
        self._num_served = 0
        self._until = 0.0
        super().__init__(upstream_port, Faults(0, {}))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        now = asyncio.get_running_loop().time
        while (request := await Head.read(reader)) is not None:
            if request.method == "GET" and "/data/" in request.path:
                self._num_served += 1
                if self._num_served == GETS_BEFORE_OUTAGE:
                    self._until = now() + OUTAGE_SECS
            if now() >= self._until:
                if not await self._forward(request, reader, writer, None):
                    return None
                continue
            self.faults.count("refused")
            if isinstance(self._how, int):
                await self._answer(request, reader, writer, self._how)
                continue
            if self._how == "hangs":
                # After the outage, this request still gets no response.
                await until_closed(reader)
            return reset(writer)
        return None


OUTAGE_SECS = 5
GETS_BEFORE_OUTAGE = 12


@pytest.mark.parametrize("how", [500, 503, "resets", "hangs"])
def test_an_outage_of_a_store_costs_few_requests_and_no_row(store: Store, how: int | str) -> None:
    uri, num_rows = f"s3://{BUCKET}/outage-{how}", 1_000
    columns = {"id": range(num_rows), "x": np.zeros((num_rows, 8_192), np.uint8)}
    stoker.connect(uri, storage_options=store.options).create_table("samples", columns, rows_per_fragment=100)
    with closing(GoesOut(store.port, how)) as proxy:
        options = store.options_at(proxy.port)
        if how == "hangs":
            options |= {"timeout": "1s", "client_max_retries": "0"}
        lake = stoker.connect(uri, storage_options=options)
        stream = lake.sql("SELECT id, x FROM samples").stream(batch_size=10, seed=1, memory_budget_bytes=1 << 20)
        assert sorted(ids(stream)) == list(range(num_rows))
        # The store refuses the requests that were in flight, the retries of their clients, and one probe per second.
        least = 1 if how == "hangs" else OUTAGE_SECS - 1
        assert least <= proxy.faults.fired["refused"] < 300
