"""Fixtures for temporary lakes, an S3-compatible store, and a real server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from s3_store import Store

import stoker

#: The files of tests that take longest, the longest first.
LONGEST_FILES = ["test_soak.py", "test_trainers.py", "test_agreement.py", "test_bench_python.py", "test_bench_sql.py"]

NUM_ROWS = 101
SHAPE = (3, 8, 6)
#: A token of each role, which :func:`tokens_file` writes.
TOKENS = {role: f"the token of the {role}er" for role in ("read", "write", "admin")}


def make_columns(num_rows: int, start: int = 0) -> dict[str, object]:
    """Returns columns whose values are functions of the row's id."""
    ids = np.arange(start, start + num_rows, dtype=np.int64)
    size = int(np.prod(SHAPE))
    image = ((ids[:, None] * 7 + np.arange(size)) % 251).astype(np.uint8).reshape(num_rows, *SHAPE)
    return {
        "id": ids,
        "image": image,
        "label": (ids % 10).astype(np.int32),
        "name": [f"row {i}" for i in ids],
        "emb": np.stack([ids, ids**2 % 97, np.ones_like(ids), -ids], axis=1).astype(np.float32),
    }


def expected_image(row: int) -> np.ndarray:
    """Returns the image of the row with this id."""
    size = int(np.prod(SHAPE))
    return ((row * 7 + np.arange(size)) % 251).astype(np.uint8).reshape(SHAPE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the files that take longest first: others run beside them, and nothing waits for one alone at the end."""
    places = {name: place for place, name in enumerate(LONGEST_FILES)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture(autouse=True)
def no_ranks_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes rank and world size from the environment: each test chooses its own."""
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)


@pytest.fixture(scope="session")
def lake_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake with the table `samples` in two versions; the first has the tag `v1` and 60 rows."""
    path = str(tmp_path_factory.mktemp("lake"))
    lake = stoker.connect(path)
    table = lake.create_table("samples", make_columns(60), rows_per_fragment=32)
    table.tag("v1")
    table.append(make_columns(NUM_ROWS - 60, start=60))
    return path


@pytest.fixture
def lake(lake_path: str) -> stoker.Lake:
    """The lake, opened in this process."""
    return stoker.connect(lake_path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """An S3-compatible store with one empty bucket."""
    running = Store(tmp_path_factory.mktemp("store") / "log")
    yield running
    running.stop()


def stoker_bin() -> str:
    """Returns the path of the `stoker` binary; the test fails if there is none."""
    binary = os.environ.get("STOKER_BIN", "")
    if not Path(binary).is_file():
        pytest.fail(f"STOKER_BIN is {binary!r}: set it to the stoker binary, as `cargo xtask test` does")
    return binary


def tokens_file(folder: Path, **more: str) -> Path:
    """Writes a file with a token for each role, followed by the entries in `more`; returns its path."""
    entries = [f'[[tokens]]\nname = "{role}er"\nrole = "{role}"\ntoken = "{token}"\n' for role, token in TOKENS.items()]
    path = folder / "tokens.toml"
    path.touch(mode=0o600)
    path.write_text("\n".join([*entries, *more.values()]))
    return path


class Server:
    """A `stoker serve` process on a port that the system chooses."""

    def __init__(self, lake_path: str, environment: Mapping[str, str] | None = None) -> None:
        command = [stoker_bin(), "serve", "--lake", lake_path, "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        #: The lines of output up to the one that tells the address.
        self.lines: list[str] = []
        self.url = f"grpc://127.0.0.1:{self._port()}"

    def _port(self) -> int:
        assert self.process.stdout is not None
        lines = self.lines
        for line in self.process.stdout:
            lines.append(line)
            found = re.search(r"listening on \S+://127\.0\.0\.1:(\d+)", line)
            if found:
                return int(found[1])
        raise AssertionError("the server did not tell its address:\n" + "".join(lines))

    def stop(self) -> int:
        """Asks the server to stop; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(timeout=30)


@pytest.fixture(scope="session")
def server(lake_path: str) -> Iterator[Server]:
    """A server over the lake."""
    running = Server(lake_path)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[str], str]]:
    """Returns the address of the server over a lake, which is started when it is asked for first."""
    running: dict[str, Server] = {}

    def address(lake_path: str) -> str:
        if lake_path not in running:
            running[lake_path] = Server(lake_path)
        return running[lake_path].url

    yield address
    for server in running.values():
        assert server.stop() == 0


@pytest.fixture(params=["in process", "through a server"])
def place(request: pytest.FixtureRequest, own_lake: stoker.Lake, serve: Callable[[str], str]) -> stoker.Lake:
    """The lake of a module's fixture ``own_lake``, opened in this process and through the module's server."""
    return own_lake if request.param == "in process" else stoker.connect(serve(own_lake.target))
