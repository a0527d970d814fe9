"""Arrow's C++ Flight server with a result in memory: ``python -m sql_parts.ready_server ADDRESS QUERY``.

It takes the result of a query from the Flight SQL server at an address, and keeps its record batches. A driver of
Flight SQL gets these batches for any statement, by a loop in C++ that computes nothing. Statements cannot be prepared,
and commands about the server are refused; the driver of ADBC goes on without both.
"""

from __future__ import annotations

import sys
from typing import Any

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow as pa
from pyarrow import flight

__all__ = ["main"]


class _ReadyServer(flight.FlightServerBase):  # type: ignore[misc]
    """Answers every statement with the same record batches."""

    def __init__(self, schema: pa.Schema, batches: list[pa.RecordBatch]) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._schema = schema
        self._batches = batches

    def get_flight_info(self, _: Any, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        """Describes the result, which is at one endpoint. The text of the statement does not matter."""
        # The command is packed: the name of its type is in it as it is.
        if b"CommandStatementQuery" not in descriptor.command:
            raise NotImplementedError("this server only knows statements")
        return flight.FlightInfo(self._schema, descriptor, [flight.FlightEndpoint(b"ready", [])], -1, -1)

    def do_get(self, _: Any, ticket: flight.Ticket) -> flight.RecordBatchStream:
        """Sends all batches."""
        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(self._schema, self._batches))


def main() -> None:
    """Takes the result, tells the address, and serves until the process ends."""
    address, query = sys.argv[1:]
    with flight_sql.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        reader = cursor.fetch_record_batch()
        server = _ReadyServer(reader.schema, list(reader))
    print(f"listening on grpc://127.0.0.1:{server.port}", flush=True)
    server.serve()


if __name__ == "__main__":
    main()
