"""`stoker sql` without a query: a shell on a pseudo-terminal, and statements from a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import NUM_ROWS, Server, stoker_bin
from test_service import environment

PROMPT = "stoker> "
CONTINUED = "   ...> "
#: A query that returns rows for a long time.
ENDLESS = "SELECT a.id, b.name FROM samples a, samples b, samples c, samples d;"
#: The seconds after which a shell that writes nothing has failed.
PATIENCE_SECS = 120


class Terminal:
    """A process on a terminal of its own."""

    def __init__(self, args: list[str], **own: str) -> None:
        self.terminal, child = pty.openpty()
        self.process = subprocess.Popen(
            [stoker_bin(), "sql", *args],
            stdin=child,
            stdout=child,
            stderr=child,
            # A terminal without escape sequences, and no history, unless a test wants them.
            env=environment({"TERM": "dumb", "STOKER_HISTORY": "", **own}),
            start_new_session=True,
            # Ctrl-C is a signal only for a process whose terminal controls it.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(child)
        self.text = ""

    def read_until(self, wanted: str) -> str:
        """Returns what the process writes before a text."""
        while wanted not in self.text:
            ready, _, _ = select.select([self.terminal], [], [], PATIENCE_SECS)
            assert ready, f"{wanted!r} did not come after {self.text[-2000:]!r}"
            self.text += os.read(self.terminal, 1 << 16).decode(errors="replace")
            self.text = self.text.replace("\r\n", "\n")
        before, _, self.text = self.text.partition(wanted)
        return before

    def type(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def ask(self, line: str) -> str:
        """Types a line; returns what the process writes before the next prompt, without the echo of the line."""
        self.type(line + "\n")
        answer = self.read_until(PROMPT)
        assert answer.startswith(line + "\n"), answer
        return answer[len(line) + 1 :]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


@contextmanager
def shell(*args: str, **own: str) -> Iterator[Terminal]:
    """A shell that shows its first prompt."""
    terminal = Terminal(list(args), **own)
    try:
        terminal.read_until(PROMPT)
        yield terminal
    finally:
        terminal.close()


def piped(text: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [stoker_bin(), "sql", "--format", "csv", *args],
        input=text,
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(params=["--lake", "--server"])
def target(request: pytest.FixtureRequest, lake_path: str, server: Server) -> list[str]:
    """The options that name the lake, or the server before it."""
    return [request.param, lake_path if request.param == "--lake" else server.url]


def test_statements_of_one_and_of_several_lines(target: list[str]) -> None:
    with shell("--format", "csv", *target) as terminal:
        assert terminal.ask("SELECT 1 AS n;") == "n\n1\n"
        assert terminal.ask("SELECT ';' AS s; -- a comment; SELECT 2;") == "s\n;\n"
        terminal.type("SELECT count(*) AS n\n")
        terminal.read_until(CONTINUED)
        assert terminal.ask("FROM samples; SELECT 2 AS m;") == f"n\n{NUM_ROWS}\nm\n2\n"
        assert terminal.ask("") == ""
        terminal.type("exit;\n")
        assert terminal.process.wait(timeout=60) == 0


def test_errors_are_shown_and_the_shell_goes_on(target: list[str]) -> None:
    with shell("--format", "csv", *target) as terminal:
        for wrong, reason in [
            ("SELECT nothing FROM samples;", "nothing"),
            ("SELEC 1;", "SELEC"),
            ("SELECT 10 / (id - 50) FROM samples;", "zero"),
            ("SELECT * FROM missing; SELECT 1 AS after_it;", "missing"),
            ("\\x", "unknown command \\x"),
        ]:
            answer = terminal.ask(wrong)
            assert re.search(rf"(?m)^error: .*{re.escape(reason)}", answer), answer
            assert "after_it" not in answer
        assert terminal.ask("SELECT 1 AS n;") == "n\n1\n"


def test_commands_of_the_shell(target: list[str]) -> None:
    with shell("--format", "csv", *target) as terminal:
        assert "samples" in terminal.ask("\\d")
        columns = terminal.ask("\\d samples")
        assert "emb," in columns
        assert "tensor" in columns
        assert terminal.ask("\\timing") == "timing is on\n"
        assert re.fullmatch(r"n\n1\n\d+\.\d{3} s\n", terminal.ask("SELECT 1 AS n;"))
        assert terminal.ask("\\timing") == "timing is off\n"
        assert "\\timing" in terminal.ask("\\?")
        terminal.type("\\q\n")
        assert terminal.process.wait(timeout=60) == 0


def test_control_c_stops_the_statement_and_not_the_shell(target: list[str]) -> None:
    with shell("--format", "csv", *target) as terminal:
        terminal.type(ENDLESS + "\n")
        terminal.read_until("row ")
        terminal.type("\x03")
        terminal.read_until("error: the statement was stopped")
        terminal.read_until(PROMPT)
        assert terminal.ask("SELECT 1 AS n;") == "n\n1\n"


def test_control_c_drops_what_is_typed_and_control_d_leaves(lake_path: str) -> None:
    with shell("--format", "csv", "--lake", lake_path) as terminal:
        terminal.type("SELECT 'open;\n")
        terminal.read_until(CONTINUED)
        terminal.type("\x03")
        terminal.read_until(PROMPT)
        assert terminal.ask("SELECT 1 AS n;") == "n\n1\n"
        terminal.type("\x04")
        assert terminal.process.wait(timeout=60) == 0


def test_statements_are_remembered(lake_path: str, tmp_path: Path) -> None:
    history = tmp_path / "history"
    own = {"TERM": "xterm", "STOKER_HISTORY": str(history)}
    with shell("--format", "csv", "--lake", lake_path, **own) as terminal:
        terminal.type("SELECT 40 + 2 AS answer;\r")
        terminal.read_until("42")
        terminal.read_until(PROMPT)
        # A terminal with editing drops what is typed, without a signal.
        terminal.type("SELECT 'open\r")
        terminal.read_until(CONTINUED)
        terminal.type("\x03")
        terminal.read_until(PROMPT)
        terminal.type("\x04")
        assert terminal.process.wait(timeout=60) == 0
    assert "SELECT 40 + 2 AS answer;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
    with shell("--format", "csv", "--lake", lake_path, **own) as terminal:
        terminal.type("\x1b[A\r")
        terminal.read_until("42")


def test_binary_formats_need_a_query(lake_path: str) -> None:
    for args in (
        ["--format", "parquet", "--lake", lake_path],
        ["SELECT 1", "--format", "parquet", "--lake", lake_path],
    ):
        terminal = Terminal(args)
        try:
            terminal.read_until("error: ")
            assert terminal.process.wait(timeout=60) == 1
        finally:
            terminal.close()


def test_statements_from_a_pipe(target: list[str]) -> None:
    done = piped("SELECT 1 AS n;\n\\d\nSELECT ';' AS s; -- end\n\nSELECT 2\n AS m", *target)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("n\n1\n")
    assert "samples" in done.stdout
    assert done.stdout.endswith("s\n;\nm\n2\n")
    assert piped("", *target).stdout == ""
    assert piped("-- nothing\n;;\n", *target).returncode == 0


def test_a_pipe_ends_with_its_first_error(target: list[str]) -> None:
    done = piped("SELECT 1 AS n; SELECT nothing FROM samples; SELECT 3 AS x;", *target)
    assert (done.returncode, done.stdout) == (1, "n\n1\n")
    assert [line.startswith("error: ") for line in done.stderr.splitlines()] == [True]
    assert "nothing" in done.stderr
    for wrong in ("SELECT 'open; ", "\\x\n", "SELECT U&'\\zzzz';"):
        assert piped(wrong, *target).returncode == 1, wrong
    left = piped("SELECT 1 AS n;\nquit\nSELECT nothing;", *target)
    assert (left.returncode, left.stdout) == (0, "n\n1\n")
