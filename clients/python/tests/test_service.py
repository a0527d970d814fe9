"""`stoker serve` as an operator sets it up: TLS, a token, a configuration file, the environment and options."""

from __future__ import annotations

import json
import os
import re
import selectors
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from threading import Thread
from typing import cast

import pyarrow as pa
import pytest
from certificates import Certificates
from conftest import NUM_ROWS, make_columns, stoker_bin
from pyarrow import flight

import stoker

TOKEN = "the-token-of-this-service"
#: A function that takes a certificate and its key, and returns the options of a server that uses them.
Secured = Callable[[tuple[Path, Path]], list[str]]
SQL = "SELECT id, image, name FROM samples WHERE label < 7 ORDER BY id"


def environment(own: dict[str, str]) -> dict[str, str]:
    """Returns an environment for a process: the variables of this one except Stoker's settings, and those in `own`."""
    return {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")} | own


@contextmanager
def serving(*args: str, **own: str) -> Iterator[str]:
    """Runs `stoker serve`, and gives the URL that it prints. The server must exit with status 0 and log no token."""
    command = [stoker_bin(), "serve", *args]
    process = subprocess.Popen(
        command, env=environment(own), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    log = ""
    try:
        for line in process.stdout:
            log += line
            if found := re.search(r"listening on (\S+)", line):
                break
        assert found, f"the server did not tell its address:\n{log}"
        yield found[1]
    finally:
        process.terminate()
        log += process.stdout.read()
        process.stdout.close()
        status = process.wait(timeout=60)
    assert status == 0, log
    assert "panicked" not in log
    assert TOKEN not in log


def cli(*args: str, **own: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([stoker_bin(), *args], env=environment(own), capture_output=True, text=True, timeout=120)


def refused(*args: str, **own: str) -> str:
    """Runs a command that must fail with one error, and returns the line with the error."""
    done = cli(*args, **own)
    assert done.returncode == 1, done.stderr
    assert "panicked" not in done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return error


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.issue(tmp_path_factory.mktemp("certificates"))


def secret_file(folder: Path, name: str, secret: str) -> str:
    """Writes a file that only its owner can read, with a newline at the end as editors leave it; returns its path."""
    path = folder / name
    path.touch(mode=0o600)
    path.write_text(f"{secret}\n")
    return str(path)


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return secret_file(tmp_path_factory.mktemp("token"), "token", TOKEN)


@pytest.fixture
def secured(lake_path: str, token_file: str) -> Secured:
    """A function that returns the options of a server with TLS and a token."""

    def options(files: tuple[Path, Path]) -> list[str]:
        cert, key = map(str, files)
        tls = ["--tls-cert", cert, "--tls-key", key]
        return ["--lake", lake_path, "--listen", "127.0.0.1:0", *tls, "--token-file", token_file]

    return options


def test_everything_goes_through_tls(
    secured: Secured, token_file: str, lake: stoker.Lake, certificates: Certificates
) -> None:
    with serving(*secured(certificates.good)) as url:
        assert url.startswith("grpc+tls://127.0.0.1:")
        remote = stoker.connect(url, token=TOKEN, tls_ca=str(certificates.ca), num_endpoints=2)
        assert remote.tables() == ["samples"]
        assert remote.sql(SQL).to_arrow() == lake.sql(SQL).to_arrow()
        here, there = (place.sql(SQL).stream(batch_size=9, seed=5) for place in (lake, remote))
        for mine, theirs in zip(here, there, strict=True):
            assert mine.to_arrow().equals(theirs.to_arrow())
        target = {"STOKER_SERVER": url, "STOKER_TLS_CA": str(certificates.ca), "STOKER_CLIENT_TOKEN": TOKEN}
        assert cli("tables", **target).stdout == f"samples\tversion 2\t{NUM_ROWS} rows\n"
        options = ["--server", url, "--tls-ca", str(certificates.ca), "--server-token-file", token_file]
        report = json.loads(cli("stream", SQL, "--batch-size", "9", "--seed", "5", "--json", *options).stdout)
        assert (report["stream_id"], report["steps"]) == (there.stream_id, 8)


@contextmanager
def terminating_tls(listener: socket.socket, url: str, certificate: tuple[Path, Path]) -> Iterator[list[bool]]:
    """Terminates the TLS of connections to a listener, and passes their bytes on to a server.

    Gives a list that says for each connection so far whether it resumed the TLS session of an earlier one.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.set_alpn_protocols(["h2"])
    host, port = url.removeprefix("grpc://").split(":")
    resumed: list[bool] = []

    def connect(plain: socket.socket) -> None:
        with plain, context.wrap_socket(plain, server_side=True) as client:
            resumed.append(bool(client.session_reused))
            with socket.create_connection((host, int(port))) as server:
                pass_on(client, server)

    def accept() -> None:
        # Shutting down the listener ends this loop with an error.
        with suppress(OSError):
            while True:
                plain, _ = listener.accept()
                Thread(target=connect, args=(plain,), daemon=True).start()

    Thread(target=accept, daemon=True).start()
    try:
        yield resumed
    finally:
        listener.shutdown(socket.SHUT_RDWR)


def pass_on(client: ssl.SSLSocket, server: socket.socket) -> None:
    """Passes bytes on in both directions until one side closes.

    One thread serves both directions, because only one thread at a time may use a TLS connection.
    """
    with suppress(OSError), selectors.DefaultSelector() as ready:
        ready.register(client, selectors.EVENT_READ, server)
        ready.register(server, selectors.EVENT_READ, client)
        while True:
            for key, _ in ready.select():
                source, target = cast(socket.socket, key.fileobj), cast(socket.socket, key.data)
                chunk = source.recv(1 << 16)
                # The selector does not see bytes that TLS has already decrypted.
                while source is client and client.pending():
                    chunk += client.recv(client.pending())
                if not chunk:
                    return
                target.sendall(chunk)


def test_later_connections_resume_the_session_of_the_first(lake_path: str, certificates: Certificates) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        advertised = f"grpc+tls://127.0.0.1:{listener.getsockname()[1]}"
        with (
            serving("--lake", lake_path, "--listen", "127.0.0.1:0", "--advertise", advertised) as url,
            terminating_tls(listener, url, certificates.good) as resumed,
        ):
            remote = stoker.connect(advertised, tls_ca=str(certificates.ca))
            for seed in range(3):
                assert sum(batch.num_valid for batch in remote.sql(SQL).stream(batch_size=9, seed=seed)) > 0
    assert len(resumed) > 1
    assert not resumed[0]
    assert any(resumed[1:])


def test_a_server_resumes_sessions(secured: Secured, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.set_alpn_protocols(["h2"])

    def connect(address: tuple[str, int], session: ssl.SSLSession | None) -> tuple[bool, ssl.SSLSession]:
        with (
            socket.create_connection(address) as plain,
            context.wrap_socket(plain, server_hostname=address[0], session=session) as server,
        ):
            # The server sends the session ticket before its first bytes of HTTP/2.
            server.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
            assert server.recv(1)
            assert server.session is not None
            assert server.session_reused is not None
            return server.session_reused, server.session

    with serving(*secured(certificates.good)) as url:
        host, port = url.removeprefix("grpc+tls://").split(":")
        was_resumed, session = connect((host, int(port)), None)
        assert not was_resumed
        was_resumed, _ = connect((host, int(port)), session)
        assert was_resumed


def test_a_stock_client_through_tls(secured: Secured, certificates: Certificates) -> None:
    token = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
    with (
        serving(*secured(certificates.good)) as url,
        flight.connect(url, tls_root_certs=certificates.ca.read_bytes()) as client,
    ):
        (info,) = client.list_flights(options=token)
        assert info.total_records == NUM_ROWS
        (endpoint,) = client.get_flight_info(info.descriptor, token).endpoints
        assert client.do_get(endpoint.ticket, token).read_all().num_rows == NUM_ROWS
        with pytest.raises(flight.FlightUnauthenticatedError, match="a bearer token is needed"):
            client.do_get(endpoint.ticket)


def test_who_is_refused_by_tls_or_the_token(
    lake_path: str, secured: Secured, token_file: str, certificates: Certificates
) -> None:
    ca, other_ca = str(certificates.ca), str(certificates.other_ca)
    with serving(*secured(certificates.good)) as url:
        host = url.removeprefix("grpc+tls://")
        for wrong in ("another-token", None):
            with pytest.raises(stoker.UnauthenticatedError, match="token"):
                stoker.connect(url, token=wrong, tls_ca=ca).tables()
        for authority in (None, other_ca):
            with pytest.raises(stoker.UnavailableError, match=host):
                stoker.connect(url, token=TOKEN, tls_ca=authority).tables()
        plain = stoker.connect(f"grpc://{host}", token=TOKEN)
        for call in (plain.tables, lambda: plain.sql("SELECT id FROM samples").stream(batch_size=4)):
            with pytest.raises(stoker.InvalidRequestError, match=rf"expects TLS: connect to grpc\+tls://{host}"):
                call()
        with pytest.raises(stoker.InvalidRequestError, match="cannot read the certificate authority /nowhere"):
            stoker.connect(url, tls_ca="/nowhere")
        assert "token" in refused("tables", "--server", url, "--tls-ca", ca)
        assert host in refused("tables", "--server", url, "--tls-ca", other_ca, "--server-token-file", token_file)
    with serving(*secured(certificates.of_another_host)) as url:
        host = url.removeprefix("grpc+tls://")
        with pytest.raises(stoker.UnavailableError, match=host):
            stoker.connect(url, token=TOKEN, tls_ca=ca)
    with serving("--lake", lake_path, "--listen", "127.0.0.1:0") as url:
        host = url.removeprefix("grpc://")
        with pytest.raises(stoker.UnavailableError, match=host):
            stoker.connect(f"grpc+tls://{host}", tls_ca=ca)


def test_tls_files_that_cannot_be_used(
    tmp_path: Path, lake_path: str, secured: Secured, certificates: Certificates
) -> None:
    cert, key = certificates.good
    text = tmp_path / "text.pem"
    text.write_text("no certificate\n")
    for files, said in [
        ((cert, tmp_path / "nowhere"), f"cannot read {tmp_path}/nowhere"),
        ((tmp_path / "nowhere", key), f"cannot read {tmp_path}/nowhere"),
        ((text, key), "the TLS files are not valid"),
        ((cert, text), "the TLS files are not valid"),
    ]:
        assert said in refused("serve", *secured(files))
    half = cli("serve", "--lake", lake_path, "--tls-cert", str(cert))
    assert (half.returncode, "--tls-key" in half.stderr) == (2, True)


FILE = """
listen = "{listen}"
token = "token-of-the-file"
ticket_ttl_secs = 1000
advertise = ["grpc://file:1", "grpc://file:2"]
message_bytes = {message_bytes}
streams_max = {streams_max}
memory_budget_bytes = {memory_budget_bytes}
grace_secs = 1

[[ticket_keys]]
id = "file"
secret = "a secret of the file"
"""

#: Settings with which a server refuses to start. Where another source overrides them, they must have no effect.
BAD = {"listen": "nowhere", "message_bytes": "1", "streams_max": "0", "memory_budget_bytes": "0"}
GOOD = {"listen": "127.0.0.1:0", "message_bytes": "1024", "streams_max": "3", "memory_budget_bytes": "1000000"}


def write_file(folder: Path, settings: dict[str, str]) -> str:
    path = folder / "stoker.toml"
    path.write_text(FILE.format(**settings))
    return str(path)


def variables(source: str, settings: dict[str, str]) -> dict[str, str]:
    """Returns all settings as environment variables, whose values name the source."""
    own = {
        "token": f"token-of-the-{source}",
        "ticket_key": f"{source}:a secret of the {source}",
        "ticket_ttl_secs": "2000",
        "advertise": f"grpc://{source}:1,grpc://{source}:2",
    }
    return {f"STOKER_{name.upper()}": value for name, value in (settings | own).items()}


def flags(folder: Path, source: str, settings: dict[str, str]) -> list[str]:
    """Returns all settings as command-line options, whose values name the source."""
    token = secret_file(folder, "token", f"token-of-the-{source}")
    key = secret_file(folder, "key", f"{source}:a secret of the {source}")
    own = ["--token-file", token, "--ticket-key-file", key]
    own += ["--ticket-ttl-secs", "3000", "--advertise", f"grpc://{source}:1", "--advertise", f"grpc://{source}:2"]
    return own + [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", value)]


@dataclass
class Observed:
    """The settings of a server as a stock Flight client observes them."""

    token: str
    key: str
    ticket: flight.Ticket
    ttl: int
    advertised: list[str]
    num_messages: int


def observe(url: str, sources: list[str]) -> Observed:
    """Finds the one source whose token a server accepts, and returns the settings that its responses show."""
    taken = {}
    with flight.connect(url) as client:
        for source in sources:
            token = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer token-of-the-{source}".encode())])
            try:
                asked = datetime.now(timezone.utc)
                (endpoint,) = client.get_flight_info(flight.FlightDescriptor.for_path("samples"), token).endpoints
            except flight.FlightUnauthenticatedError:
                continue
            signed, messages = endpoint.ticket.ticket, list(client.do_get(endpoint.ticket, token))
            assert sum(message.data.num_rows for message in messages) == NUM_ROWS
            taken[source] = Observed(
                token=source,
                key=signed[2 : 2 + signed[1]].decode(),
                ticket=endpoint.ticket,
                # The server truncates the expiration to whole seconds, and time has passed since the request, so the
                # difference is rounded to 100 s.
                ttl=round((endpoint.expiration_time.as_py() - asked).total_seconds(), -2),
                advertised=[location.uri.decode() for location in endpoint.locations],
                num_messages=len(messages),
            )
    (observed,) = taken.values()
    return observed


def test_options_win_over_the_environment_which_wins_over_the_file(tmp_path: Path, lake_path: str) -> None:
    sources = ["file", "environment", "option"]
    file = write_file(tmp_path, GOOD)
    with serving("--lake", lake_path, "--config", file) as url:
        observed = observe(url, sources)
        assert (observed.token, observed.key, observed.ttl) == ("file", "file", 1000)
        assert observed.advertised == ["grpc://file:1", "grpc://file:2"]
        num_messages = [observed.num_messages]
    from_environment = {"STOKER_LAKE": lake_path, "STOKER_CONFIG": write_file(tmp_path, BAD)}
    good = GOOD | {"message_bytes": "4096"}
    with serving(**from_environment, **variables("environment", good)) as url:
        observed = observe(url, sources)
        assert (observed.token, observed.key, observed.ttl) == ("environment", "environment", 2000)
        assert observed.advertised == ["grpc://environment:1", "grpc://environment:2"]
        num_messages.append(observed.num_messages)
    good = GOOD | {"message_bytes": "1000000"}
    with serving(*flags(tmp_path, "option", good), **from_environment, **variables("environment", BAD)) as url:
        observed = observe(url, sources)
        assert (observed.token, observed.key, observed.ttl) == ("option", "option", 3000)
        assert observed.advertised == ["grpc://option:1", "grpc://option:2"]
        num_messages.append(observed.num_messages)
    assert num_messages[0] > num_messages[1] > num_messages[2]


def test_sources_complete_each_other(
    tmp_path: Path, lake_path: str, token_file: str, certificates: Certificates
) -> None:
    cert, key = certificates.good
    file = tmp_path / "stoker.toml"
    file.write_text(f'listen = "127.0.0.1:0"\n[tls]\ncert = "{cert}"\nkey = "{key}"\n')
    others = {"STOKER_CONFIG": str(file), "STOKER_TICKET_TTL_SECS": "500"}
    with serving("--lake", lake_path, "--token-file", token_file, **others) as url:
        assert url.startswith("grpc+tls://")
        remote = stoker.connect(url, token=TOKEN, tls_ca=str(certificates.ca))
        assert remote.sql("SELECT count(*) AS n FROM samples").to_arrow().to_pylist() == [{"n": NUM_ROWS}]
        with pytest.raises(stoker.UnauthenticatedError):
            stoker.connect(url, tls_ca=str(certificates.ca)).tables()


def test_keys_rotate(tmp_path: Path, lake_path: str) -> None:
    file = write_file(tmp_path, GOOD)
    token = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer token-of-the-file")])
    new_key = "new:a newer secret than the file's"
    with serving("--lake", lake_path, "--config", file) as url:
        old = observe(url, ["file"])
    with serving("--lake", lake_path, "--config", file, STOKER_TICKET_KEY=new_key) as url:
        new = observe(url, ["file"])
        assert (old.key, new.key) == ("file", "new")
        with flight.connect(url) as client:
            assert client.do_get(old.ticket, token).read_all().num_rows == NUM_ROWS
    with (
        serving("--lake", lake_path, "--config", file) as url,
        flight.connect(url) as client,
        pytest.raises(pa.ArrowInvalid, match="its key is unknown to this server"),
    ):
        client.do_get(new.ticket, token)


def test_a_limit_that_only_the_file_sets(tmp_path: Path, lake_path: str) -> None:
    file = tmp_path / "stoker.toml"
    file.write_text('listen = "127.0.0.1:0"\nrequest_bytes_max = 1000\n')
    with serving("--lake", lake_path, "--config", str(file)) as url:
        remote = stoker.connect(url)
        assert remote.sql("SELECT 1 AS one").to_arrow().num_rows == 1
        with pytest.raises(stoker.InvalidRequestError, match="1000"):
            remote.sql(f"SELECT '{'x' * 1000}' AS text")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('\ncolour = "red"', "line 2: unknown field `colour`, expected one of `listen`, `admin_listen`, `insecure`"),
        ('streams_max = "many"', "line 1: invalid type: string"),
        (f'token = "{TOKEN}" x', "line 1: "),
        (f'[[ticket_keys]]\nid = "a"\nsecret = "{TOKEN}"\ncolour = 1', "line 4: unknown field `colour`"),
        ('[tls]\ncert = "a"', "missing field `key`"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, lake_path: str, text: str, said: str) -> None:
    file = tmp_path / "stoker.toml"
    file.write_text(text)
    error = refused("serve", "--lake", lake_path, "--config", str(file))
    assert f"{file} is not a valid configuration: " in error
    assert said in error
    assert TOKEN not in error


def test_settings_that_are_refused(tmp_path: Path, lake_path: str) -> None:
    serve = ["serve", "--lake", lake_path]
    assert f"cannot read {tmp_path}/nowhere" in refused(*serve, "--config", f"{tmp_path}/nowhere")
    for name, value in BAD.items():
        option, variable = f"--{name.replace('_', '-')}", f"STOKER_{name.upper()}"
        said = "cannot listen on nowhere" if name == "listen" else f"{name} is out of range: "
        assert said in refused(*serve, option, value)
        assert said in refused(*serve, **{variable: value})
        assert said in refused(*serve, "--config", write_file(tmp_path, GOOD | {name: value}))
    assert "ticket key 'short' has 5 bytes" in refused(*serve, STOKER_TICKET_KEY="short:short")
    assert "no lake is given" in refused("serve")
    malformed = cli(*serve, STOKER_STREAMS_MAX="many")
    assert malformed.returncode == 2
    assert "'many' for '--streams-max <STREAMS_MAX>'" in malformed.stderr


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    table = stoker.connect(str(tmp_path)).create_table("samples", make_columns(5))
    with serving("--lake", str(tmp_path), "--listen", "127.0.0.1:0") as url, flight.connect(url) as client:
        descriptor = flight.FlightDescriptor.for_path("samples")
        (endpoint,) = client.get_flight_info(descriptor).endpoints
        table.append(make_columns(5, start=5))
        assert client.do_get(endpoint.ticket).read_all().num_rows == 5, "the version on which the query was planned"
        for path in (["samples", "id"], []):
            said = re.escape(f"PATH names one table, and this one is {json.dumps(path)}")
            with pytest.raises(pa.ArrowInvalid, match=said):
                client.get_flight_info(flight.FlightDescriptor.for_path(*path))
        for name in ("table", "versions", "tag", "describe"):
            for body, said in [
                ({}, f"action {name} needs a table"),
                (
                    {"table": "samples", "version": 1, "tag": "v1"},
                    f'action {name} takes a version or a tag, not both; these are version 1 and tag "v1"',
                ),
            ]:
                text = json.dumps(body | ({"new_tag": "v2"} if name == "tag" else {}))
                with pytest.raises(pa.ArrowInvalid, match=said):
                    list(client.do_action(flight.Action(name, text.encode())))
