"""Bad input from Python, the command line or stock Flight clients gives an error with its cause and changes nothing."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import NUM_ROWS, Server, make_columns
from PIL import Image
from pyarrow import flight

import stoker

IDS = "SELECT id FROM samples"
SECRET = "secret-that-nobody-may-see"

#: The Python exception of each error kind.
ERRORS = {error.kind: error for error in stoker.StokerError.__subclasses__()}

#: For each error kind, the exception that pyarrow raises for its gRPC code, and pyarrow's words for the code.
STATUSES: dict[str, tuple[type[Exception], str]] = {
    "not_found": (pa.ArrowKeyError, "not found error"),
    "invalid_request": (pa.ArrowInvalid, "invalid argument error"),
    "unauthenticated": (flight.FlightUnauthenticatedError, "unauthenticated error"),
    "expired": (pa.ArrowInvalid, "precondition failed error"),
    "state_mismatch": (pa.ArrowInvalid, "precondition failed error"),
    "data_corrupt": (flight.FlightInternalError, "data loss error"),
    "unavailable": (flight.FlightUnavailableError, "unavailable error"),
}

#: Bad queries, each with the kind of its error and texts in the message.
QUERIES = [
    ("SELECT * FROM nothing", "not_found", ["table nothing in ", "tables: samples"]),
    ("SELECT nope FROM samples", "invalid_request", ["column nope", "samples.label"]),
    (f"{IDS} WHERE nope = 1", "invalid_request", ["column nope", "samples.label"]),
    (f"{IDS} AT (TAG => 'v9')", "not_found", ["tag 'v9' of table samples", "tags: v1"]),
    (f"{IDS} AT (VERSION => 99)", "not_found", ["version 99 of table samples", "nearest versions: 1, 2"]),
    ("SELEC id FROM samples", "invalid_request", ["found: SELEC at Line: 1, Column: 1"]),
    (f"{IDS} WHERE", "invalid_request", ["Expected: an expression, found: EOF"]),
    ("SELECT id FROM 'samples", "invalid_request", ["Unterminated string literal at Line: 1, Column: 16"]),
    (f"{IDS}; {IDS}", "invalid_request", ["several statements"]),
    ("DROP TABLE samples", "invalid_request", ["a statement that changes the lake", "lake.execute"]),
    ("SET a = 1", "invalid_request", ["SET a", "only SELECT"]),
    (f"{IDS} WHERE id = $1", "invalid_request", ["parameter $1"]),
    (f"{IDS} WHERE id > {'+'.join('1' * 2000)}", "invalid_request", ["levels of nesting", "the limit is 400"]),
    ("SELECT repeat('x', 1000000000)", "invalid_request", ["function repeat"]),
    ("SELECT id FROM vector_search(nothing, emb, [1.0], k => 5)", "not_found", ["table nothing in "]),
    ("SELECT id FROM vector_search(samples, nope, [1.0], k => 5)", "invalid_request", ["column nope", "samples"]),
]


def contents(lake_path: str) -> tuple[object, object]:
    """Returns the tables of a lake with their versions, and their files with times, except the tags of streams."""
    lake = stoker.connect(lake_path)
    found = [file for file in Path(lake_path).glob("*.lance/**/*") if not file.name.startswith("stoker.until.")]
    files = {file: file.stat().st_mtime_ns for file in found if file.is_file()}
    return {name: lake.table(name).versions() for name in lake.tables()}, files


@contextmanager
def unchanged(lake_path: str) -> Iterator[None]:
    """Checks that the body does not change the lake."""
    before = contents(lake_path)
    yield
    assert contents(lake_path) == before


def said(error: object, words: list[str]) -> str:
    """Returns the text of an error; fails unless it contains all words."""
    text = str(error)
    for word in words:
        assert word in text
    return text


def refuses(kind: str, words: list[str], call: Callable[..., object], /, *args: Any, **options: Any) -> str:
    """Checks that a call raises the exception of a kind; returns its text."""
    with pytest.raises(stoker.StokerError) as raised:
        call(*args, **options)
    assert raised.type is ERRORS[kind], raised.value
    return said(raised.value, words)


def cli(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [os.environ["STOKER_BIN"], *args]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)


def cli_refuses(words: list[str], *args: str, **environment: str) -> str:
    """Checks that a command fails with an error rather than a panic; returns its whole output."""
    done = cli(*args, **environment)
    assert done.returncode == 1, done.stderr
    assert "panicked" not in done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    said(error, words)
    return done.stdout + done.stderr


@contextmanager
def serving(lake_path: str, **environment: str) -> Iterator[Server]:
    """Runs a server with settings from the environment; it must not panic, log the secret or end with an error."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        running = Server(lake_path)
    try:
        yield running
    finally:
        running.process.terminate()
        log = running.process.stdout.read() if running.process.stdout else ""
        status = running.process.wait(timeout=60)
    assert "panicked" not in log
    assert SECRET not in log
    assert status == 0, log


class Wire(flight.ClientMiddlewareFactory):
    """A stock Flight client that records the error kinds, which the server sends in a header beside the status."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.kinds: list[str] = []
        self.client = flight.connect(url, middleware=[self])

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()

    def start_call(self, info: object) -> flight.ClientMiddleware:
        kinds = self.kinds

        class Listener(flight.ClientMiddleware):
            def received_headers(self, headers: Mapping[str, list[str]]) -> None:
                kinds.extend(headers.get("stoker-error-kind", []))

        return Listener()

    def ticket(self, descriptor: flight.FlightDescriptor) -> bytes:
        return self.client.get_flight_info(descriptor).endpoints[0].ticket.ticket

    def rows(self, ticket: bytes) -> int:
        return self.client.do_get(flight.Ticket(ticket)).read_all().num_rows

    def act(self, name: str, body: bytes) -> list[object]:
        return list(self.client.do_action(flight.Action(name, body)))

    def refuses(self, kind: str, words: list[str], call: Callable[..., object], *args: Any) -> str:
        """Checks that a call fails with the status and the header of an error kind; returns the error's text."""
        error, status = STATUSES[kind]
        self.kinds.clear()
        with pytest.raises(error) as raised:
            call(*args)
        assert set(self.kinds) == {kind}
        return said(raised.value, [status, *words])


@pytest.fixture(scope="module")
def server(lake_path: str) -> Iterator[Server]:
    with serving(lake_path) as running:
        yield running


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    with Wire(server.url) as wire:
        yield wire


@pytest.fixture(params=["in process", "through a server"])
def place(request: pytest.FixtureRequest, lake_path: str, server: Server) -> stoker.Lake:
    return stoker.connect(lake_path if request.param == "in process" else server.url)


@pytest.fixture(autouse=True)
def the_lake_stays_as_it_was(lake_path: str) -> Iterator[None]:
    with unchanged(lake_path):
        yield


def message(fields: Mapping[int, int | str | bytes]) -> bytes:
    """Encodes a Protocol Buffers message with varints and length-delimited fields. See `stream.proto`."""
    encoded = b""
    for number, value in fields.items():
        if isinstance(value, int):
            encoded += _varint(number << 3) + _varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            encoded += _varint(number << 3 | 2) + _varint(len(data)) + data
    return encoded


def _varint(value: int) -> bytes:
    high = b""
    while value > 0x7F:
        high += bytes([value & 0x7F | 0x80])
        value >>= 7
    return high + bytes([value])


def sql_command(sql: str) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(message({1: 1, 3: message({1: sql})}))


def stream_command(
    source: Mapping[int, str | bytes], batch: Mapping[int, int | str | bytes] | None = None
) -> flight.FlightDescriptor:
    """Returns the descriptor of a stream by query (field 1), stream id (2) or specification (3), in batches of 10."""
    slice_of_one_rank = message({2: 1, 3: 10} if batch is None else batch)
    return flight.FlightDescriptor.for_command(message({1: 1, 2: message({**source, 4: slice_of_one_rank})}))


@pytest.mark.parametrize(("sql", "kind", "words"), QUERIES)
def test_queries(place: stoker.Lake, sql: str, kind: str, words: list[str]) -> None:
    query = stoker.Query(place, sql, [])
    refuses(kind, words, place.sql, sql)
    refuses(kind, words, query.to_arrow)
    refuses(kind, words, query.explain)
    refuses(kind, words, query.stream, batch_size=4)


@pytest.mark.parametrize(("sql", "kind", "words"), QUERIES)
def test_queries_on_the_wire(wire: Wire, sql: str, kind: str, words: list[str]) -> None:
    for descriptor in (sql_command(sql), stream_command({1: message({1: sql})})):
        wire.refuses(kind, words, wire.client.get_flight_info, descriptor)
        wire.refuses(kind, words, wire.client.get_schema, descriptor)
    wire.refuses(kind, words, wire.act, "explain", json.dumps({"sql": sql}).encode())


def test_names(place: stoker.Lake) -> None:
    refuses("not_found", ["table nothing in ", "tables: samples"], place.table, "nothing")
    refuses("not_found", ["tag 'v9' of table samples", "tags: v1"], place.table, "samples", tag="v9")
    refuses("not_found", ["version 99 of table samples", "versions: 1, 2"], place.table, "samples", version=99)
    refuses("invalid_request", ['table name "../samples"'], place.table, "../samples")
    refuses("invalid_request", ['table name ""', "empty"], place.table, "")
    table = place.table("samples")
    refuses("already_exists", ["tag 'v1' of table samples", "names version 1"], table.tag, "v1")
    refuses("invalid_request", ['tag "a b"'], table.tag, "a b")


def test_writing(place: stoker.Lake, server: Server) -> None:
    table, columns = place.table("samples"), make_columns(3)
    del columns["label"]
    if place.target == server.url:
        read_only = ["does not support writing", "--allow-writes"]
        calls: list[Callable[[], object]] = [partial(place.create_table, "t", columns), partial(table.append, columns)]
        for call in calls:
            refuses("permission_denied", read_only, call)
        refuses("permission_denied", read_only, table.create_index, "label", kind="btree")
        refuses("permission_denied", read_only, place.execute, "DROP INDEX label_idx ON samples")
        return
    refuses("already_exists", ["table samples already exists in /"], place.create_table, "samples", columns)
    refuses("invalid_request", ["table samples", "column label"], table.append, columns)
    refuses("invalid_request", ["nope", "samples"], table.create_index, "nope", kind="btree")


def test_names_on_the_wire(wire: Wire) -> None:
    path = flight.FlightDescriptor.for_path
    for call in (wire.client.get_flight_info, wire.client.get_schema):
        wire.refuses("not_found", ["table nothing in ", "tables: samples"], call, path("nothing"))
        wire.refuses("invalid_request", ['table name "../samples"'], call, path("../samples"))
        wire.refuses("invalid_request", ["PATH names one table"], call, path("samples", "id"))
    for request, kind, words in [
        ({"table": "nothing"}, "not_found", ["table nothing in ", "tables: samples"]),
        ({"table": "samples", "tag": "v9"}, "not_found", ["tag 'v9' of table samples", "tags: v1"]),
        ({"table": "samples", "version": 99}, "not_found", ["version 99 of table samples"]),
        ({"table": "samples", "tag": "v1", "version": 1}, "invalid_request", ["version or a tag"]),
        ({"table": "../samples"}, "invalid_request", ['table name "../samples"']),
        ({"colour": "red"}, "invalid_request", ["action table", "colour"]),
        ({}, "invalid_request", ["needs a table"]),
    ]:
        wire.refuses(kind, words, wire.act, "table", json.dumps(request).encode())
    wire.refuses("invalid_request", ["action table", "line 1 column 2"], wire.act, "table", b"{table")
    wire.refuses("invalid_request", ['no action "dance"', "tables"], wire.act, "dance", b"")


def test_malformed_descriptors(wire: Wire) -> None:
    command, ids = flight.FlightDescriptor.for_command, {1: message({1: IDS})}
    for descriptor, words in [
        (command(b"no command"), ["not a stoker.v1.Command"]),
        (command(b""), ["version is 0, this server knows 1"]),
        (command(message({1: 2, 3: message({1: IDS})})), ["version is 2, this server knows 1"]),
        (command(message({1: 1})), ["neither a stream nor a SQL request"]),
        (command(message({1: 1, 3: message({1: IDS})})[:-1]), ["not a stoker.v1.Command"]),
        (stream_command({}), ["a query, a stream id or a specification"]),
        (stream_command({1: message({1: IDS, 2: "{"})}), ["parameters", "line 1 column"]),
        (stream_command({1: message({1: IDS, 4: "maybe"})}), ['shuffle is "maybe"']),
        (stream_command(ids, {1: 2, 2: 2, 3: 10}), ["rank 2", "world size 2"]),
        (stream_command(ids, {2: 0, 3: 10}), ["world size 0"]),
        (stream_command(ids, {2: 1, 3: 0}), ["batch size", "between 1 and"]),
        (stream_command(ids, {2: 1}), ["batch size"]),
        (stream_command(ids, {2: 1, 3: 10, 5: "maybe"}), ['last_batch is "maybe"']),
    ]:
        wire.refuses("invalid_request", words, wire.client.get_flight_info, descriptor)


def test_tickets_that_were_changed(wire: Wire) -> None:
    for descriptor in (sql_command(IDS), stream_command({1: message({1: IDS})})):
        ticket = wire.ticket(descriptor)
        assert wire.rows(ticket) in (NUM_ROWS, NUM_ROWS + 9), "the ticket itself is good; streams are padded"
        body = ticket.index(b"\x12") + 2  # The body comes after the id of the key, a tag and a length.
        for position in range(body, len(ticket)):
            changed = ticket[:position] + bytes([ticket[position] ^ 1]) + ticket[position + 1 :]
            wire.refuses("unauthenticated", ["the ticket is not valid", "request a new one"], wire.rows, changed)
        for changed in (ticket[:-1], b"no ticket"):
            wire.refuses("unauthenticated", ["not a ticket of Stoker"], wire.rows, changed)
        renamed = ticket[:2] + bytes([ticket[2] ^ 1]) + ticket[3:]
        wire.refuses("expired", ["its key is unknown to this server"], wire.rows, renamed)
    wire.refuses("expired", ["its key is unknown to this server"], wire.rows, b"")


def test_tickets_of_another_key(lake_path: str, wire: Wire) -> None:
    tickets = [wire.ticket(sql_command(IDS)), wire.ticket(stream_command({1: message({1: IDS})}))]
    key, other_key = "shared:sixteen bytes or more", "shared:sixteen other bytes"
    with serving(lake_path, STOKER_TICKET_KEY=key) as server, Wire(server.url) as signer:
        for ticket in tickets:
            signer.refuses("expired", ["its key is unknown to this server"], signer.rows, ticket)
        ticket = signer.ticket(sql_command(IDS))
        assert signer.rows(ticket) == NUM_ROWS
    with serving(lake_path, STOKER_TICKET_KEY=key) as server, Wire(server.url) as replica:
        assert replica.rows(ticket) == NUM_ROWS
    with serving(lake_path, STOKER_TICKET_KEY=other_key) as server, Wire(server.url) as stranger:
        words = ["changed or signed with another key", "request a new one"]
        stranger.refuses("unauthenticated", words, stranger.rows, ticket)


def test_tickets_that_expired(lake_path: str) -> None:
    with serving(lake_path, STOKER_TICKET_TTL_SECS="1") as server, Wire(server.url) as wire:
        for descriptor in (sql_command(IDS), stream_command({1: message({1: IDS})})):
            endpoint = wire.client.get_flight_info(descriptor).endpoints[0]
            ticket, expires = endpoint.ticket.ticket, endpoint.expiration_time.as_py()
            while datetime.now(timezone.utc) < expires:
                try:
                    assert wire.rows(ticket) >= NUM_ROWS
                except pa.ArrowInvalid:
                    assert datetime.now(timezone.utc) >= expires, "it is good until then"
            words = ["it expired", "s ago", "request a new one with the cursor"]
            wire.refuses("expired", words, wire.rows, ticket)
        # A stream in Python requests a new ticket itself when its ticket has expired.
        stream = stoker.connect(server.url).sql(IDS).stream(batch_size=10)
        assert sorted(row for batch in stream for row in batch["id"][batch.valid].tolist()) == list(range(NUM_ROWS))


def test_tokens(lake_path: str) -> None:
    with serving(lake_path, STOKER_TOKEN="the right token of it") as server, Wire(server.url) as wire:
        wrong = stoker.connect(server.url, token=SECRET)
        for call in (wrong.tables, partial(wrong.table, "samples"), partial(wrong.sql, IDS)):
            assert SECRET not in refuses("unauthenticated", ["the token is not valid"], call)
        refuses("unauthenticated", ["a bearer token is needed"], stoker.connect(server.url).tables)
        wire.refuses("unauthenticated", ["a bearer token is needed"], wire.rows, b"")
        wire.refuses("unauthenticated", ["a bearer token is needed"], wire.ticket, sql_command(IDS))
        assert stoker.connect(server.url, token="the right token of it").tables() == ["samples"]


@pytest.mark.parametrize(
    ("sql", "options", "words"),
    [
        (IDS, {"seed": 2}, ["seed: the state has 1, the stream has 2"]),
        (f"{IDS} WHERE id > 3", {"seed": 1}, [f'query: the state has "{IDS}", the stream has "{IDS} WHERE id > 3"']),
        (f"{IDS} AT (TAG => 'v1')", {"seed": 1}, ["the state has samples@2, the stream has samples@1"]),
        (
            IDS,
            {"seed": 1, "shuffle": False},
            ["order options: the state has shuffle block", "the stream has shuffle sequential"],
        ),
    ],
)
def test_states_of_other_streams(place: stoker.Lake, sql: str, options: dict[str, Any], words: list[str]) -> None:
    started = place.sql(IDS).stream(batch_size=10, seed=1)
    next(iter(started))
    state = started.state_dict()
    other = place.sql(sql).stream(batch_size=10, **options)
    place_of_other = other.state_dict()
    for given in (state, json.dumps(state)):
        refuses("state_mismatch", ["the state belongs to another stream", *words], other.load_state_dict, given)
    assert other.state_dict() == place_of_other
    assert sum(batch.num_valid for batch in other) == other.num_rows


def test_states_that_are_none(place: stoker.Lake) -> None:
    stream = place.sql(IDS).stream(batch_size=10, seed=1)
    state = stream.state_dict()
    for given, words in [
        ("no json", ["line 1 column 2"]),
        (json.dumps(state)[:-1], ["EOF", "line 1 column"]),
        ("[]", ["line 1 column 2"]),
        ({}, ["missing field `version`"]),
        ({**state, "version": 99}, ["its version is 99"]),
        ({**state, "stream_id": "ab"}, ["64 hexadecimal digits"]),
        ({**state, "position": -1}, ["-1"]),
        ({**state, "colour": "red"}, ["colour"]),
        ({**state, "seed": {1}}, ["set"]),
    ]:
        refuses("invalid_request", ["cannot read stream state", *words], stream.load_state_dict, given)
    beyond = {**state, "position": NUM_ROWS + 1}
    words = [f"position {NUM_ROWS + 1} lies beyond the {NUM_ROWS} rows"]
    refuses("state_mismatch", words, stream.load_state_dict, beyond)
    assert stream.state_dict() == state


def test_states_for_the_command_line(place: stoker.Lake, server: Server) -> None:
    state = json.dumps(place.sql(IDS).stream(batch_size=10, seed=1).state_dict())
    target = ["--server" if place.target == server.url else "--lake", place.target]
    resume = ["stream", IDS, "--batch-size", "10", *target]
    cli_refuses(["seed: the state has 1, the stream has 2"], *resume, "--seed", "2", "--state", state)
    cli_refuses(["cannot read stream state", "line 1 column"], *resume, "--state", state[:-1])
    resumed = cli(*resume, "--seed", "1", "--state", state)
    assert resumed.returncode == 0, resumed.stderr


def test_streams_on_the_wire(wire: Wire) -> None:
    spec = json.loads(wire.client.get_flight_info(stream_command({1: message({1: IDS})})).app_metadata)
    row_set = spec["sources"][0]["row_set"]
    of_source: list[tuple[dict[str, object], str, list[str]]] = [
        ({"row_set": "0" * 64}, "state_mismatch", [row_set, "0" * 64]),
        ({"num_rows": 7}, "invalid_request", ["the numbers of rows of its epoch and of its query differ"]),
        ({"snapshots": [{"table": "samples", "version": 1}]}, "state_mismatch", [row_set]),
        ({"snapshots": [{"table": "samples", "version": 99}]}, "not_found", ["version 99 of table samples"]),
        ({"snapshots": []}, "invalid_request", ["snapshots", "samples"]),
        ({"sql": "SELECT nope FROM samples"}, "invalid_request", ["column nope"]),
        ({"order": {}}, "invalid_request", ["stream specification", "missing field"]),
        ({"tables": []}, "state_mismatch", ["its rows come from"]),
    ]
    mixture = {"version": 1, "stop": "first", "segments": [{"start": 0, "drawn": [0], "slots": [0]}]}
    changed: list[tuple[dict[str, object], str, list[str]]] = [
        ({"version": 9}, "invalid_request", ["stream specification", "version is 9"]),
        ({"sources": []}, "invalid_request", ["it has no query"]),
        ({"mixture": mixture}, "invalid_request", ["mixture", "do not fit 1 sources"]),
    ]
    changed += [({"sources": [{**spec["sources"][0], **change}]}, kind, words) for change, kind, words in of_source]
    same_rows = {"num_rows": 7, "sources": [{**spec["sources"][0], "num_rows": 7}]}
    changed.append((same_rows, "state_mismatch", ["7 rows were planned, 101 were found"]))
    for change, kind, words in changed:
        descriptor = stream_command({3: json.dumps({**spec, **change})})
        wire.refuses(kind, words, wire.client.get_flight_info, descriptor)
    for source, kind, words in [
        ({3: "{"}, "invalid_request", ["stream specification", "line 1 column"]),
        ({2: "ab"}, "invalid_request", ["64 hexadecimal digits"]),
        ({2: "0" * 64}, "not_found", [f"stream {'0' * 64} is in the lake"]),
    ]:
        wire.refuses(kind, words, wire.client.get_flight_info, stream_command(source))


@pytest.fixture(scope="module")
def sound_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the table `t`: the heavy column `image` in one file, the light columns `id` and `name` in another."""
    path = tmp_path_factory.mktemp("sound")
    ids = np.arange(300)
    images = np.zeros((300, 3, 32, 32), np.uint8)
    stoker.connect(str(path)).create_table("t", {"image": images, "id": ids, "name": [f"row {i}" for i in ids]})
    return path


def data_file(lake_path: Path, column: str) -> Path:
    light, heavy = sorted((lake_path / "t.lance" / "data").iterdir(), key=lambda file: file.stat().st_size)
    return heavy if column == "image" else light


def rows_of(lake: stoker.Lake, sql: str) -> int:
    return sum(batch.num_valid for batch in lake.sql(sql).stream(batch_size=30))


@pytest.mark.parametrize("column", ["image", "name", "id"])
def test_a_truncated_file(tmp_path: Path, sound_path: Path, column: str) -> None:
    path = shutil.copytree(sound_path, tmp_path / "lake")
    file = data_file(path, column)
    size = file.stat().st_size
    os.truncate(file, size // 2)
    sql, sound = f"SELECT {column} FROM t", "SELECT id FROM t" if column == "image" else "SELECT image FROM t"
    words = [file.name, "t@1", f"says {size} bytes, the file has {size // 2}"]
    with unchanged(str(path)), serving(str(path)) as server, Wire(server.url) as wire:
        for lake in (stoker.connect(str(path)), stoker.connect(server.url)):
            refuses("data_corrupt", words, rows_of, lake, sql)
            refuses("data_corrupt", words, lake.sql(sql).to_arrow)
            refuses("data_corrupt", words, lake.table("t").describe)
            assert lake.sql(sound).to_arrow().num_rows == 300
        streamed, selected = stream_command({1: message({1: sql})}), wire.ticket(sql_command(sql))
        wire.refuses("data_corrupt", words, lambda: wire.rows(wire.ticket(streamed)))
        wire.refuses("data_corrupt", words, wire.rows, selected)
        wire.refuses("data_corrupt", words, wire.act, "describe", b'{"table": "t"}')
        for target in (["--lake", str(path)], ["--server", server.url]):
            cli_refuses(words, "stream", sql, *target)
            cli_refuses(words, "sql", sql, *target)
            cli_refuses(words, "describe", "t", *target)


@pytest.mark.parametrize("column", ["image", "name"])
def test_a_file_that_is_truncated_while_it_is_read(tmp_path: Path, sound_path: Path, column: str) -> None:
    path = shutil.copytree(sound_path, tmp_path / "lake")
    file, sql = data_file(path, column), f"SELECT {column} FROM t"
    words = [file.name, "t@1", "damaged"]
    with serving(str(path)) as server, Wire(server.url) as wire:
        streams = [stoker.connect(target).sql(sql).stream(batch_size=30) for target in (str(path), server.url)]
        ticket = wire.ticket(stream_command({1: message({1: sql})}))
        assert wire.rows(ticket) == 300
        os.truncate(file, 64)
        with unchanged(str(path)):
            for stream in streams:
                refuses("data_corrupt", words, list, stream)
                assert stream.state_dict()["position"] == 0
            wire.refuses("data_corrupt", words, wire.rows, ticket)


@pytest.fixture
def refusing() -> Iterator[str]:
    """The URL of an endpoint that refuses connections: its port is bound, but no socket listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def ends_without_the_secret(calls: list[Callable[[], str]]) -> None:
    """Makes calls concurrently; each must end, and its text must not contain the secret."""
    with ThreadPoolExecutor(len(calls)) as pool:
        texts = list(pool.map(lambda call: call(), calls))
    assert not [text for text in texts if SECRET in text]


def credentials(endpoint: str) -> dict[str, str]:
    return {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": SECRET}


def attempts(place: str) -> tuple[list[str], list[str]]:
    """Returns the texts in errors of listing the tables at a location, and of opening table `t` there."""
    return [f"listing the tables of {place}"], [f"opening table t in {place}"]


def test_an_endpoint_that_refuses(refusing: str) -> None:
    options = {"aws_endpoint": refusing, "aws_access_key_id": "someone", "aws_secret_access_key": SECRET}
    lake = stoker.connect("s3://bucket/lake", storage_options=options)
    assert SECRET not in repr(lake)
    listing, opening = attempts(f"s3://bucket/lake at {refusing}")
    calls = [
        partial(refuses, "unavailable", listing, lake.tables),
        partial(refuses, "unavailable", opening, lake.table, "t"),
        partial(refuses, "unavailable", opening, lake.sql, "SELECT id FROM t"),
        partial(refuses, "unavailable", opening, lake.create_table, "t", {"a": [1]}),
    ]
    ends_without_the_secret(calls)


def test_an_endpoint_that_refuses_the_command_line(refusing: str, pictures: Path) -> None:
    environment = {"STOKER_LAKE": "s3://bucket/lake", "STOKER_LOG": "debug", **credentials(refusing)}
    commands = [["tables"], ["serve", "--listen", "127.0.0.1:0"], ["ingest", "imagefolder", str(pictures), "t"]]
    words = [f"s3://bucket/lake at {refusing}"]
    ends_without_the_secret([partial(cli_refuses, words, *command, **environment) for command in commands])


class EmptyBucket(http.server.BaseHTTPRequestHandler):
    """An S3-compatible store whose listings are empty."""

    def do_GET(self) -> None:
        answer = b'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></ListBucketResult>'
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def store_of_one_bucket() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), EmptyBucket) as store:
        thread = threading.Thread(target=store.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{store.server_port}"
        finally:
            store.shutdown()
            thread.join()


def test_an_endpoint_that_refuses_a_server() -> None:
    with ExitStack() as stack:
        with store_of_one_bucket() as endpoint:
            server = stack.enter_context(serving("s3://bucket/lake", **credentials(endpoint)))
            assert stoker.connect(server.url).tables() == []
        taken = stack.enter_context(socket.socket())
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", int(endpoint.rpartition(":")[2])))
        lake = stoker.connect(server.url, retry_budget_secs=10)
        lister, asker = [stack.enter_context(Wire(server.url)) for _ in range(2)]
        # A server's errors do not tell clients the location of the lake.
        listing, opening = attempts("the lake")
        calls = [
            partial(refuses, "unavailable", listing, lake.tables),
            partial(refuses, "unavailable", opening, lake.sql, "SELECT id FROM t"),
            partial(lister.refuses, "unavailable", listing, lambda: list(lister.client.list_flights())),
            partial(asker.refuses, "unavailable", opening, asker.ticket, flight.FlightDescriptor.for_path("t")),
        ]
        ends_without_the_secret(calls)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder with three images in each of two classes."""
    for label in ("cat", "dog"):
        folder = tmp_path / "pictures" / label
        folder.mkdir(parents=True)
        for shade in range(3):
            Image.new("RGB", (4, 4), (shade, 0, 0)).save(folder / f"{shade}.png")
    return tmp_path / "pictures"


def test_text_that_is_named_like_an_image(tmp_path: Path, pictures: Path) -> None:
    path = str(tmp_path / "lake")
    os.mkdir(path)
    ingest = ["ingest", "imagefolder", str(pictures), "pictures", "--lake", path, "--quiet"]
    text = pictures / "dog" / "notes.png"
    text.write_text("this is text\n")
    words = [str(text), 'no PNG, JPEG or WebP file: it begins with "this is "']
    for options in (
        ["--on-error", "fail"],
        ["--images", "encoded"],
        ["--images", "encoded", "--no-verify"],
        ["--images", "both"],
        ["--mode", "overwrite"],
    ):
        with unchanged(path):
            cli_refuses(words, *ingest, *options)
    assert stoker.connect(path).tables() == []
    skipped = cli(*ingest, "--on-error", "skip")
    assert skipped.returncode == 0, skipped.stderr
    said(skipped.stderr, [f"skipped {text}: ", *words])
    said(skipped.stdout, ["version 1, 6 rows", "1 skipped"])
    paths = stoker.connect(path).sql("SELECT path FROM pictures").to_arrow()["path"].to_pylist()
    assert len(paths) == 6
    assert not [found for found in paths if "notes" in found]
    for mode in ("append", "overwrite"):
        with unchanged(path):
            cli_refuses(words, *ingest, "--mode", mode, "--again")
