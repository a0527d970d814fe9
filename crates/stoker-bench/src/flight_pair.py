"""Runs Arrow's own Flight implementation (C++), through pyarrow, with which `stoker bench flight` compares Stoker.

`serve` holds ready record batches in memory and serves them to any client; `drain` reads them; `stock` reads a stream
from Stoker's server. `check` only tests whether pyarrow can be imported. Clients print a report like that of `stoker
stream --json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import time
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyarrow import flight

#: The maximum bytes of batches in memory, more than any processor cache holds; further batches repeat these.
MEMORY_BYTES_MAX = 512 << 20


class ReadyServer(flight.FlightServerBase):
    """Serves the same batches to every request."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.batches = batches

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.RecordBatchStream:
        """Answers with all batches; the loop over them is in C++."""
        reader = pa.RecordBatchReader.from_batches(self.batches[0].schema, self.batches)
        return flight.RecordBatchStream(reader)


def ready_batches(element: pa.DataType, width: int, rows: int, message_bytes: int) -> list[pa.RecordBatch]:
    """Makes `rows` fixed-size lists, in batches of about `message_bytes` bytes, each in memory of its own."""
    row_bytes = width * element.bit_width // 8
    rows_each = min(max(1, message_bytes // row_bytes), rows)
    kept = max(1, min(rows, MEMORY_BYTES_MAX // row_bytes) // rows_each)
    block = os.urandom(1 << 20)
    memory = pa.py_buffer(block * (kept * rows_each * row_bytes // len(block) + 1))

    def batch(start_row: int, num_rows: int) -> pa.RecordBatch:
        values = memory.slice(start_row * row_bytes, num_rows * row_bytes)
        flat = pa.Array.from_buffers(element, num_rows * width, [None, values])
        lists = pa.Array.from_buffers(pa.list_(element, width), num_rows, [None], children=[flat])
        return pa.record_batch([lists], names=["values"])

    ready = [batch(number * rows_each, rows_each) for number in range(kept)]
    batches = list(itertools.islice(itertools.cycle(ready), rows // rows_each))
    if rest := rows % rows_each:
        batches.append(batch(0, rest))
    return batches


def message(fields: Mapping[int, int | str | bytes]) -> bytes:
    """Encodes a Protocol Buffers message of varints and length-delimited values (stoker-wire's `stream.proto`)."""
    encoded = b""
    for number, value in fields.items():
        if isinstance(value, int):
            encoded += varint(number << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            encoded += varint(number << 3 | 2) + varint(len(data)) + data
    return encoded


def varint(value: int) -> bytes:
    """Encodes a varint: seven bits in each byte, the lowest bits first."""
    high = b""
    while value > 0x7F:
        high += bytes([value & 0x7F | 0x80])
        value >>= 7
    return high + bytes([value])


def stoker_stream(sql: str, shuffle: str, batch_size: int, epoch: int) -> flight.FlightDescriptor:
    """Makes the descriptor of a request to Stoker's server for all rows of an epoch."""
    query = message({1: sql, 4: shuffle})
    share = message({2: 1, 3: batch_size, 5: "uneven", 6: epoch})
    return flight.FlightDescriptor.for_command(message({1: 1, 2: message({1: query, 4: share})}))


def taken(client: flight.FlightClient, ticket: flight.Ticket) -> Iterator[tuple[int, int]]:
    """Yields the rows and bytes of each message."""
    reader = client.do_get(ticket)
    while True:
        try:
            data = reader.read_chunk().data
        except StopIteration:
            return
        if data is not None:
            yield data.num_rows, data.nbytes


def report(options: argparse.Namespace) -> dict[str, float | int | None]:
    """Reads all epochs, one after the other, and returns the report."""
    client = flight.connect(options.address)
    rows = steady_from_bytes = total = 0
    first_batch = None
    started, cpu_before = time.perf_counter(), time.process_time()
    steady_from = started
    for epoch in range(options.epochs):
        if options.what == "drain":
            tickets = [flight.Ticket(b"ready")]
        else:
            descriptor = stoker_stream(options.query, options.shuffle, options.batch_size, epoch)
            tickets = [endpoint.ticket for endpoint in client.get_flight_info(descriptor).endpoints]
        for num_rows, num_bytes in itertools.chain.from_iterable(taken(client, ticket) for ticket in tickets):
            first_batch = first_batch or time.perf_counter() - started
            rows += num_rows
            total += num_bytes
        if epoch == 0 and options.epochs > 1:
            steady_from, steady_from_bytes = time.perf_counter(), total
    ended = time.perf_counter()
    return {
        "rows": rows,
        "bytes": total,
        "first_batch_secs": first_batch,
        "secs": ended - started,
        "steady_bytes": total - steady_from_bytes,
        "steady_secs": ended - steady_from,
        "cpu_secs": time.process_time() - cpu_before,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    """Runs the command that the arguments name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["check", "serve", "drain", "stock"])
    parser.add_argument("--address")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--element", default="uint8")
    parser.add_argument("--width", type=int, default=1)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--message-bytes", type=int, default=1 << 20)
    parser.add_argument("--query")
    parser.add_argument("--shuffle", default="block")
    parser.add_argument("--batch-size", type=int, default=256)
    options = parser.parse_args()
    if options.what == "check":
        return
    if options.what == "serve":
        element = pa.type_for_alias(options.element)
        server = ReadyServer(ready_batches(element, options.width, options.rows, options.message_bytes))
        print(f"listening on grpc://127.0.0.1:{server.port}", flush=True)
        server.serve()
    else:
        print(json.dumps(report(options)))


if __name__ == "__main__":
    main()
