"""The attacks of a soak: what hostile or broken clients do to the server. Each attack ends within `ATTACK_SECS`."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from threading import Event

import raw_http2 as http2
from conftest import stoker_bin
from pyarrow import ArrowException, flight
from soak_canary import TABLE
from soak_schedule import dealt
from test_hostile_connections import FLOODS, SAID, sent_before_the_end
from test_hostile_statements import PLANS, RESULTS, forged
from test_service import environment

import stoker

#: The server's limits for queries: seconds to run, to be planned, and to wait in the queue.
QUERY_SECS, PLANNING_SECS, WAITING_SECS = 6, 2, 10
POOL_BYTES = 256 << 20
#: Seconds for which an attack keeps connections open that send or read nothing.
HELD_SECS = 4.0
NUM_SILENT, NUM_FROZEN = 400, 150
#: An attack that takes more seconds than this counts as hung. It is long because an attack waits out an outage.
ATTACK_SECS = 90.0

#: The errors with which a server refuses or cancels a request, or which a client gets when the server is killed.
REFUSALS = (stoker.ResourceExhaustedError, stoker.InvalidRequestError, stoker.UnavailableError)


@dataclass(frozen=True)
class Target:
    """The server that is attacked, the attacker's token, and the event that ends the soak."""

    port: int
    token: str
    over: Event

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def connect(self) -> stoker.Lake:
        return stoker.connect(self.url, token=self.token, retry_budget_secs=5)


def run_statements(target: Target, statements: Sequence[str]) -> None:
    """Sends statements concurrently; each must end with rows or with a refusal, never with an internal error."""

    def run(sql: str) -> None:
        with suppress(*REFUSALS):
            target.connect().sql(sql).to_arrow()

    with ThreadPoolExecutor(len(statements)) as pool:
        list(pool.map(run, statements))


def large_results(target: Target, draw: random.Random) -> None:
    run_statements(target, [RESULTS[name] for name in draw.sample(sorted(RESULTS), 3)])


def long_plans(target: Target, draw: random.Random) -> None:
    run_statements(target, [PLANS[name] for name in draw.sample(sorted(PLANS), 3)])


def named_statements(*statements: str) -> Callable[[Target, random.Random], None]:
    return lambda target, _: run_statements(target, statements)


def forged_receipts(target: Target, draw: random.Random) -> None:
    with suppress(*REFUSALS):
        lake = target.connect()
        stream = lake.sql("SELECT id, word FROM words").stream(batch_size=1_000, seed=1)
        (verdict,) = lake.verify([forged(stream, draw.choice([100, 20_000]))])
        assert not verdict.is_exactly_once, "a receipt that was made up is believed"


def killed_clients(target: Target, draw: random.Random) -> None:
    """Kills three clients, one after the other, while their statements run."""
    command = [stoker_bin(), "sql", RESULTS["counting a cross join"], "--server", target.url]
    quiet = subprocess.DEVNULL
    variables = environment({"STOKER_CLIENT_TOKEN": target.token})
    for _ in range(3):
        client = subprocess.Popen(command, env=variables, stdout=quiet, stderr=quiet)
        target.over.wait(draw.uniform(0.1, 1.5))
        client.kill()
        client.wait()


def silent_connections(target: Target, draw: random.Random) -> None:
    """Opens connections without a token that never send a complete request."""
    said = SAID[draw.choice(sorted(SAID))]
    with ExitStack() as silent:
        for _ in range(NUM_SILENT):
            with suppress(OSError):
                silent.enter_context(http2.connect(target.port)).sendall(said)
        target.over.wait(HELD_SECS)


def ticket(target: Target, kind: str) -> tuple[bytes, str]:
    """Gets a ticket for a stream or for a query result as a stock Arrow Flight client; returns it with the token."""
    descriptor = flight.FlightDescriptor.for_path(TABLE)
    if kind == "streams":
        sql = f"SELECT id, image FROM {TABLE}"
        descriptor = flight.FlightDescriptor.for_command(http2.stream_command(sql, 32))
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {target.token}".encode())], timeout=30)
    with flight.connect(target.url) as client:
        (endpoint,) = client.get_flight_info(descriptor, options).endpoints
        return bytes(endpoint.ticket.ticket), target.token


def frozen_readers(kind: str) -> Callable[[Target, random.Random], None]:
    """Returns an attack by clients that send DoGet requests with an HTTP/2 window of 0 bytes for the responses."""

    def freeze(target: Target, _: random.Random) -> None:
        with suppress(OSError, ArrowException), ExitStack() as readers:
            wanted, token = ticket(target, kind)
            asked = http2.PREFACE + http2.settings(initial_window_size=0) + http2.do_get(wanted, token=token)
            for _index in range(NUM_FROZEN):
                with suppress(OSError):
                    readers.enter_context(http2.connect(target.port)).sendall(asked)
            target.over.wait(HELD_SECS)

    return freeze


def floods(target: Target, draw: random.Random) -> None:
    """Floods the server with requests without a token, then with one other kind; it must end each connection."""
    for name in ("unauthenticated", draw.choice(sorted(FLOODS))):
        with suppress(OSError), http2.connect(target.port) as hostile:
            assert sent_before_the_end(hostile, FLOODS[name]) < 1 << 28, f"a flood of {name} is taken for ever"


ATTACKS: dict[str, Callable[[Target, random.Random], None]] = {
    "statements that want memory": large_results,
    "replace of paddings": named_statements(RESULTS["replace of paddings"], RESULTS["nested replace"]),
    "regexp_replace and string_agg": named_statements(
        RESULTS["regexp_replace everywhere"], RESULTS["string_agg over a cross join"]
    ),
    "statements that plan for ever": long_plans,
    "24 expressions, 120 EXISTS, 1,200 UNIONs": named_statements(
        PLANS["24 common table expressions"], PLANS["120 nested EXISTS"], PLANS["1,200 UNION ALL"]
    ),
    "forged receipts": forged_receipts,
    "clients killed in a query": killed_clients,
    "silent connections": silent_connections,
    "frozen readers of streams": frozen_readers("streams"),
    "frozen readers of results": frozen_readers("results"),
    "floods": floods,
}


def attack(target: Target, turn: int, soak_seed: int, seed: int) -> str:
    """Runs the attack of a turn; returns its name and its duration as a text."""
    name = dealt(sorted(ATTACKS), turn, soak_seed)
    begun = time.monotonic()
    try:
        ATTACKS[name](target, random.Random(seed))
    except Exception as error:
        raise AssertionError(f"the attack {name!r} with seed {seed} met {type(error).__name__}: {error}") from error
    secs = time.monotonic() - begun
    assert secs < ATTACK_SECS, f"the attack {name!r} with seed {seed} took {secs:.0f} s"
    return f"{name} ({secs:.1f} s)"
