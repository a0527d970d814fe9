"""A large result through ADBC, beside the same record batches from Arrow's C++ Flight server.

Both are read by the same driver, batch by batch. Stoker's server reads the rows from the lake, and the other server has
ready batches of the same schema and the same sizes in memory (``ready_server.py``).
"""

from __future__ import annotations

import importlib.metadata
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from time import perf_counter
from typing import Any

from harness.child import environment
from sql_parts.context import Context, Measure
from sql_parts.line import Line, SkippedError, alternate
from sql_parts.servers import listening, serving

__all__ = ["results"]

_DRIVER = "adbc-driver-flightsql"
_MODULES = ("adbc_driver_flightsql", "adbc_driver_manager")


@dataclass(frozen=True)
class _Read:
    """What was read of a result."""

    num_rows: int
    num_bytes: int
    num_batches: int
    secs: float


def results() -> list[Measure]:
    """A result of all rows of a table."""
    return [Measure("ADBC, a large result", _result)]


def _result(context: Context) -> list[Line]:
    if missing := [name for name in _MODULES if find_spec(name) is None]:
        raise SkippedError(f"skipped: {', '.join(missing)} is not installed in this environment")
    import adbc_driver_flightsql.dbapi as flight_sql

    query = f"SELECT id, small, x, body, v FROM {context.table('results')}"
    with ExitStack() as stack:
        own = _uri(stack.enter_context(serving(context)))
        command = [sys.executable, "-m", "sql_parts.ready_server", own, query]
        ready = _uri(stack.enter_context(listening(command, environment(None))))
        connections = [stack.enter_context(flight_sql.connect(uri, autocommit=True)) for uri in (own, ready)]
        sides = [_read(connection, query) for connection in connections]
        for side in sides:
            if side.num_rows != context.result_rows:
                raise RuntimeError(f"the result has {side.num_rows} rows, not {context.result_rows}")
        own_rate, ready_rate = (partial(_rate, connection, query) for connection in connections)
        found = alternate(context.repeat, own_rate, ready_rate, warm_up=False)
    read, ready_read = sides
    what = f"ADBC, {read.num_rows:,} rows of numbers, a text and a vector, {read.num_bytes / 1e6:,.0f} MB"
    remark = (
        f"{read.num_batches:,} and {ready_read.num_batches:,} batches;"
        f" {_DRIVER} {importlib.metadata.version(_DRIVER)} reads both"
    )
    return [Line(what, 0.85, *found, "Arrow's C++ Flight server, ready batches", "GB/s", at_least=True, remark=remark)]


def _uri(address: str) -> str:
    """Returns the address of a server as the driver takes it."""
    return address.replace("grpc://", "grpc+tcp://")


def _rate(connection: Any, query: str) -> float:
    """Returns the rate of one pass over the result, in GB/s."""
    read = _read(connection, query)
    return read.num_bytes / read.secs / 1e9


def _read(connection: Any, query: str) -> _Read:
    """Executes the query and reads its result batch by batch. The time includes the execution."""
    num_rows = num_bytes = num_batches = 0
    began = perf_counter()
    with connection.cursor() as cursor:
        cursor.execute(query)
        for batch in cursor.fetch_record_batch():
            num_rows += batch.num_rows
            num_bytes += batch.nbytes
            num_batches += 1
        took = perf_counter() - began
    return _Read(num_rows, num_bytes, num_batches, took)
