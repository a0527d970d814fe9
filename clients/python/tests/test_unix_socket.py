"""`stoker serve` on a Unix socket, with Stoker's client and with Arrow's Flight client."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from conftest import NUM_ROWS, stoker_bin
from pyarrow import flight
from test_service import cli, environment, refused, serving

import stoker

SQL = "SELECT id, image, name FROM samples WHERE label < 7 ORDER BY id"
TOKEN = "the token of this server"
KEY = {"STOKER_TICKET_KEY": "test:a secret of enough bytes"}


def address(folder: Path) -> str:
    """Returns the address of a socket in a folder."""
    return f"unix://{folder}/stoker.sock"


@contextmanager
def killable(lake_path: str, listen: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a server that a test may kill, and gives its process."""
    command = [stoker_bin(), "serve", "--lake", lake_path, "--listen", listen]
    with subprocess.Popen(command, env=environment(KEY), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert f"listening on grpc+{listen}\n" in process.stdout
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("num_endpoints", [1, 3])
def test_the_same_bytes_as_over_tcp(tmp_path: Path, lake_path: str, num_endpoints: int) -> None:
    listen = address(tmp_path)
    both = ["--listen", "127.0.0.1:0", "--listen", listen]
    with serving("--lake", lake_path, *both, STOKER_TOKEN=TOKEN) as tcp:
        assert tcp.startswith("grpc://127.0.0.1:")
        assert stat.S_IMODE((tmp_path / "stoker.sock").lstat().st_mode) == 0o600
        for target in (listen, f"grpc+{listen}"):
            lakes = [
                stoker.connect(place, token=TOKEN, num_endpoints=num_endpoints, retry_budget_secs=0)
                for place in (tcp, target)
            ]
            over_tcp, over_unix = (lake.sql(SQL).to_arrow() for lake in lakes)
            assert over_tcp == over_unix
            over_tcp, over_unix = (lake.sql(SQL).stream(batch_size=9, seed=5) for lake in lakes)
            assert over_tcp.stream_id == over_unix.stream_id
            num_batches = 0
            for theirs, mine in zip(over_tcp, over_unix, strict=True):
                assert mine.to_arrow().equals(theirs.to_arrow())
                assert mine.cursor == theirs.cursor
                num_batches += 1
            assert num_batches == len(over_tcp) > 1
        with pytest.raises(stoker.UnauthenticatedError, match="token"):
            stoker.connect(listen).tables()
        options = {"STOKER_SERVER": listen, "STOKER_CLIENT_TOKEN": TOKEN}
        assert cli("tables", **options).stdout == f"samples\tversion 2\t{NUM_ROWS} rows\n"
        report = json.loads(cli("stream", SQL, "--batch-size", "9", "--seed", "5", "--json", **options).stdout)
        assert (report["stream_id"], report["steps"]) == (over_unix.stream_id, len(over_unix))
    assert not (tmp_path / "stoker.sock").exists()


def test_a_stock_client(tmp_path: Path, lake_path: str, lake: stoker.Lake) -> None:
    # The client's gRPC library encodes some characters of this path in its requests.
    folder = tmp_path / "a-folder_1" / "and~another"
    folder.mkdir(parents=True)
    with (
        serving("--lake", lake_path, "--listen", address(folder)) as url,
        flight.connect(url) as client,
    ):
        assert url == f"grpc+{address(folder)}"
        (info,) = client.list_flights()
        assert info.total_records == NUM_ROWS
        for _ in range(3):
            (endpoint,) = client.get_flight_info(info.descriptor).endpoints
            assert endpoint.locations == []
            found = client.do_get(endpoint.ticket).read_all().sort_by("id")
            assert found.equals(lake.sql("SELECT * FROM samples ORDER BY id").to_arrow())
        assert "status" in [action.type for action in client.list_actions()]


def test_a_killed_server_is_replaced_and_its_streams_go_on(tmp_path: Path) -> None:
    listen, lake_path = address(tmp_path), f"{tmp_path}/lake"
    # The table has 26 MB, more than sockets and buffers hold, so that most bytes are not sent yet when the server dies.
    payload = np.zeros((NUM_ROWS, 1 << 18), np.uint8)
    stoker.connect(lake_path).create_table("samples", {"id": np.arange(NUM_ROWS), "payload": payload})
    with killable(lake_path, listen) as first:
        remote = stoker.connect(listen, memory_budget_bytes=1 << 20)
        stream = remote.sql("SELECT id, payload FROM samples").stream(batch_size=4, seed=1)
        rows: list[int] = []
        batches = iter(stream)
        for _ in range(3):
            batch = next(batches)
            rows += batch["id"][batch.valid].tolist()
        first.send_signal(signal.SIGKILL)
        first.wait(timeout=60)
        assert (tmp_path / "stoker.sock").is_socket()
        with killable(lake_path, listen):
            for batch in batches:
                rows += batch["id"][batch.valid].tolist()
            assert sorted(rows) == list(range(NUM_ROWS))
            assert stream.stats().retries > 0
            assert remote.tables() == ["samples"]


def test_sigterm_removes_the_socket(tmp_path: Path, lake_path: str) -> None:
    listen = address(tmp_path)
    with killable(lake_path, listen) as server:
        idle = stoker.connect(listen)
        assert idle.tables() == ["samples"]
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=60) == 0
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(stoker.UnavailableError, match=listen):
            stoker.connect(listen)


def test_a_socket_in_use_is_refused(tmp_path: Path, lake_path: str) -> None:
    listen = address(tmp_path)
    serve = ["serve", "--lake", lake_path, "--listen", listen]
    with serving(*serve[1:]):
        error = refused(*serve)
        assert f"another server listens on {listen}; stop it, or choose another path" in error
        assert stoker.connect(listen).tables() == ["samples"]


def test_what_is_not_a_socket_is_refused_and_untouched(tmp_path: Path, lake_path: str) -> None:
    (tmp_path / "stoker.sock").write_text("precious")
    error = refused("serve", "--lake", lake_path, "--listen", address(tmp_path))
    assert "this file is not a socket; remove it, or choose another path" in error
    assert (tmp_path / "stoker.sock").read_text() == "precious"


def test_addresses_come_from_all_sources(tmp_path: Path, lake_path: str) -> None:
    file = tmp_path / "stoker.toml"
    for text in (f'"{address(tmp_path)}"', f'["{address(tmp_path)}", "127.0.0.1:0"]'):
        file.write_text(f"listen = {text}\n")
        with serving("--lake", lake_path, "--config", str(file)) as url:
            assert url == f"grpc+{address(tmp_path)}"
            assert stoker.connect(url).tables() == ["samples"]
    file.write_text("listen = 1\n")
    error = refused("serve", "--lake", lake_path, "--config", str(file))
    assert "expected an address or a list of addresses" in error
    with serving("--lake", lake_path, STOKER_LISTEN=f"{address(tmp_path)},127.0.0.1:0") as url:
        assert url == f"grpc+{address(tmp_path)}"
        assert cli("tables", STOKER_SERVER=address(tmp_path)).stdout.startswith("samples\t")


@pytest.mark.parametrize(
    ("listen", "said"),
    [
        ("unix://stoker.sock", '"stoker.sock" is not the absolute path of a Unix socket; write unix:///path/to/socket'),
        (f"unix:///tmp/{'x' * 108}", "has 113 bytes; the path of a Unix socket has 107 at most"),
        ("unix:///nowhere/at/all", "/nowhere/at must be a folder that can be read: No such file or directory"),
    ],
)
def test_addresses_that_no_socket_can_have(tmp_path: Path, lake_path: str, listen: str, said: str) -> None:
    assert said in refused("serve", "--lake", lake_path, "--listen", listen)
    error = refused("tables", "--server", listen)
    if listen == "unix:///nowhere/at/all":
        assert f"cannot reach {listen}: " in error
    else:
        assert said in error


def test_tls_is_refused(tmp_path: Path, lake_path: str) -> None:
    tls = ["--tls-cert", str(tmp_path / "cert"), "--tls-key", str(tmp_path / "key")]
    error = refused("serve", "--lake", lake_path, "--listen", address(tmp_path), *tls)
    assert "TLS is for TCP" in error
    assert not (tmp_path / "stoker.sock").exists()
