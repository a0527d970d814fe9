"""The safe defaults of a server: which machines reach it, what each role may do, and which secrets no output has."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
from certificates import Certificates, Issuer
from conftest import NUM_ROWS, TOKENS, make_columns, stoker_bin, tokens_file
from cryptography import x509
from pyarrow import flight
from s3_store import BUCKET, Store
from test_service import cli, environment, refused, secret_file

import stoker

#: A secret that no output may contain.
CANARY = "canary-0f1e2d3c4b5a69788796"
ADMIN = "the token of the administrator"
#: For each action, the lowest role that may call it, and a request body that is valid or at least parsed.
ACTIONS: dict[str, tuple[str, dict[str, object]]] = {
    "version": ("read", {}),
    "status": ("admin", {}),
    "streams": ("admin", {}),
    "tables": ("read", {}),
    "table": ("read", {"table": "samples"}),
    "versions": ("read", {"table": "samples"}),
    "tag": ("write", {"table": "samples", "version": 1, "new_tag": "v1"}),
    "describe": ("read", {"table": "samples"}),
    "doctor": ("read", {"table": "samples"}),
    "explain": ("read", {"sql": "SELECT id, image FROM samples WHERE label < 3"}),
    "execute": ("write", {"sql": "CREATE INDEX ON samples (label)"}),
    "verify": ("read", {"receipts": []}),
    "run": ("read", {"run_id": "nobody"}),
    "log_bad_rows": ("read", {"bad_rows": []}),
    "rows": ("read", {}),
    "nulls": ("read", {}),
    "rows_beside": ("read", {}),
    "find_write": ("write", {"table": "samples", "write_key": {"key": "k", "since_version": 0}}),
    "log_run": ("read", {}),
}
RANKS = {"read": 0, "write": 1, "admin": 2}


class Watched:
    """A `stoker serve` process whose whole output goes to a file."""

    def __init__(self, folder: Path, *args: str, **own: str) -> None:
        self.log_path = folder / "log"
        self.log_path.write_bytes(b"")
        self.process = subprocess.Popen(
            [stoker_bin(), "serve", *args],
            env=environment(own),
            stdout=self.log_path.open("ab"),
            stderr=subprocess.STDOUT,
        )
        self.url = ""
        self.waits(lambda: "listening on " in self.log() or self.process.poll() is not None)
        if found := re.search(r"listening on (\S+)", self.log()):
            self.url = found[1]

    def log(self) -> str:
        return self.log_path.read_text()

    def command_line(self) -> str:
        return Path(f"/proc/{self.process.pid}/cmdline").read_text()

    def waits(self, condition: Callable[[], bool]) -> None:
        """Waits until a condition holds, for at most 60 s."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)
        assert "panicked" not in self.log()


@contextmanager
def watched(folder: Path, *args: str, **own: str) -> Iterator[Watched]:
    server = Watched(folder, *args, **own)
    try:
        assert server.url, server.log()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.issue(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def own_lake(tmp_path: Path) -> str:
    """The path of a lake of one test; clients of a server must not see its folder `secret-place`."""
    path = str(tmp_path / "secret-place" / "lake")
    stoker.connect(path).create_table("samples", make_columns(40), rows_per_fragment=16)
    return path


def addresses_of_this_machine() -> list[str]:
    """Returns the addresses, with port 0, at which other machines reach this one."""
    own = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        # Connecting a UDP socket sends nothing: the system only chooses the local address, if it has one.
        probe.connect(("192.0.2.1", 9))
        own.append(f"{probe.getsockname()[0]}:0")
    return ["0.0.0.0:0", "[::]:0", *own]


def authorized(token: str) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])


def test_other_machines_need_a_token_and_tls(tmp_path: Path, lake_path: str, certificates: Certificates) -> None:
    cert, key = map(str, certificates.good)
    tls = ["--tls-cert", cert, "--tls-key", key]
    token = ["--token-file", secret_file(tmp_path, "token", ADMIN)]
    for address in addresses_of_this_machine():
        listen = ["--lake", lake_path, "--listen", "127.0.0.1:0", "--listen", address]
        for options, lacking in [([], "a token and TLS"), (tls, "a token"), (token, "TLS, which keeps")]:
            error = refused("serve", *listen, *options)
            assert f"cannot listen on {address}: other machines can reach it, so it needs {lacking}" in error
            assert "--insecure" in error
        for options, own in [(["--insecure"], {}), ([], {"STOKER_INSECURE": "true"}), ([*tls, *token], {})]:
            with watched(tmp_path, *listen, *options, **own) as server:
                assert server.log().count("listening on ") == 2
                warned = f"{address} is served to other machines without a token and TLS" in server.log()
                assert warned == (not options or options == ["--insecure"])
    config = tmp_path / "stoker.toml"
    config.write_text('listen = "0.0.0.0:0"\ninsecure = true\n')
    with watched(tmp_path, "--lake", lake_path, "--config", str(config)):
        pass
    assert "needs a token and TLS" in refused("serve", "--lake", lake_path, "--config", str(config), "--insecure=false")


def test_this_machine_needs_neither(tmp_path: Path, lake_path: str) -> None:
    for address in ("127.0.0.1:0", "127.3.2.1:0", "[::1]:0", "localhost:0", f"unix://{tmp_path}/socket"):
        with watched(tmp_path, "--lake", lake_path, "--listen", address) as server:
            assert stoker.connect(server.url).tables() == ["samples"]


def test_secrets_are_not_taken_from_the_command_line(tmp_path: Path, lake_path: str) -> None:
    serve = ["serve", "--lake", lake_path]
    for command, option in [
        ([*serve, "--token", CANARY], "--token-file FILE, or set STOKER_TOKEN"),
        ([*serve, f"--token={CANARY}"], "--token-file FILE, or set STOKER_TOKEN"),
        ([*serve, "--ticket-key", CANARY], "--ticket-key-file FILE, or set STOKER_TICKET_KEY"),
        (
            ["tables", "--server", "grpc://127.0.0.1:1", "--server-token", CANARY],
            "--server-token-file FILE, or set STOKER_CLIENT_TOKEN",
        ),
    ]:
        done = cli(*command)
        assert done.returncode == 1
        assert option in done.stderr
        assert CANARY not in done.stderr + done.stdout
    for help_of in (["--help"], ["serve", "--help"]):
        told = cli(
            *help_of, STOKER_TOKEN=CANARY, STOKER_LAKE=f"s3://KEY:{CANARY}@bucket/lake", STOKER_CLIENT_TOKEN=CANARY
        )
        assert told.returncode == 0
        assert CANARY not in told.stdout + told.stderr


def test_secrets_that_are_too_short_or_none(tmp_path: Path, lake_path: str) -> None:
    serve = ["serve", "--lake", lake_path]
    for secret, said in [
        ("15 bytes and no", "has 15 bytes; use at least 16 random bytes"),
        ("  \n", "is empty"),
        (f"{CANARY}\nand more", "several lines"),
    ]:
        file = secret_file(tmp_path, "secret", secret)
        config = tmp_path / "stoker.toml"
        config.write_text(f"token = {json.dumps(secret)}\n")
        tokens = tmp_path / "tokens.toml"
        tokens.write_text(f'[[tokens]]\nname = "one"\nrole = "read"\ntoken = {json.dumps(secret)}\n')
        for error in (
            refused(*serve, "--token-file", file),
            refused(*serve, STOKER_TOKEN=secret),
            refused(*serve, "--config", str(config)),
            refused(*serve, "--tokens-file", str(tokens)),
        ):
            assert said in error
            assert CANARY not in error
    for option in ("--token-file", "--tokens-file", "--ticket-key-file"):
        error = refused(*serve, option, "/nowhere")
        assert "cannot read" in error
        assert "/nowhere" in error
    assert "the token is empty" in refused("tables", "--server", "grpc://127.0.0.1:1", STOKER_CLIENT_TOKEN=" ")
    with pytest.raises(stoker.InvalidRequestError, match="the token is empty"):
        stoker.connect("grpc://127.0.0.1:1", token="")


def test_files_that_others_read_are_warned_of(tmp_path: Path, lake_path: str) -> None:
    files = {"--token-file": secret_file(tmp_path, "token", ADMIN), "--tokens-file": str(tokens_file(tmp_path))}
    files["--ticket-key-file"] = secret_file(tmp_path, "key", "a:key of enough bytes\nb:an older key of them\n")
    options = [word for option in files.items() for word in option]
    for mode, warned in [(0o600, False), (0o644, True)]:
        for path in files.values():
            Path(path).chmod(mode)
        with watched(tmp_path, "--lake", lake_path, "--listen", "127.0.0.1:0", *options) as server:
            for path in files.values():
                assert (f"{path} holds secrets and every user of this machine can read it" in server.log()) == warned
            # A newline at the end, as editors leave it, is not part of the token.
            assert stoker.connect(server.url, token=ADMIN).tables() == ["samples"]
            assert stoker.connect(server.url, token=f"{ADMIN}\n").tables() == ["samples"]


TOKENS_OF_FILE = {"STOKER_TOKENS_FILE": "CONFIG"}
#: Commands that fail and were given a secret: arguments, environment variables, and the text of a configuration file.
DOORS: list[tuple[list[str], dict[str, str], str]] = [
    (["tables", "--lake", "s3://b/l", "--storage-option", f"aws_secret_access_key:{CANARY}"], {}, ""),
    (["tables", "--lake", f"s3://KEY:{CANARY}@bucket/lake"], {}, ""),
    (["tables", "--lake", f"s3://KEY:a/{CANARY}@bucket/lake"], {}, ""),
    (["tables", "--lake", f"az://container/lake?sv=1&sig={CANARY}"], {}, ""),
    (["tables", "--lake", f"ftp://me:{CANARY}@host/lake"], {}, ""),
    (["tables", "--server", f"grpc://me:{CANARY}@127.0.0.1:1"], {}, ""),
    (["tables", "--server", f"grpc+tls://{CANARY}@127.0.0.1:1"], {}, ""),
    (["serve", "--lake", f"gs://KEY:{CANARY}@bucket/lake"], {}, ""),
    (["serve", "--lake", "LAKE", f"--tokn={CANARY}"], {}, ""),
    (["tables"], {"STOKER_LAKE": f"s3://KEY:{CANARY}@bucket/lake"}, ""),
    (["tables"], {"STOKER_SERVER": f"grpc://me:{CANARY}@127.0.0.1:1"}, ""),
    (["tables", "--server", "grpc://127.0.0.1:1"], {"STOKER_CLIENT_TOKEN": CANARY}, ""),
    (["tables", "--server", "grpc://127.0.0.1:1"], {"STOKER_CLIENT_TOKEN": f"a\r\n{CANARY}"}, ""),
    (["serve", "--lake", "LAKE", "--listen", "nowhere"], {"STOKER_TOKEN": CANARY, "STOKER_TICKET_KEY": CANARY}, ""),
    (["serve", "--lake", "LAKE"], {}, f'token = "{CANARY}"\ntoken_file = "/nowhere"'),
    (["serve", "--lake", "LAKE"], {}, f"token = {CANARY}"),
    (["serve", "--lake", "LAKE"], {}, f'token = ["{CANARY}"]'),
    (["serve", "--lake", "LAKE"], {}, f'ticket_keys = ["{CANARY}"]'),
    (["serve", "--lake", "LAKE"], {}, f'streams_max = "{CANARY}"'),
    (["serve", "--lake", "LAKE"], {}, f'[[ticket_keys]]\nid = "a"\nsecret = "{CANARY}"\nid = "b"'),
    (
        ["serve", "--lake", "LAKE"],
        {"STOKER_TOKENS_FILE": "CONFIG"},
        f'[[tokens]]\ntoken = "{CANARY}"\nrole = "{CANARY}"',
    ),
    (["serve", "--lake", "LAKE"], TOKENS_OF_FILE, CANARY),
]


@pytest.mark.parametrize(("args", "own", "config"), DOORS, ids=[str(index) for index in range(len(DOORS))])
def test_no_door_lets_a_secret_out(
    tmp_path: Path, lake_path: str, args: list[str], own: dict[str, str], config: str
) -> None:
    file = tmp_path / "stoker.toml"
    file.write_text(config)
    args = [lake_path if arg == "LAKE" else arg for arg in args]
    own = {name: str(file) if value == "CONFIG" else value for name, value in own.items()}
    more = ["--config", str(file)] if config and "STOKER_TOKENS_FILE" not in own else []
    done = cli(*args, *more, STOKER_LOG="trace", RUST_BACKTRACE="1", **own)
    assert done.returncode != 0
    assert "panicked" not in done.stderr
    assert CANARY not in done.stdout + done.stderr


def test_connect_tells_no_secret() -> None:
    for target, options in [
        (f"s3://KEY:{CANARY}@bucket/lake", {}),
        (f"grpc://me:{CANARY}@127.0.0.1:1", {}),
        ("grpc://127.0.0.1:1", {"token": f"a\n{CANARY}"}),
        ("grpc://127.0.0.1:1", {"token": CANARY}),
        ("s3://bucket/lake", {"storage_options": {"aws_endpoint": f"http://me:{CANARY}@127.0.0.1:1"}}),
        (
            "s3://bucket/lake",
            {"storage_options": {"aws_endpoint": "http://127.0.0.1:1", "aws_secret_access_key": CANARY}},
        ),
    ]:
        with pytest.raises(stoker.StokerError) as refusal:
            stoker.connect(target, **options).tables()
        assert CANARY not in f"{refusal.value!r} {refusal.value}"


def test_a_log_of_everything_has_no_token(tmp_path: Path, lake_path: str) -> None:
    token = secret_file(tmp_path, "token", CANARY)
    listen = ["--lake", lake_path, "--listen", "127.0.0.1:0", "--token-file", token]
    with watched(tmp_path, *listen, STOKER_LOG="trace", STOKER_TICKET_KEY=f"a:{CANARY}-key") as server:
        told = cli("stream", "SELECT id FROM samples", "--batch-size", "9", STOKER_LOG="trace",
                   STOKER_SERVER=server.url, STOKER_CLIENT_TOKEN=CANARY)  # fmt: skip
        assert told.returncode == 0
        assert CANARY not in told.stdout + told.stderr
        wrong = cli("tables", STOKER_LOG="trace", STOKER_SERVER=server.url, STOKER_CLIENT_TOKEN=f"{CANARY}-wrong")
        assert wrong.returncode == 1
        assert CANARY not in wrong.stdout + wrong.stderr
        assert CANARY not in server.command_line()
    assert CANARY not in server.log()


def answer(client: flight.FlightClient, action: flight.Action, token: str = "") -> str:
    """Returns the response of an action, or the message of the error that refused it."""
    try:
        results = list(client.do_action(action, authorized(token)))
    except (flight.FlightError, pa.ArrowException, OSError, KeyError) as error:
        return str(error)
    return "".join(result.body.to_pybytes().decode(errors="replace") for result in results)


#: The actions of Flight SQL, which read: all roles may call them. `test_flight_sql.py` does.
FLIGHT_SQL = {
    "CreatePreparedStatement",
    "ClosePreparedStatement",
    "CancelQuery",
    "CancelFlightInfo",
    "RenewFlightEndpoint",
    "SetSessionOptions",
    "GetSessionOptions",
    "CloseSession",
}


def put_refusal(client: flight.FlightClient, token: str) -> str:
    """Returns the error message of a DoPut of rows without a command, which servers always refuse."""
    table = flight.FlightDescriptor.for_path("t")
    try:
        client.do_put(table, pa.schema([("id", pa.int64())]), authorized(token))[0].close()
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        return str(error)
    raise AssertionError("servers do not take tables")


def test_what_each_role_may_do(tmp_path: Path, own_lake: str) -> None:
    file = tokens_file(tmp_path)
    listen = ["--lake", own_lake, "--listen", "127.0.0.1:0", "--tokens-file", str(file)]
    with watched(tmp_path, *listen) as server, flight.connect(server.url) as client:
        listed = {action.type for action in client.list_actions(authorized(TOKENS["read"]))}
        assert listed == set(ACTIONS) | FLIGHT_SQL, "each action has a row in the table of this test"
        for role, token in TOKENS.items():
            for action, (needed, body) in ACTIONS.items():
                asked = flight.Action(action, json.dumps(body).encode())
                said = answer(client, asked, token)
                needs = f"action {action} needs the role {needed}, and {role}er has the role {role}"
                assert (needs in said) == (RANKS[role] < RANKS[needed]), said
            remote = stoker.connect(server.url, token=token)
            assert remote.sql("SELECT count(*) AS n FROM samples").to_arrow().to_pylist() == [{"n": 40}]
            assert sum(batch.num_valid for batch in remote.sql("SELECT id FROM samples").stream(batch_size=9)) == 40
            assert "a client puts rows with a stoker.v1.WriteRequest here" in put_refusal(client, token)


def specs(lake: str) -> set[str]:
    return set(os.listdir(Path(lake) / "_stoker" / "specs"))


def test_a_reader_trains_through_a_server(tmp_path: Path, own_lake: str) -> None:
    file = tokens_file(tmp_path)
    listen = ["--lake", own_lake, "--listen", "127.0.0.1:0", "--tokens-file", str(file)]
    with watched(tmp_path, *listen) as server:
        reader = stoker.connect(server.url, token=TOKENS["read"])
        query = reader.sql("SELECT id, image FROM samples")
        stream = query.stream(batch_size=8, seed=3, run_id="mine", run_log=True)
        batches = iter(stream)
        seen = [next(batches)["id"].tolist() for _ in range(2)]
        state = stream.state_dict()
        resumed = reader.resume(state, batch_size=8, run_id="mine", run_log=True)
        seen += [batch["id"].tolist() for batch in resumed]
        assert sorted(chain.from_iterable(seen)) == list(range(40))
        # If the run id is new, the server creates the run when it gets the first entry of the run's log.
        again = reader.resume(state, batch_size=8, run_id="mine-again", run_log=True)
        assert sum(batch.num_valid for batch in again) == 24
        for run in ("mine", "mine-again"):
            assert reader.run(run).entries()
        assert json.loads((Path(own_lake) / "_stoker" / "runs" / "mine").read_text())["owner"] == "reader"
        # A reader cannot log to a run that another token, or a user of the lake itself, has begun.
        local = stoker.connect(own_lake)
        for place, run in [(local, "theirs"), (stoker.connect(server.url, token=TOKENS["write"]), "writers")]:
            for _ in place.sql("SELECT id, image FROM samples").stream(batch_size=8, seed=3, run_id=run, run_log=True):
                pass
            before = local.run(run).entries()
            with pytest.raises(stoker.PermissionDeniedError, match=f"run {run} was started by another user"):
                list(query.stream(batch_size=8, seed=3, run_id=run, run_log=True))
            assert local.run(run).entries() == before


def test_a_reader_writes_nothing_of_its_own_making(tmp_path: Path, own_lake: str) -> None:
    local = stoker.connect(own_lake)
    stream_id = local.sql("SELECT id, image FROM samples").stream(batch_size=4, seed=5).stream_id
    spec = json.loads((Path(own_lake) / "_stoker" / "specs" / stream_id).read_text()) | {"seed": 77_077}
    file = tokens_file(tmp_path)
    listen = ["--lake", own_lake, "--listen", "127.0.0.1:0", "--tokens-file", str(file)]
    with watched(tmp_path, *listen) as server, flight.connect(server.url) as client:
        reader = authorized(TOKENS["read"])
        before = specs(own_lake)
        body = {"spec": json.dumps(spec), "epoch": 0, "beside": [{"position": 0, "offset": 1}]}
        asked = flight.Action("rows_beside", json.dumps(body).encode())
        assert list(client.do_action(asked, reader))
        assert specs(own_lake) == before, "a specification that a reader sends is used, and not stored"
        assert list(client.do_action(asked, authorized(TOKENS["write"])))
        entry = {
            "run_id": "made-up", "event": "epoch", "stream_id": "0" * len(stream_id), "step": 0, "epoch": 0,
            "position": 0, "global_batch": 4, "last_batch": "pad", "world_size": 1, "time_micros": 0,
        }  # fmt: skip
        with pytest.raises((flight.FlightError, OSError, KeyError, ValueError), match="no specification of stream"):
            list(client.do_action(flight.Action("log_run", json.dumps({"entry": entry}).encode()), reader))
        row = {
            "run_id": "mine", "stream_id": stream_id, "epoch": 0, "position": 0, "table": "samples", "version": 1,
            "row_addr": 1 << 40, "reason": "made up",
        }  # fmt: skip
        with pytest.raises((flight.FlightError, OSError, ValueError), match="is not at position 0 of the stream"):
            list(client.do_action(flight.Action("log_bad_rows", json.dumps({"bad_rows": [row]}).encode()), reader))
    assert not (Path(own_lake) / "_stoker" / "runs" / "made-up").exists()
    assert local.tables() == ["samples"]


def test_tokens_end_and_are_read_again(tmp_path: Path, lake_path: str) -> None:
    now = datetime.now(timezone.utc)

    def entry(name: str, token: str, expires: datetime) -> str:
        end = expires.strftime("%Y-%m-%dT%H:%M:%SZ")
        return f'[[tokens]]\nname = "{name}"\nrole = "read"\ntoken = "{token}"\nexpires = {end}\n'

    past = entry("past", f"{CANARY}-of-the-past", now - timedelta(seconds=1))
    future = entry("future", f"{CANARY}-of-the-future", now + timedelta(hours=1))
    file = tokens_file(tmp_path, past=past, future=future)
    good = file.read_text()
    listen = ["--lake", lake_path, "--listen", "127.0.0.1:0", "--tokens-file", str(file)]
    with watched(tmp_path, *listen) as server:

        def is_taken(token: str) -> bool:
            try:
                return stoker.connect(server.url, token=token).tables() == ["samples"]
            except stoker.UnauthenticatedError:
                return False

        with pytest.raises(stoker.UnauthenticatedError, match="the token 'past' expired at 20"):
            stoker.connect(server.url, token=f"{CANARY}-of-the-past").tables()
        assert is_taken(f"{CANARY}-of-the-future")
        for broken in (f'[[tokens]]\ntoken = "{CANARY}', good + past, good.replace("read", CANARY)):
            server.log_path.write_text("")
            file.write_text(broken)
            server.waits(lambda: "so the earlier ones stay valid" in server.log())
            assert is_taken(TOKENS["read"])
        server.log_path.write_text("")
        file.unlink()
        server.waits(lambda: "so the earlier ones stay valid: cannot read" in server.log())
        assert is_taken(TOKENS["read"])
        running = iter(
            stoker.connect(server.url, token=TOKENS["read"]).sql("SELECT id FROM samples").stream(batch_size=9)
        )
        assert next(running).num_valid == 9
        file.write_text(good.replace(TOKENS["read"], "another token of the reader"))
        server.waits(lambda: is_taken("another token of the reader"))
        assert not is_taken(TOKENS["read"])
        assert sum(batch.num_valid for batch in running) == NUM_ROWS - 9
        assert CANARY not in server.log()


def test_clients_see_no_folder_of_the_server(tmp_path: Path, own_lake: str) -> None:
    with watched(tmp_path, "--lake", own_lake, "--listen", "127.0.0.1:0") as server:
        remote, local = stoker.connect(server.url), stoker.connect(own_lake)
        told = []
        with flight.connect(server.url) as client:
            for action, (_, body) in ACTIONS.items():
                for more in ({}, {"table": "nothing"}, {"sql": "SELECT * FROM nothing"}):
                    told.append(answer(client, flight.Action(action, json.dumps(body | more).encode())))
        for sql in ("SELECT * FROM nothing", "SELECT nothing FROM samples", "SELECT id FROM samples AT (VERSION => 9)"):
            with pytest.raises(stoker.StokerError) as refusal:
                remote.sql(sql)
            told.append(str(refusal.value))
        with pytest.raises(stoker.NotFoundError) as refusal:
            remote.table("nothing")
        assert "table nothing in the lake does not exist; tables: samples" in str(refusal.value)
        with pytest.raises(stoker.NotFoundError, match=re.escape(own_lake)):
            local.table("nothing")
        for path in (Path(own_lake) / "samples.lance" / "data").iterdir():
            path.unlink()
        with pytest.raises(stoker.StokerError) as refusal:
            list(stoker.connect(server.url).sql("SELECT id, image FROM samples").stream(batch_size=8))
        told.append(str(refusal.value))
        assert any("samples.lance/data/" in text for text in told), told[-1]
        for text in told:
            assert "secret-place" not in text, text
            assert str(tmp_path) not in text, text
        assert "secret-place" in server.log(), "the server's log has the whole message"


def test_clients_see_no_bucket_and_no_endpoint(tmp_path: Path, store: Store) -> None:
    lake = f"s3://{BUCKET}/secret-place/lake"
    stoker.connect(lake, storage_options=store.options).create_table("samples", make_columns(40))
    with watched(tmp_path, "--lake", lake, "--listen", "127.0.0.1:0", **store.environment()) as server:
        remote = stoker.connect(server.url, retry_budget_secs=0)
        query = remote.sql("SELECT id, image FROM samples")
        told = [remote.sql("SELECT id FROM samples").explain()]
        with pytest.raises(stoker.NotFoundError) as refusal:
            remote.table("nothing")
        told.append(str(refusal.value))
        for listed in store.client.list_objects_v2(Bucket=BUCKET, Prefix="secret-place/lake/samples.lance/data")[
            "Contents"
        ]:
            store.client.delete_object(Bucket=BUCKET, Key=listed["Key"])
        with pytest.raises(stoker.StokerError) as refusal:
            list(query.stream(batch_size=8, retry_budget_secs=0))
        told.append(str(refusal.value))
        store.stop()
        for call in (lambda: remote.tables(), lambda: remote.sql("SELECT id FROM others")):
            with pytest.raises(stoker.StokerError) as refusal:
                call()
            told.append(str(refusal.value))
        for text in told:
            for hidden in (BUCKET, "secret-place", store.endpoint, str(store.port)):
                assert hidden not in text, text
        for known in (BUCKET, store.endpoint):
            assert known in server.log(), "the server's log has the whole message"


LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


def test_certificates_of_clients(tmp_path: Path, own_lake: str, certificates: Certificates) -> None:
    clients, strangers = Issuer(tmp_path, "clients"), Issuer(tmp_path, "strangers")
    cert, key = map(str, clients.issue(x509.DNSName("job.example"), "vision job"))
    wrong_cert, wrong_key = map(str, strangers.issue(x509.DNSName("job.example"), "vision job"))
    server_cert, server_key = map(str, certificates.good)
    tls = ["--tls-cert", server_cert, "--tls-key", server_key, "--tls-client-ca", str(clients.ca)]
    serve = ["--lake", own_lake, "--listen", "0.0.0.0:0", *tls]

    def connect(server: Watched, **options: str) -> stoker.Lake:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        return stoker.connect(url, tls_ca=str(certificates.ca), retry_budget_secs=0, **options)

    with watched(tmp_path, *serve) as server:
        lake = connect(server, tls_cert=cert, tls_key=key)
        stream = lake.sql("SELECT id FROM samples").stream(batch_size=9, run_id="of-a-certificate", run_log=True)
        assert sum(batch.num_valid for batch in stream) == 40
        run = json.loads((Path(own_lake) / "_stoker" / "runs" / "of-a-certificate").read_text())
        assert run["owner"] == "vision_job"
        with pytest.raises(stoker.PermissionDeniedError, match="vision_job has the role read"):
            lake.table("samples").tag("v1")
        for options in ({}, {"tls_cert": wrong_cert, "tls_key": wrong_key}):
            with pytest.raises(stoker.UnavailableError):
                connect(server, **options).tables()
        own = {"STOKER_SERVER": server.url.replace("0.0.0.0", "127.0.0.1"), "STOKER_TLS_CA": str(certificates.ca)}
        own |= {"STOKER_CLIENT_TLS_CERT": cert, "STOKER_CLIENT_TLS_KEY": key}
        assert cli("tables", **own).stdout.startswith("samples\t")
    token = ["--token-file", secret_file(tmp_path, "token", ADMIN), "--tls-client-role", "write"]
    with watched(tmp_path, *serve, *token) as server:
        connect(server, tls_cert=cert, tls_key=key).table("samples").tag("v1")
        assert "samples" in connect(server, token=ADMIN).tables()
        with pytest.raises(stoker.UnauthenticatedError, match="a bearer token or a client certificate is needed"):
            connect(server).tables()
        with pytest.raises(stoker.UnauthenticatedError, match="the token is not valid"):
            connect(server, tls_cert=cert, tls_key=key, token="a token of nobody").tables()
        with pytest.raises(stoker.UnavailableError):
            connect(server, tls_cert=wrong_cert, tls_key=wrong_key).tables()
    with pytest.raises(stoker.InvalidRequestError, match="tls_cert needs tls_key"):
        stoker.connect("grpc+tls://127.0.0.1:1", tls_cert=cert)
    assert "client_role is for clients with certificates" in refused(
        "serve", "--lake", own_lake, "--tls-cert", server_cert, "--tls-key", server_key, "--tls-client-role", "read"
    )


def test_certificates_are_renewed_under_a_running_stream(tmp_path: Path, lake_path: str) -> None:
    issuer = Issuer(tmp_path, "authority")
    cert, key = tmp_path / "server.crt", tmp_path / "server.key"

    def renew() -> int:
        issued = issuer.issue(LOOPBACK)
        for source, target in zip(issued, (cert, key), strict=True):
            source.replace(target)
        return x509.load_pem_x509_certificate(cert.read_bytes()).serial_number

    def shown(server: Watched) -> int:
        host, port = server.url.removeprefix("grpc+tls://").split(":")
        pem = ssl.get_server_certificate((host, int(port)), ca_certs=str(issuer.ca))
        return x509.load_pem_x509_certificate(pem.encode()).serial_number

    first = renew()
    serve = ["--lake", lake_path, "--listen", "127.0.0.1:0", "--tls-cert", str(cert), "--tls-key", str(key)]
    # Messages have few rows, so that the stream is still running when the certificate is renewed.
    with watched(tmp_path, *serve, "--message-bytes", "1024") as server:
        assert shown(server) == first
        lake = stoker.connect(server.url, tls_ca=str(issuer.ca))
        batches = iter(lake.sql("SELECT id, image FROM samples").stream(batch_size=2))
        assert next(batches).num_valid == 2
        second = renew()
        server.waits(lambda: shown(server) == second)
        assert next(batches).num_valid == 2
        for broken in (b"no certificate", cert.read_bytes()[:100]):
            server.log_path.write_text("")
            cert.write_bytes(broken)
            server.waits(lambda: "so the earlier one stays in use" in server.log())
            assert shown(server) == second
        third = renew()
        server.waits(lambda: shown(server) == third)
        assert stoker.connect(server.url, tls_ca=str(issuer.ca)).tables() == ["samples"]
        assert sum(batch.num_valid for batch in batches) == NUM_ROWS - 4
