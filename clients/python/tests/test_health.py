"""A server tells operators its health, its readiness, its metrics, request ids, and who streamed what."""

from __future__ import annotations

import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest
from conftest import Server
from pyarrow import flight
from s3_store import BUCKET, Store
from test_outages import Outage

import stoker

NUM_ROWS = 300
#: Bytes of a row: a table has more than the buffers between a server and a client can hold.
ROW_BYTES = 128 << 10
QUERY = "SELECT id, image FROM samples"
PATIENCE = 60

Found = TypeVar("Found")


class Operated:
    """A server with an address for operators, and the lines of its log."""

    def __init__(self, lake: str, **environment: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"STOKER_ADMIN_LISTEN": "127.0.0.1:0", **environment}.items():
                patch.setenv(name, value)
            self._server = Server(lake)
        self.lines = self._server.lines
        self.url = self._server.url
        self._out = self._server.process.stdout
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.admin = self.logged(r"operators are answered at (http://127\.0\.0\.1:\d+)")[1]

    def _read(self) -> None:
        assert self._out is not None
        for line in self._out:
            self.lines.append(line)

    def logged(self, pattern: str) -> re.Match[str]:
        """Waits until a line of the log matches a pattern; returns the match."""
        found = until(lambda: [*filter(None, (re.search(pattern, plain(line)) for line in list(self.lines)))])
        return found[0]

    def get(self, path: str) -> tuple[int, str]:
        """Sends a GET request; returns the status and the body of the response."""
        try:
            with urllib.request.urlopen(self.admin + path, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        """Returns the value of a metric, 0 if it is not there; the name includes the labels."""
        status, text = self.get("/metrics")
        assert status == 200
        assert text.endswith("# EOF\n")
        found = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.rsplit(" ", 1)[0] == name]
        return float(found[0]) if found else 0.0

    def close(self) -> None:
        self._server.process.terminate()
        self._server.process.wait(timeout=PATIENCE)
        self._reader.join()


def plain(line: str) -> str:
    """Returns a line without the escape sequences of colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


def until(condition: Callable[[], Found], every: float = 0.02) -> Found:
    """Polls every `every` seconds until a value is true, and returns the value."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come to pass"
        threading.Event().wait(every)
    return found


@pytest.fixture(scope="module")
def lake_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("operated") / "lake")
    stoker.connect(uri).create_table("samples", columns())
    return uri


def columns() -> dict[str, object]:
    return {"id": range(NUM_ROWS), "image": np.ones((NUM_ROWS, ROW_BYTES), np.uint8)}


@pytest.fixture
def operated(lake_uri: str) -> Iterator[Operated]:
    with closing(Operated(lake_uri, STOKER_STREAMS_MAX="1")) as server:
        yield server


def begun(url: str) -> tuple[stoker.Stream, Iterator[stoker.Batch]]:
    """Begins a stream and takes one batch, so that the server waits for the client."""
    stream = stoker.connect(url).sql(QUERY).stream(batch_size=4, seed=1, memory_budget_bytes=1 << 20)
    batches = iter(stream)
    next(batches)
    return stream, batches


def test_a_server_is_alive_and_ready(operated: Operated) -> None:
    assert operated.get("/healthz") == (200, "alive\n")
    assert operated.get("/readyz") == (200, "ready\n")
    assert operated.get("/elsewhere")[0] == 404
    posted = urllib.request.Request(operated.admin + "/readyz", data=b"")
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(posted, timeout=PATIENCE)


def test_a_server_whose_places_are_taken_is_not_ready(operated: Operated) -> None:
    stream, batches = begun(operated.url)
    status, text = operated.get("/readyz")
    assert status == 503
    assert "1 streams are running" in text
    assert operated.get("/healthz")[0] == 200
    assert operated.metric("stoker_ready") == 0
    assert sum(int(batch.valid.sum()) for batch in batches) == NUM_ROWS - 4
    stream.close()
    until(lambda: operated.get("/readyz")[0] == 200)


def test_a_server_whose_queue_of_queries_is_full_is_not_ready(lake_uri: str) -> None:
    with closing(Operated(lake_uri, STOKER_QUERIES_AT_ONCE="1", STOKER_QUERIES_WAITING="0")) as server:
        lake = stoker.connect(server.url)
        rows = lake.sql("SELECT a.id, a.image FROM samples a, samples b").to_reader()
        rows.read_next_batch()
        assert "the limits of running and waiting queries are reached" in server.get("/readyz")[1]
        assert server.metric("stoker_queries_running") == 1
        with pytest.raises(stoker.ResourceExhaustedError, match="the queue is full"):
            stoker.connect(server.url, retry_budget_secs=1).sql("SELECT count(*) FROM samples").to_arrow()
        assert server.metric("stoker_queries_refused_total") >= 1
        del rows
        until(lambda: server.get("/readyz")[0] == 200)


def test_a_server_whose_store_is_down_is_not_ready_until_it_is_back(store: Store) -> None:
    uri = f"s3://{BUCKET}/operated"
    stoker.connect(uri, storage_options=store.options).create_table("samples", {"id": range(10)})
    with closing(Outage(store.port)) as proxy:
        options = {name.upper(): value for name, value in store.options_at(proxy.port).items()}
        with closing(Operated(uri, **options)) as server:
            assert server.get("/readyz")[0] == 200
            proxy.is_shut.set()
            until(lambda: "the store of the lake cannot be used: Unavailable" in server.get("/readyz")[1])
            assert server.get("/healthz")[0] == 200
            assert server.metric('stoker_store_requests_total{result="failed"}') > 0
            proxy.is_shut.clear()
            until(lambda: server.get("/readyz")[0] == 200)


def test_metrics_tell_what_a_server_does(operated: Operated) -> None:
    client = flight.connect(operated.url)
    rows, answered = "stoker_stream_rows_total", 'stoker_requests_total{{method="{}",code="{}"}}'
    stream, batches = begun(operated.url)
    # The server may count an epoch as two streams, because a client may request the first batch before the others.
    until(lambda: operated.metric("stoker_streams_running") == 1)
    # While a stream runs, the server adds its rows to the metric about once a second. The client takes batches so
    # slowly that after a second the server has sent only a small part of the rows.
    num_running = until(lambda: next(batches) and operated.metric(rows), every=0.2)
    assert 0 < num_running <= NUM_ROWS
    assert operated.metric("stoker_streams_running") == 1
    for _ in batches:
        pass
    stream.close()
    until(lambda: operated.metric("stoker_streams_running") == 0)
    assert operated.metric("stoker_streams_ended_total") >= 1
    assert operated.metric(rows) >= NUM_ROWS
    assert operated.metric("stoker_stream_column_bytes_total") >= NUM_ROWS * ROW_BYTES
    assert operated.metric(answered.format("DoGet", "OK")) >= 1
    assert operated.metric('stoker_request_duration_seconds_count{method="DoGet"}') >= 1
    assert operated.metric("stoker_stream_first_rows_seconds_count") >= 1
    assert operated.metric("stoker_process_resident_bytes") > 1 << 20
    for number in range(30):
        with pytest.raises(pa.ArrowInvalid, match="unknown-"):
            list(client.do_action(flight.Action(f"unknown-{number}", b"")))
    assert operated.metric(answered.format("DoAction", "INVALID_ARGUMENT")) == 30
    assert len(operated.get("/metrics")[1].splitlines()) < 300, "what clients send makes no labels"


def test_the_log_tells_who_streamed_what(operated: Operated) -> None:
    lake = stoker.connect(operated.url)
    stream = lake.sql(QUERY).stream(batch_size=4, seed=1)
    assert sum(int(batch.valid.sum()) for batch in stream) == NUM_ROWS
    line = operated.logged(r"access: .*kind=\"stream\".*")[0]
    for part in [
        f"{stream.stream_id} epoch 0 rank 0/1 step 0",
        "at 127.0.0.1",
        f"rows={NUM_ROWS}",
        "is_complete=true",
    ]:
        assert part in line
    assert re.search(r"request_id=[0-9a-f]{16}", line)
    assert lake.sql("SELECT id FROM samples WHERE id < 10").to_arrow().num_rows == 10
    line = operated.logged(r"access: .*kind=\"query\".* rows=10 .*")[0]
    assert "SELECT" not in line


class Answers(flight.ClientMiddlewareFactory, flight.ClientMiddleware):  # type: ignore[misc]
    """A middleware that records the headers of responses."""

    def __init__(self) -> None:
        super().__init__()
        self.headers: dict[str, list[str]] = {}

    def start_call(self, _info: flight.CallInfo) -> Answers:
        return self

    def received_headers(self, headers: dict[str, list[str]]) -> None:
        self.headers.update(headers)


@pytest.mark.parametrize(("given", "kept"), [("job-7.step_41337", "job-7.step_41337"), ("two words", "[0-9a-f]{16}")])
def test_requests_have_the_id_that_their_client_gave_them(operated: Operated, given: str, kept: str) -> None:
    answers = Answers()
    client = flight.connect(operated.url, middleware=[answers])
    named = flight.FlightCallOptions(headers=[(b"x-request-id", given.encode())])
    list(client.do_action(flight.Action("version", b""), named))
    assert re.fullmatch(kept, answers.headers["x-request-id"][0])
