"""A lake in an S3-compatible store that is reached over TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Certificates
from conftest import make_columns, stoker_bin
from s3_store import BUCKET, Store

import stoker

NUM_ROWS = 300
#: What the log says where ranges are not read over the connections of Stoker's own.
GENERAL = "read through the general client"


class TlsStore:
    """A TLS server in front of a store, which passes bytes on. It listens on a port that the system chooses."""

    def __init__(self, store: Store, certificate: tuple[Path, Path]) -> None:
        self._store = store
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*certificate)
        self._context.set_alpn_protocols(["http/1.1"])
        self.num_connections = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(30)
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._store.port)
        await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))

    def close(self) -> None:
        """Stops the server and its thread."""
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass  # an end went away, as after a request that was cancelled
    finally:
        writer.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.issue(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def lake(store: Store) -> str:
    url = f"s3://{BUCKET}/tls"
    stoker.connect(url, storage_options=store.options).create_table("samples", make_columns(NUM_ROWS))
    return url


@pytest.fixture
def tls_store(store: Store, certificates: Certificates) -> Iterator[TlsStore]:
    server = TlsStore(store, certificates.good)
    yield server
    server.close()


def drain(lake: str, store: Store, tls: TlsStore, ca: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Drains a stream with the command line; the log is on standard error."""
    variables = {**store.environment(), "AWS_ENDPOINT": tls.url, "SSL_CERT_FILE": str(ca), "STOKER_LOG": "info"}
    query = "SELECT image, label FROM samples"
    command = [stoker_bin(), "--lake", lake, *args, "stream", query, "--batch-size", "32", "--json"]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)


def test_ranges_are_read_from_tls_into_batches(
    lake: str, store: Store, tls_store: TlsStore, certificates: Certificates
) -> None:
    done = drain(lake, store, tls_store, certificates.ca)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["rows"] == NUM_ROWS, "each row once, whose checksum was compared"
    assert GENERAL not in done.stderr
    assert tls_store.num_connections > 0


def test_the_log_says_why_the_general_client_reads(
    lake: str, store: Store, tls_store: TlsStore, certificates: Certificates
) -> None:
    done = drain(lake, store, tls_store, certificates.ca, "--storage-option", "headers.x-team=vision")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == NUM_ROWS
    (line,) = [line for line in done.stderr.splitlines() if GENERAL in line]
    assert "headers.x-team" in line


def test_a_store_with_a_certificate_of_nobody_is_refused(
    lake: str, store: Store, tls_store: TlsStore, certificates: Certificates
) -> None:
    options = ("--storage-option", "timeout=2s", "--storage-option", "client_max_retries=0")
    done = drain(lake, store, tls_store, certificates.other_ca, *options)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: ")
