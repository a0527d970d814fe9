"""Rows that Python writes through a server are written once, whatever becomes of the server and of its answers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import TOKENS, Server, tokens_file
from test_outages import LostAnswer, WordProxy, has_headers, port_of

import stoker

WRITES = {"STOKER_ALLOW_WRITES": "true"}
NUM_ROWS = 3_000


def rows(num_rows: int = NUM_ROWS) -> Iterator[dict[str, Any]]:
    return ({"id": row, "image": np.full((16, 16), row % 251, np.uint8)} for row in range(num_rows))


def table_of(num_rows: int = NUM_ROWS) -> dict[str, Any]:
    return {"id": np.arange(num_rows), "image": np.stack([row["image"] for row in rows(num_rows)])}


def check_once(path: str, num_versions: int, num_rows: int) -> None:
    """Checks that a table has these versions and rows, each row once."""
    lake = stoker.connect(path)
    table = lake.table("t")
    assert [version.version for version in table.versions()] == list(range(1, num_versions + 1))
    found = lake.sql("SELECT id, image FROM t").to_arrow()
    assert found.num_rows == num_rows
    ids = np.asarray(found["id"])
    assert sorted(ids) == sorted(list(range(NUM_ROWS)) * (num_rows // NUM_ROWS))
    assert table.doctor() == []


class KilledAfterCommit(WordProxy):
    """Kills the server when it answers a request that contains the word: after the commit. Another one takes over."""

    def __init__(self, server: Server, word: bytes, path: str) -> None:
        self.first, self._path = server, path
        self.second: Server | None = None
        super().__init__(server, word)

    def notice(self) -> bool:
        return self.second is None

    def drops(self, piece: bytes) -> bool:
        if not has_headers(piece) or self.second is not None:
            return False
        self.first.process.kill()
        self.first.process.wait()
        self.second = Server(self._path, WRITES)
        self._upstream_port = port_of(self.second)
        return True


@contextmanager
def killed_after_commit(path: str, word: bytes) -> Iterator[stoker.Lake]:
    server = Server(path, WRITES)
    with closing(KilledAfterCommit(server, word, path)) as proxy:
        yield stoker.connect(f"grpc://127.0.0.1:{proxy.port}")
        assert proxy.second is not None, "the server was not killed"
        assert proxy.second.stop() == 0


@pytest.mark.parametrize("make", [table_of, rows], ids=["a dict", "a generator"])
def test_a_server_killed_after_its_commit_writes_nothing_twice(tmp_path: Path, make: Callable[[], Any]) -> None:
    path = str(tmp_path)
    with killed_after_commit(path, b"create") as lake:
        assert lake.create_table("t", make()).num_rows == NUM_ROWS
    check_once(path, 1, NUM_ROWS)
    with killed_after_commit(path, b"append") as lake:
        assert lake.table("t").append(make()).num_rows == 2 * NUM_ROWS
    check_once(path, 2, 2 * NUM_ROWS)


@pytest.mark.parametrize("make", [table_of, rows], ids=["a dict", "a generator"])
def test_a_lost_answer_writes_nothing_twice(tmp_path: Path, make: Callable[[], Any]) -> None:
    path = str(tmp_path)
    server = Server(path, WRITES)
    for word, write, num_rows in [
        (b"create", lambda lake: lake.create_table("t", make()), NUM_ROWS),
        (b"append", lambda lake: lake.table("t").append(make()), 2 * NUM_ROWS),
    ]:
        with closing(LostAnswer(server, word)) as proxy:
            lake = stoker.connect(f"grpc://127.0.0.1:{proxy.port}")
            assert write(lake).num_rows == num_rows
            assert proxy.num_lost == 1
    assert server.stop() == 0
    check_once(path, 2, 2 * NUM_ROWS)


def interrupted(
    path: str, num_before: int
) -> tuple[stoker.Lake, Callable[[], None], Iterator[dict[str, Any]], list[Server]]:
    """Returns a lake behind a server, and rows that kill the server when some of them were taken, and start another."""
    servers = [Server(path, WRITES)]
    proxy = WordProxy(servers[0], b"no request has this word")
    lake = stoker.connect(f"grpc://127.0.0.1:{proxy.port}")
    taken = threading.Event()

    def deadly() -> Iterator[dict[str, Any]]:
        for number, row in enumerate(rows()):
            if number == num_before and not taken.is_set():
                taken.set()
                servers[0].process.kill()
                servers[0].process.wait()
                servers.append(Server(path, WRITES))
                proxy._upstream_port = port_of(servers[1])
            yield row

    return lake, proxy.close, deadly(), servers


def test_a_server_killed_in_the_middle_writes_nothing_of_a_generator(tmp_path: Path) -> None:
    path = str(tmp_path)
    lake, close, deadly, servers = interrupted(path, 2_500)
    with pytest.raises(stoker.UnavailableError, match="come from an iterator, which cannot be read again") as failed:
        lake.create_table("t", deadly)
    assert lake.tables() == []
    key = str(failed.value).split("key=")[1].split('"')[1]
    assert lake.create_table("t", rows(), key=key).version == 1
    assert lake.create_table("t", rows(), key=key).version == 1
    close()
    assert servers[1].stop() == 0
    check_once(path, 1, NUM_ROWS)


def test_a_server_killed_in_the_middle_gets_rows_again_that_can_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path)
    lake, close, deadly, servers = interrupted(path, 2_500)
    # A table whose first reading is the deadly one: pandas, Arrow and dicts are read again from the beginning.
    from stoker import _data

    readings = iter([deadly])
    monkeypatch.setattr(_data, "_is_repeatable", lambda data: True)
    opened = _data.row_batches
    monkeypatch.setattr(
        _data, "row_batches", lambda items, hints, failures: opened(next(readings, rows()), hints, failures)
    )
    assert lake.create_table("t", iter([{"id": 0}])).num_rows == NUM_ROWS
    close()
    assert servers[1].stop() == 0
    check_once(path, 1, NUM_ROWS)


@pytest.mark.parametrize("where", ["in process", "through a server"])
def test_a_key_writes_once(tmp_path: Path, where: str) -> None:
    path = str(tmp_path)
    server = Server(path, WRITES)
    lake = stoker.connect(path if where == "in process" else server.url)
    for _ in range(2):
        assert lake.create_table("t", table_of(), key="first").version == 1
        assert lake.create_table("t", rows(), key="first").version == 1
    for _ in range(3):
        assert lake.table("t").append(table_of(), key="second").num_rows == 2 * NUM_ROWS
    # Another version in between changes nothing.
    lake.execute("CREATE INDEX ON t (id)")
    assert lake.table("t").append(table_of(), key="second").num_rows == 2 * NUM_ROWS
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: lake.table("t").append(table_of(), key="third"), range(8)))
    assert lake.table("t").num_rows == 3 * NUM_ROWS
    with pytest.raises(stoker.AlreadyExistsError):
        lake.create_table("t", table_of(), key="fourth")
    replaced = lake.create_table("t", table_of(), key="fifth", mode="overwrite")
    assert lake.create_table("t", table_of(7), key="fifth", mode="overwrite").version == replaced.version
    for key, message in [("", "has 0 characters"), ("k" * 257, "has 257 characters"), (3, "key is a int")]:
        with pytest.raises(stoker.InvalidRequestError, match=message):
            lake.create_table("u", table_of(), key=key)
    assert server.stop() == 0


STREAMED = """
import resource, sys
import numpy as np, stoker

def rows():
    for row in range(600):
        yield {"id": row, "wide": np.full((1 << 18,), row, np.float32)}

lake = stoker.connect(sys.argv[1])
lake.create_table("t", [next(rows())])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
lake.table("t").append(rows())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("where", ["in process", "through a server"])
def test_generators_are_written_in_bounded_memory(tmp_path: Path, where: str) -> None:
    """600 MiB of rows take less than a third of that, beyond what the process had."""
    path = str(tmp_path)
    server = Server(path, WRITES)
    target = path if where == "in process" else server.url
    printed = subprocess.run(
        [sys.executable, "-c", STREAMED, target], check=True, capture_output=True, text=True
    ).stdout
    more_kib = int(printed.split()[1])
    assert more_kib < 200 << 10, printed
    peak = Path(f"/proc/{server.process.pid}/status").read_text().split("VmHWM:")[1].split()[0]
    assert int(peak) < 900 << 10, peak
    assert stoker.connect(path).table("t").num_rows == 601
    assert server.stop() == 0


def test_writes_take_a_role_and_a_server_that_allows_them(tmp_path: Path) -> None:
    path = str(tmp_path / "lake")
    stoker.connect(path).create_table("t", {"a": [1]})
    tokens = tokens_file(tmp_path)
    server = Server(path, {**WRITES, "STOKER_TOKENS_FILE": str(tokens)})
    reader, writer = (stoker.connect(server.url, token=TOKENS[role]) for role in ("read", "write"))
    writes: list[Callable[[stoker.Lake], Any]] = [
        lambda lake: lake.create_table("u", {"a": [1]}),
        lambda lake: lake.table("t").append({"a": [2]}),
        lambda lake: lake.table("t").append({"a": [2]}, key="mine"),
    ]
    for write in writes:
        with pytest.raises(stoker.PermissionDeniedError, match="needs the role write, and reader has the role read"):
            write(reader)
        write(writer)
    assert server.stop() == 0
    assert stoker.connect(path).table("t").num_rows == 3
    server = Server(path)
    with pytest.raises(stoker.PermissionDeniedError, match="does not support writing: start it with --allow-writes"):
        stoker.connect(server.url).create_table("v", {"a": [1]})
    assert server.stop() == 0


def test_a_client_that_dies_leaves_no_version_and_no_files(tmp_path: Path) -> None:
    path = str(tmp_path)
    server = Server(path, WRITES)
    script = (
        "import os, sys, numpy as np, stoker\n"
        "def rows():\n"
        "    for row in range(5000):\n"
        "        if row == 4500: os._exit(3)\n"
        "        yield {'id': row, 'image': np.zeros((64, 64), np.float32)}\n"
        "stoker.connect(sys.argv[1]).create_table('t', rows())\n"
    )
    assert subprocess.run([sys.executable, "-c", script, server.url]).returncode == 3
    # The server sees that the connection is gone, and removes what it wrote before it stops.
    lake = stoker.connect(server.url)
    assert lake.tables() == []
    assert server.stop() == 0
    assert stoker.connect(path).tables() == []
    assert [file for file in tmp_path.glob("t.lance/data/**/*.lance") if file.stat().st_size] == []


def test_rows_are_refused_with_column_and_row_through_a_server(tmp_path: Path) -> None:
    server = Server(str(tmp_path), WRITES)
    lake = stoker.connect(server.url)
    table = lake.create_table("t", {"f": np.array([0.5]), "id": [1]})
    batches = [pa.record_batch({"f": pa.array([1, 2]), "id": [1, 2]}), pa.record_batch({"f": [2**53 + 1], "id": [3]})]
    with pytest.raises(
        stoker.InvalidRequestError, match="column f row 2: expected a number that Float64 holds exactly"
    ):
        table.append(iter(batches))
    assert lake.table("t").version == 1
    assert server.stop() == 0
