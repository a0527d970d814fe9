"""A client of a server that lies about sizes or columns gets an error, and its process never crashes."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import Server, make_columns
from pyarrow import flight

import stoker

#: The largest length of a fixed-size list.
MANY = 2**31 - 1

#: A client that streams or selects from a server, and prints the number of rows or the error.
CLIENT = """
import sys, stoker
lake = stoker.connect(sys.argv[1], retry_budget_secs=2)
query = lake.sql("SELECT id, image FROM samples")
try:
    if sys.argv[2] == "select":
        rows = query.to_arrow().num_rows
    else:
        stream = query.stream(batch_size=int(sys.argv[2]), seed=1, memory_budget_bytes=1 << 26)
        rows = sum(int(batch.valid.sum()) for batch in stream)
    print("rows", rows)
except stoker.StokerError as error:
    print(type(error).__name__, error)
"""


class Liar(flight.FlightServerBase):  # type: ignore[misc]
    """A server that forwards all requests to a real one, and falsifies its responses."""

    def __init__(self, real: Server, lie: str) -> None:
        self._lie = lie
        self._real = flight.connect(real.url)
        super().__init__("grpc://127.0.0.1:0")

    def get_flight_info(self, _: Any, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        info = self._real.get_flight_info(descriptor)
        schema = wide(info.schema) if self._lie == "a plan of wide rows" else info.schema
        return flight.FlightInfo(
            schema, descriptor, info.endpoints, info.total_records, 0, app_metadata=info.app_metadata
        )

    def do_action(self, _: Any, action: flight.Action) -> Iterator[flight.Result]:
        return iter(self._real.do_action(action))

    def do_get(self, _: Any, ticket: flight.Ticket) -> flight.GeneratorStream:
        reader = self._real.do_get(ticket)
        schema = reader.schema
        if self._lie in ("a plan of wide rows", "wide rows"):
            schema = wide(schema)
        if self._lie == "another name":
            schema = schema.set(0, schema.field(0).with_name("other"))
        if self._lie == "a column less":
            schema = schema.remove(1)
        if self._lie == "signs of life only":
            nothing = pa.RecordBatch.from_pylist([], schema)
            return flight.GeneratorStream(schema, (nothing for _ in iter(self._pause, None)))
        if schema == reader.schema:
            return flight.GeneratorStream(schema, ((chunk.data, chunk.app_metadata) for chunk in reader))
        nothing = schema.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], schema)]
        return flight.GeneratorStream(schema, ((nothing[0], chunk.app_metadata) for chunk in reader))

    def _pause(self) -> bool:
        """Waits between two empty messages; returns a value that is never None, so that they go on for ever."""
        return not threading.Event().wait(0.2)


def wide(schema: pa.Schema) -> pa.Schema:
    """Returns the schema with the last column as the longest possible list of floats."""
    last = len(schema) - 1
    return schema.set(last, pa.field(schema.field(last).name, pa.list_(pa.float32(), MANY), nullable=False))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = str(tmp_path_factory.mktemp("honest") / "lake")
    stoker.connect(path).create_table("samples", make_columns(100))
    server = Server(path)
    yield server
    server.stop()


def ask(liar: Liar, *args: str) -> str:
    """Runs a client in its own process, which must not crash; returns its output."""
    command = [sys.executable, "-c", CLIENT, f"grpc://127.0.0.1:{liar.port}", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parent)
    assert done.returncode == 0, f"status {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


LIES = [
    ("nothing", "16", "rows 100"),
    ("nothing", "select", "rows 100"),
    ("a plan of wide rows", "16", "ResourceExhaustedError .*16 rows"),
    ("a plan of wide rows", "1", "Error"),
    ("a plan of wide rows", "select", "rows 0"),
    ("wide rows", "16", 'the server sends column "image" of type .*, the plan has "image" of type'),
    ("wide rows", "select", 'the server sends column "image" of type .*, the plan has "image" of type'),
    ("another name", "16", 'the server sends column "other" of type Int64, the plan has "id" of type Int64'),
    ("a column less", "16", "the server sends 1 columns, the plan has 2"),
    ("signs of life only", "16", "UnavailableError .*the server answers, but has sent no row for 10 s"),
]


@pytest.mark.parametrize(("lie", "what", "said"), LIES)
def test_a_server_that_lies_gets_an_error(real: Server, lie: str, what: str, said: str) -> None:
    with Liar(real, lie) as liar:
        answer = ask(liar, what)
    assert re.search(said, answer), answer
