"""The chaos job: its servers, proxies and ranks, and the faults and kills that it injects while the job runs."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos_ledger import Place
from chaos_rank import RankJob
from conftest import stoker_bin
from fault_proxy import Faults, GrpcProxy, S3Proxy
from s3_store import BUCKET, Store
from test_service import environment

NUM_EPOCHS = 3
LAKE = f"s3://{BUCKET}/chaos"
QUERY = "SELECT id, name, payload FROM samples"
#: Options of the stream. The world sizes of all runs (4, 3 and 6) divide the number of lanes, as they should.
STREAM: dict[str, Any] = {"seed": 11, "num_lanes": 12, "bad_rows": "substitute"}

S3_FAULTS = {"slow_down": 0.05, "reset": 0.04, "truncated": 0.03, "cut": 0.02, "stalled": 0.01}
GRPC_FAULTS = {"reset": 0.3, "stalled": 0.2}
#: The rate limit of one connection. A rank's share of an epoch on four ranks is 1.6 MB.
GRPC_BYTES_PER_SEC = 400_000
GRPC_FAULT_BYTES_MAX = 800_000

#: Rows that all ranks together receive between two blows at the replicas (see `blows`).
ROWS_PER_BLOW = 500
CHECKPOINT_STEPS = 10
#: The most steps by which a rank may lead the slowest running rank.
LEAD_STEPS = 6
#: A job in which no rank finishes a step for this many seconds counts as hung.
SILENCE_SECS_MAX = 60.0


@dataclass(frozen=True)
class Run:
    """One run of the job: its ranks, its batches, and the step at which it is killed."""

    world_size: int
    batching: dict[str, Any]
    global_batch: int
    num_endpoints: int = 1
    #: Rank r is killed once its ledger has `kill_at_step + r` steps. With None, the run finishes the job.
    kill_at_step: int | None = None


def tail(path: Path, num_bytes: int = 3_000) -> str:
    """Returns the last `num_bytes` characters of a log, or an empty text if there is no log."""
    return path.read_text(errors="replace")[-num_bytes:] if path.exists() else ""


def wait_for(condition: Callable[[], bool], what: str, secs: float = 60.0) -> None:
    """Polls a condition until it holds; fails after `secs` seconds."""
    deadline = time.monotonic() + secs
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {secs} s"
        time.sleep(0.01)


class Replica:
    """A server process that the test kills and restarts, always on the same port."""

    def __init__(self, name: str, variables: dict[str, str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"replica-{name}.log"
        self.num_kills = 0
        # This socket reserves the port between two lives of the server: the kernel gives a bound port to no other
        # process. As the socket does not listen and sets SO_REUSEADDR, the server can bind the same port.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port: int = self._reserved.getsockname()[1]
        self._command = [stoker_bin(), "serve", "--lake", LAKE, "--listen", f"127.0.0.1:{self.port}"]
        # Messages are small, so that each batch is sent as several of them.
        self._command += ["--message-bytes", "4096"]
        self._environment = environment({"STOKER_TICKET_KEY": "a key of both replicas"} | variables)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_began = 0

    def start(self) -> None:
        """Starts the server if it is not running."""
        if self._process is None:
            with self.log.open("ab") as log:
                self._log_began = log.tell()
                self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)

    def is_settled(self) -> bool:
        """Returns whether the server is down or accepts connections. Fails if the server ended without a kill."""
        if self._process is None:
            return True
        assert self._process.poll() is None, f"replica {self.name} ended with {self._process.returncode}"
        return b"listening on" in self.log.read_bytes()[self._log_began :]

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self.num_kills += 1

    def close(self) -> None:
        self.kill()
        self._reserved.close()


def blows(servers: Sequence[tuple[Replica, GrpcProxy]]) -> Iterator[None]:
    """Strikes one blow at the replicas for each item that is taken from this iterator.

    The blows repeat in this order: for each replica, a kill that also resets its connections, then its restart; after
    these, a kill and an immediate restart of all replicas, whose connections the proxies do not reset.
    """
    while True:
        for victim, proxy in servers:
            victim.kill()
            proxy.lose_server()
            yield
            victim.start()
            yield
        for victim, _ in servers:
            victim.kill()
        for victim, _ in servers:
            victim.start()
        yield


class Rank:
    """The process of one rank in one run."""

    def __init__(self, job: RankJob, kill_at_step: int | None) -> None:
        self.job = job
        self.ledger = Path(f"{job.prefix}.ledger")
        self.log = Path(f"{job.prefix}.log")
        self.num_steps = 0
        self._kill_at_step = kill_at_step
        self._num_allowed = 0
        self._num_read = 0
        with self.log.open("wb") as log:
            program = [sys.executable, str(Path(__file__).with_name("chaos_rank.py")), job.to_json()]
            self.process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=log, stderr=log, bufsize=0)

    def look(self) -> None:
        """Counts the steps in the rank's ledger; kills the rank when its step has come. Fails if the rank failed."""
        if self.ledger.exists():
            with self.ledger.open("rb") as file:
                file.seek(self._num_read)
                more = file.read()
            self._num_read += len(more)
            self.num_steps += more.count(b"\n")
        if self.process.returncode is None:
            assert self.process.poll() in (None, 0), f"{self.job.prefix} failed:\n{tail(self.log)}"
        if self.is_running and self._kill_at_step is not None and self.num_steps >= self._kill_at_step:
            self.kill()

    def allow(self, num_steps: int) -> None:
        """Allows the rank to begin `num_steps` steps in total, by writing a byte for each new one to its input."""
        assert self.process.stdin is not None
        more = num_steps - self._num_allowed
        if more > 0:
            with suppress(BrokenPipeError):  # The rank has ended meanwhile.
                self.process.stdin.write(b"." * more)
            self._num_allowed = num_steps

    @property
    def is_running(self) -> bool:
        return self.process.returncode is None

    def kill(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Checkpoint:
    """The newest checkpoint that all ranks of a run have saved at the same epoch and position."""

    place: Place
    state: dict[str, Any]
    receipts: list[dict[str, Any]]

    @classmethod
    def newest(cls, ranks: Sequence[Rank]) -> Checkpoint:
        saved = []
        for rank in ranks:
            prefix = Path(rank.job.prefix)
            paths = prefix.parent.glob(f"{prefix.name}.*.checkpoint")
            saved.append({tuple(map(int, path.name.split(".")[1:3])): path for path in paths})
        common = set.intersection(*map(set, saved))
        assert common, "no checkpoint is there from all ranks"
        place = max(common)
        documents = [json.loads(paths[place].read_text()) for paths in saved]
        state = documents[0]["state"]
        assert all(document["state"] == state for document in documents), f"states differ at {place}"
        return cls((place[0], place[1]), state, [document["receipt"] for document in documents])


class Chaos:
    """The servers and proxies of the job, and counts of the faults and kills that they suffered."""

    def __init__(self, store: Store, folder: Path, seed: int, stack: ExitStack) -> None:
        self.folder = folder
        self.seed = seed
        self.s3_faults = Faults(seed, S3_FAULTS)
        self.grpc_faults = Faults(seed + 1, GRPC_FAULTS)
        s3_port = int(store.endpoint.rpartition(":")[2])
        s3 = stack.enter_context(closing(S3Proxy(s3_port, self.s3_faults)))
        variables = {**store.environment(), "AWS_ENDPOINT": f"http://127.0.0.1:{s3.port}"}
        self.replicas = [stack.enter_context(closing(Replica(name, variables, folder))) for name in "ab"]
        proxies = [
            stack.enter_context(
                closing(GrpcProxy(replica.port, self.grpc_faults, GRPC_BYTES_PER_SEC, GRPC_FAULT_BYTES_MAX))
            )
            for replica in self.replicas
        ]
        self.direct, self.proxied = (
            "grpc://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)
            for servers in (self.replicas, proxies)
        )
        self._blows = blows(list(zip(self.replicas, proxies, strict=True)))

    def run(self, number: int, run: Run, state: dict[str, Any] | None) -> list[Rank]:
        """Runs the job to its end or until its ranks are killed, and strikes a blow for every `ROWS_PER_BLOW` rows."""
        self.settle()
        ranks: list[Rank] = []
        try:
            for index in range(run.world_size):
                ranks.append(self._rank(number, run, index, state))
            self._watch(run, ranks)
        finally:
            for rank in ranks:
                rank.kill()
        return ranks

    def settle(self) -> None:
        """Starts the replicas that are down, and waits until all of them accept connections."""
        for replica in self.replicas:
            replica.start()
        wait_for(lambda: all(replica.is_settled() for replica in self.replicas), "the start of the replicas")

    def _rank(self, number: int, run: Run, rank: int, state: dict[str, Any] | None) -> Rank:
        job = RankJob(
            target=self.direct if rank == 0 else self.proxied,
            num_endpoints=run.num_endpoints,
            query=QUERY,
            options={
                **STREAM,
                **run.batching,
                "rank": rank,
                "world_size": run.world_size,
                "memory_budget_bytes": 1 << 16,
            },
            num_epochs=NUM_EPOCHS,
            prefix=str(self.folder / f"run{number}-rank{rank}"),
            checkpoint_steps=CHECKPOINT_STEPS,
            state=state,
        )
        return Rank(job, None if run.kill_at_step is None else run.kill_at_step + rank)

    def _watch(self, run: Run, ranks: Sequence[Rank]) -> None:
        """Watches, paces and kills the ranks until all have ended; strikes blows as they make progress."""
        num_steps, next_blow, deadline = 0, ROWS_PER_BLOW, time.monotonic() + SILENCE_SECS_MAX
        while True:
            for rank in ranks:
                rank.look()
            running = [rank for rank in ranks if rank.is_running]
            if not running:
                return
            for rank in running:
                rank.allow(min(other.num_steps for other in running) + LEAD_STEPS)
            steps = sum(rank.num_steps for rank in ranks)
            if steps > num_steps:
                num_steps, deadline = steps, time.monotonic() + SILENCE_SECS_MAX
            assert time.monotonic() < deadline, f"no rank made progress for {SILENCE_SECS_MAX} s"
            num_rows = num_steps * run.global_batch // run.world_size
            settled = [replica.is_settled() for replica in self.replicas]
            if num_rows >= next_blow and all(settled):
                next(self._blows)
                next_blow = num_rows + ROWS_PER_BLOW
            time.sleep(0.005)

    def report(self) -> str:
        """Returns a text with the kills and faults so far."""
        kills = {replica.name: replica.num_kills for replica in self.replicas}
        return (
            f"seed {self.seed}; kills of replicas {kills}\n"
            f"faults between replicas and S3: {self.s3_faults} requests\n"
            f"faults between ranks and replicas: {self.grpc_faults} connections"
        )

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Prints the report and the ends of all logs if the body raises."""
        try:
            yield
        except BaseException:
            print(self.report())
            for log in sorted(self.folder.glob("*.log")):
                print(f"--- {log.name}\n{tail(log)}")
            raise
