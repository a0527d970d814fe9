"""A soak: its lake, its processes, the events that disturb them, and the records that they leave."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
from chaos_job import tail
from s3_store import BUCKET, Store
from soak_aged import AgedProxy, age_manifests
from soak_attacks import Target, attack, run_statements
from soak_canary import NUM_ROWS as NUM_CANARY_ROWS
from soak_canary import TABLE as CANARY_TABLE
from soak_canary import CanaryJob, image_of
from soak_ingest import IngestWriter
from soak_outages import KINDS, ProxyProcess, Window
from soak_processes import AFTER_OTHERS, Child, SoakServer, Usage, token_of
from soak_queries import ask, count
from soak_schedule import Happening, dealt, schedule
from soak_stream import QUERIES, StreamJob
from soak_table import APPENDED, BASE_TAG, INGESTED, NUM_BASE_ROWS, Record, columns
from soak_upkeep import Upkeep
from soak_writer import WriterJob
from test_hostile_statements import NUM_WORDS, RESULTS
from test_service import environment

import stoker

PREFIX = "soak"
LAKE = f"s3://{BUCKET}/{PREFIX}"
#: The number of versions before the base version. They look 40 days old to a cleanup through `AgedProxy`.
NUM_OLD_VERSIONS = 3
#: The numbers of writers that use the library, of writers that use `stoker ingest`, of jobs that stream, and of threads
#: that run queries.
NUM_APPENDERS, NUM_INGESTERS, NUM_STREAMS, NUM_ASKERS = 6, 2, 8, 2
NUM_ATTACKS_AT_ONCE = 4
OUTAGE_SECS = (2.0, 6.0)
#: Seconds within which a query must end with a result or a refusal, outages included.
ANSWER_SECS = 150.0
#: The errors with which queries may end: in outages, after kills, and when attackers have filled the queue of queries.
REFUSALS = (stoker.UnavailableError, stoker.ResourceExhaustedError)


class Soak:
    """Everything that runs in a soak. An error in any thread ends the soak."""

    def __init__(self, store: Store, folder: Path, seed: int, load_secs: float, stack: ExitStack) -> None:
        self.store, self.folder, self.seed, self.load_secs = store, folder, seed, load_secs
        self.over = threading.Event()
        self.has_failed = threading.Event()
        self.failures: list[BaseException] = []
        self.windows: list[Window] = []
        self.counts: Counter[str] = Counter()
        #: The events so far, as (time, description), by the machine's monotonic clock.
        self.journal: list[tuple[float, str]] = []
        self.proxy = stack.enter_context(closing(ProxyProcess(store.port, seed)))
        variables = {**store.environment(), "AWS_ENDPOINT": f"http://127.0.0.1:{self.proxy.port}"}
        self.variables = environment(variables)
        self.server = stack.enter_context(closing(SoakServer(LAKE, variables, folder)))
        self.ingesters = [
            IngestWriter(LAKE, NUM_APPENDERS + 1 + index, folder, self.variables) for index in range(NUM_INGESTERS)
        ]
        self.upkeep = Upkeep(LAKE, store, self.proxy.port, folder)
        self.attacks = threading.Semaphore(NUM_ATTACKS_AT_ONCE)
        self.pool = stack.enter_context(ThreadPoolExecutor(max_workers=32))
        stack.callback(self.over.set)
        self.running: list[Future[None]] = []
        self.stack = stack

    # Before the load.

    def prepare(self) -> Usage:
        """Makes the tables, starts the server and runs each kind of request; returns the idle server's usage."""
        lake = stoker.connect(LAKE, storage_options=self.store.options)
        base = np.arange(NUM_BASE_ROWS)
        for _ in range(NUM_OLD_VERSIONS + 1):
            table = lake.create_table(APPENDED, columns(base), mode="overwrite", rows_per_fragment=1_000)
        table.tag(BASE_TAG)
        aged = age_manifests(self.store, f"{PREFIX}/{APPENDED}.lance")
        self.aged_proxy = self.stack.enter_context(closing(AgedProxy(self.proxy.port, aged)))
        canary = np.arange(NUM_CANARY_ROWS)
        lake.create_table(CANARY_TABLE, {"id": canary, "image": np.ascontiguousarray(image_of(canary))})
        words = {"id": np.arange(NUM_WORDS), "word": [f"wwww {i} words" for i in range(NUM_WORDS)]}
        lake.create_table("words", words)
        self.ingesters[0].ingest(base, "base", "create")
        self.server.start()
        self._warm_up()
        return self.idle_usage()

    def _warm_up(self) -> None:
        lake = self.connect("jobs")
        for _ in range(20):
            ask(lake, random.Random(1))
        for sql, _ in QUERIES:
            for _ in lake.sql(sql).stream(batch_size=64, seed=1):
                pass
        run_statements(self.target, [RESULTS["counting a cross join"], RESULTS["string_agg over a cross join"]])

    def connect(self, name: str) -> stoker.Lake:
        """Connects to the server with the token of this name."""
        return stoker.connect(self.server.url, token=token_of(name))

    @property
    def target(self) -> Target:
        return Target(self.server.port, token_of("attacker"), self.over)

    def idle_usage(self, secs: float = 60.0) -> Usage:
        """Returns the server's usage once its numbers of threads and files have not changed for three seconds."""
        deadline, usage, since = time.monotonic() + secs, self.server.usage(), time.monotonic()
        while time.monotonic() - since < 3:
            threading.Event().wait(0.25)
            now = self.server.usage()
            if (now.num_threads, now.num_files) != (usage.num_threads, usage.num_files):
                assert time.monotonic() < deadline, f"the server does not become idle: {now}"
                since = time.monotonic()
            usage = now
        return usage

    # The load.

    def start_children(self) -> None:
        """Starts the child processes, which run during the whole load."""
        place = (self.folder, self.variables)

        def child(
            name: str, program: str, argument: Callable[[int], str], before: Sequence[str] = AFTER_OTHERS
        ) -> Child:
            return self.stack.enter_context(closing(Child(name, program, argument, place, before)))

        token = token_of("jobs")
        canary = CanaryJob(self.server.url, token, str(self.folder / "canary.waits"))
        self.canary = child("canary", "soak_canary.py", lambda life: canary.to_json(), before=())
        self.appenders, self.streams = [], []
        for writer in range(1, NUM_APPENDERS + 1):
            record = str(self.folder / f"writer-{writer}.record")

            def write(life: int, writer: int = writer, record: str = record) -> str:
                return WriterJob(LAKE, writer, record, f"{self.seed}/writer {writer}/{life}").to_json()

            self.appenders.append(child(f"writer-{writer}", "soak_writer.py", write))
        for number in range(NUM_STREAMS):
            prefix = str(self.folder / f"stream-{number}")

            def stream(life: int, number: int = number, prefix: str = prefix) -> str:
                return StreamJob(self.server.url, token, prefix, f"{self.seed}/stream {number}", life).to_json()

            self.streams.append(child(f"stream-{number}", "soak_stream.py", stream))

    def start_threads(self) -> None:
        """Starts the threads that ingest files and those that run queries."""
        for number, ingester in enumerate(self.ingesters):
            draw = random.Random(f"{self.seed}/ingest {number}")
            self.go(ingester.write_files, draw, self.over)
        for number in range(NUM_ASKERS):
            self.go(self._ask, random.Random(f"{self.seed}/questions {number}"))

    def go(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Runs a function in a thread of the pool. Its error ends the soak."""

        def guarded() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                self.failures.append(error)
                self.has_failed.set()

        self.running.append(self.pool.submit(guarded))

    def play(self) -> None:
        """Executes the events of the schedule at their times, and watches all processes."""
        doing: dict[str, Callable[[Happening], None]] = {
            "outage": lambda event: self.go(self._outage, event),
            "kill server": self._kill_server,
            "kill stream": lambda event: self._kill(self.streams, event),
            "kill writer": lambda event: self._kill(self.appenders, event),
            "kill ingest": self._kill_ingest,
            "compact": lambda event: self.go(self.upkeep.compact, event),
            "kill compaction": lambda event: self.count_if("kill compaction", self.upkeep.compaction.kill()),
            "clean up": lambda event: self.go(self.upkeep.clean_up, self.aged_proxy.port),
            "attack": lambda event: self.go(self._attack, event),
        }
        begun = time.monotonic()
        for event in schedule(self.seed, self.load_secs):
            self.watch(begun + event.at_secs)
            self.journal.append((time.monotonic(), event.kind))
            doing[event.kind](event)
        self.watch(begun + self.load_secs)
        self._repeat_upkeep()

    def _repeat_upkeep(self) -> None:
        """Goes on with the load until a compaction and a cleanup are done, at most as long again.

        On a busy machine, an outage or a kill may meet each of the schedule.
        """
        until = time.monotonic() + self.load_secs
        seeds = random.Random(f"{self.seed}/upkeep")
        while time.monotonic() < until:
            counts = self.upkeep.counts
            if counts["compact: done"] and counts["clean up: done"]:
                return
            turn = counts["compact: failed"]
            self.go(self.upkeep.compact, Happening(self.load_secs, "compact", turn, seeds.randrange(1 << 32)))
            self.go(self.upkeep.clean_up, self.aged_proxy.port)
            self.watch(time.monotonic() + 5)

    def watch(self, until: float) -> None:
        """Watches all processes until the time `until` of the monotonic clock."""
        while True:
            self.check()
            left = until - time.monotonic()
            if left <= 0:
                return
            self.has_failed.wait(min(0.2, left))

    def check(self) -> None:
        """Fails if a thread has failed or a process has ended."""
        if self.failures:
            raise self.failures[0]
        self.server.check()
        for child in [self.canary, *self.appenders, *self.streams]:
            child.check()

    def count_if(self, what: str, has_happened: bool) -> None:
        self.counts[what if has_happened else f"{what}: none ran"] += 1

    def _outage(self, event: Happening) -> None:
        kind = dealt(KINDS, event.turn, self.seed)
        secs = random.Random(event.seed).uniform(*OUTAGE_SECS)
        begun = time.monotonic()
        self.proxy.begin(kind)
        try:
            self.has_failed.wait(secs)
        finally:
            self.proxy.end()
        self.windows.append(Window(kind, begun, time.monotonic()))
        self.counts[f"outage {kind}"] += 1

    def _kill_server(self, event: Happening) -> None:
        begun = time.monotonic()
        self.server.kill()
        self.server.start()
        self.windows.append(Window("kill", begun, time.monotonic()))
        self.counts[event.kind] += 1

    def _kill(self, children: list[Child], event: Happening) -> None:
        random.Random(event.seed).choice(children).kill_and_restart()
        self.counts[event.kind] += 1

    def _kill_ingest(self, event: Happening) -> None:
        self.count_if(event.kind, random.Random(event.seed).choice(self.ingesters).command.kill())

    def _attack(self, event: Happening) -> None:
        if not self.attacks.acquire(blocking=False):
            self.counts["attack: others ran"] += 1
            return
        begun = time.monotonic()
        try:
            done = attack(self.target, event.turn, self.seed, event.seed)
        finally:
            self.attacks.release()
        self.journal.append((begun, f"attack: {done}"))
        self.counts["attack"] += 1
        self.counts[f"attack: {done.rsplit(' (', 1)[0]}"] += 1

    def _ask(self, draw: random.Random) -> None:
        """Runs queries until the load is over; a query may be refused, but its result must not be wrong."""
        lake = None
        while not self.over.wait(draw.uniform(0.3, 1.5)):
            begun = time.monotonic()
            try:
                lake = lake or self.connect("jobs")
                if draw.random() < 0.8:
                    ask(lake, draw)
                else:
                    self._count(lake, draw.choice([APPENDED, INGESTED]))
                self.counts["answers"] += 1
            except REFUSALS as refusal:
                self.counts[f"questions refused: {refusal.kind}"] += 1
            secs = time.monotonic() - begun
            assert secs < ANSWER_SECS, f"a question took {secs:.0f} s"

    def _count(self, lake: stoker.Lake, table: str) -> None:
        """Checks that the newest version has all rows acknowledged before, and no row whose write had not begun."""
        before = sum(write.num_rows for write in self.writes(table) if write.outcome == "done")
        found = count(lake, table) - NUM_BASE_ROWS
        after = sum(write.num_rows for write in self.writes(table))
        assert before <= found <= after, f"{table} has {found} new rows; {before} are acknowledged, {after} were begun"

    def writes(self, table: str) -> list[Any]:
        """Returns the recorded writes of all writers of a table."""
        writers = range(1, NUM_APPENDERS + 1)
        if table == INGESTED:
            writers = range(NUM_APPENDERS + 1, NUM_APPENDERS + NUM_INGESTERS + 1)
        return [write for writer in writers for write in Record(self.folder / f"writer-{writer}.record").writes()]

    # After the load.

    def end(self) -> None:
        """Tells all processes and threads to end, and waits: jobs finish their epochs, and ingests their files."""
        self.over.set()
        for child in [self.canary, *self.appenders, *self.streams]:
            child.tell_to_end()
        for child in [self.canary, *self.appenders, *self.streams]:
            child.end()
        for work in self.running:
            work.result(timeout=240)
        if self.failures:
            raise self.failures[0]
        self.server.check()

    def waits(self) -> list[tuple[float, float]]:
        """Returns the long waits of the canary, as (begin, end)."""
        lines = (self.folder / "canary.waits").read_text().splitlines()
        return [(float(begin), float(end)) for begin, end in map(str.split, lines)]

    def report(self) -> str:
        """Returns a text with the counts of events so far."""
        kills = sum(child.num_kills for child in [*self.streams, *self.appenders])
        repeated = sum(ingester.num_repeated for ingester in self.ingesters)
        lines = [f"{what}: {num}" for what, num in sorted((self.counts + self.upkeep.counts).items())]
        lines += [
            f"kills of clients: {kills}",
            f"ingests repeated: {repeated}",
            f"refused by the store: {self.proxy.refused}",
        ]
        return f"seed {self.seed}, {self.load_secs:.0f} s\n  " + "\n  ".join(lines)

    def logs(self) -> str:
        """Returns the ends of all logs."""
        with suppress(OSError):
            return "\n".join(f"--- {log.name}\n{tail(log)}" for log in sorted(self.folder.glob("*.log")))
        return ""
