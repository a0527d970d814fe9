"""The processes of a soak: the server, children that are restarted after a kill, and commands that run once."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chaos_job import tail
from conftest import stoker_bin
from soak_attacks import PLANNING_SECS, POOL_BYTES, QUERY_SECS, WAITING_SECS
from test_service import environment

#: The server's memory budget for all its streams, in bytes.
STREAM_BYTES = 256 << 20
#: The names and roles of the server's tokens: for the operator, for jobs and notebooks, and a stolen one for attackers.
TOKENS = {"operator": "admin", "jobs": "read", "attacker": "read"}
LIMITS = {
    "STOKER_TICKET_KEY": "soak: a key of this soak",
    "STOKER_MEMORY_BUDGET_BYTES": str(STREAM_BYTES),
    "STOKER_QUERY_POOL_BYTES": str(POOL_BYTES),
    "STOKER_QUERY_SECS": str(QUERY_SECS),
    "STOKER_QUERY_PLANNING_SECS": str(PLANNING_SECS),
    "STOKER_QUERIES_AT_ONCE": "8",
    "STOKER_QUERIES_WAITING": "16",
    "STOKER_QUERIES_WAITING_SECS": str(WAITING_SECS),
    "STOKER_CONNECTIONS_MAX": "512",
    "STOKER_STALL_SECS": "10",
    "STOKER_IDLE_SECS": "20",
}
#: The seconds after which the store's client of the server closes an idle connection; by default it waits for 90 s, and
#: looks for such connections every 90 s. The end of the soak waits for them.
POOL_IDLE_SECS = 15
#: The prefix of the commands of jobs, writers and compactions. In production these run on other machines; here a low
#: priority leaves the processors to the store, its proxy, the server and the canary.
AFTER_OTHERS = ["nice", "-n", "10"]
#: Seconds within which a server must accept connections after its start.
START_SECS = 60.0
#: Seconds within which a process must end after it was told to.
END_SECS = 240.0


def token_of(name: str) -> str:
    return f"the token of the {name} of this soak"


@dataclass(frozen=True)
class Usage:
    """The threads, open files and memory of a process."""

    num_threads: int
    num_files: int
    resident_bytes: int
    peak_bytes: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        status = Path(f"/proc/{pid}/status").read_text()

        def number(name: str) -> int:
            found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
            assert found is not None, f"/proc/{pid}/status has no {name}:\n{status}"
            return int(found[1])

        num_files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        return cls(number("Threads"), num_files, number("VmRSS") << 10, number("VmHWM") << 10)

    def __str__(self) -> str:
        memory = f"{self.resident_bytes >> 20} MiB (peak {self.peak_bytes >> 20} MiB)"
        return f"{self.num_threads} threads, {self.num_files} files, {memory}"


def open_files(pid: int) -> Counter[str]:
    """Counts the open files of a process by kind: a connection from a client or to a port, or else the file's name."""
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    listened = {row[1].split(":")[1] for row in rows if row[3] == "0A"}
    sockets = {}
    for _, own, other, state, *rest in rows:
        ends = "from a client" if own.split(":")[1] in listened else f"to port {int(other.split(':')[1], 16)}"
        sockets[f"socket:[{rest[5]}]"] = f"connection {ends} in state {state}"
    kinds: Counter[str] = Counter()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            name = str(file.readlink())
            kinds[sockets.get(name, name.split(":")[0])] += 1
    return kinds


class SoakServer:
    """A server process that the soak kills and restarts on the same port."""

    def __init__(self, lake: str, variables: Mapping[str, str], folder: Path) -> None:
        self.log = folder / "server.log"
        self.peaks: list[Usage] = []
        # This socket reserves the port between two lives of the server: the kernel gives a bound port to no other
        # process. As the socket does not listen and sets SO_REUSEADDR, the server can bind the same port.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port: int = self._reserved.getsockname()[1]
        tokens = folder / "tokens.toml"
        tokens.write_text("".join(map(_token_entry, TOKENS)))
        tokens.chmod(0o600)
        self._command = [stoker_bin(), "serve", "--lake", lake, "--listen", f"127.0.0.1:{self.port}"]
        self._command += ["--tokens-file", str(tokens), "--storage-option", f"pool_idle_timeout={POOL_IDLE_SECS}s"]
        self._environment = environment({**LIMITS, **variables})
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts the server, and waits until it accepts connections."""
        with self.log.open("ab") as log:
            began = log.tell()
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)
        deadline = time.monotonic() + START_SECS
        while b"listening on" not in self.log.read_bytes()[began:]:
            self.check()
            assert time.monotonic() < deadline, f"the server did not start within {START_SECS} s:\n{tail(self.log)}"
            threading.Event().wait(0.05)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def usage(self) -> Usage:
        return Usage.of(self.pid)

    def check(self) -> None:
        """Fails if the server has ended without a kill."""
        assert self.process is not None
        status = self.process.poll()
        assert status is None, f"the server ended by itself with {status}:\n{tail(self.log)}"

    def kill(self) -> None:
        """Ends the server with SIGKILL, and records its usage, peak memory included."""
        if self.process is not None and self.process.poll() is None:
            self.peaks.append(self.usage())
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        self.kill()
        self._reserved.close()


def _token_entry(name: str) -> str:
    return f'[[tokens]]\nname = "{name}"\nrole = "{TOKENS[name]}"\ntoken = "{token_of(name)}"\n'


class Child:
    """A process that is restarted after a kill. Its argument is a function of the number of kills so far."""

    def __init__(
        self,
        name: str,
        program: str,
        argument: Callable[[int], str],
        place: tuple[Path, dict[str, str]],
        before: Sequence[str],
    ) -> None:
        self.name = name
        self._before = before
        self.num_kills = 0
        folder, self._environment = place
        self.log = folder / f"{name}.log"
        self._program = str(Path(__file__).with_name(program))
        self._argument = argument
        self._start()

    def _start(self) -> None:
        command = [*self._before, sys.executable, self._program, self._argument(self.num_kills)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=self._environment
            )

    def kill_and_restart(self) -> None:
        self._kill()
        self.num_kills += 1
        self._start()

    def check(self) -> None:
        """Fails if the process has ended before it was told to."""
        status = self.process.poll()
        assert status is None, f"{self.name} ended with {status}:\n{tail(self.log)}"

    def tell_to_end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> None:
        """Waits until the process has ended; fails if it takes too long or its status is not 0."""
        try:
            status = self.process.wait(END_SECS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {END_SECS} s:\n{tail(self.log)}") from None
        assert status == 0, f"{self.name} ended with {status}:\n{tail(self.log)}"

    def _kill(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self._kill()


class Command:
    """Runs commands one after the other; another thread may kill the running one."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._environment = variables
        self._running: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self.num_kills = 0

    def run(self, command: list[str], secs: float) -> tuple[int, str]:
        """Runs a command; returns its status and its output. Kills a command that takes more than `secs` seconds."""
        pipe, out = subprocess.PIPE, subprocess.STDOUT
        command = [*AFTER_OTHERS, *command]
        with subprocess.Popen(command, text=True, env=self._environment, stdout=pipe, stderr=out) as process:
            with self._lock:
                self._running = process
            try:
                said, _ = process.communicate(timeout=secs)
            except subprocess.TimeoutExpired:
                process.kill()
                said = process.communicate()[0] + f"\nkilled after {secs} s"
            finally:
                with self._lock:
                    self._running = None
        return process.returncode, said

    def kill(self) -> bool:
        """Kills the running command; returns whether there was one."""
        with self._lock:
            if self._running is None or self._running.poll() is not None:
                return False
            self._running.kill()
            self.num_kills += 1
            return True
