"""`stoker ingest` from a bucket over HTTP, from a web server over TLS, and from standard input."""

from __future__ import annotations

import base64
import http.server
import json
import re
import ssl
import subprocess
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest
from certificates import Certificates
from conftest import stoker_bin
from s3_store import BUCKET, Store
from source_files import NUM_ROWS, SOURCES, class_folders, jpeg, json_lines, put, table
from source_proxy import SourceProxy

import stoker


@pytest.fixture
def proxy(store: Store) -> Iterator[SourceProxy]:
    running = SourceProxy(store.port)
    yield running
    running.close()


def upload(store: Store, folder: Path, prefix: str, bucket: str = BUCKET) -> str:
    """Puts all files of a folder below a prefix of a bucket; returns its URI."""
    for path in folder.rglob("*"):
        if path.is_file():
            key = f"{prefix}/{path.relative_to(folder).as_posix()}"
            store.client.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())
    return f"s3://{bucket}/{prefix}"


def source_options(store: Store, port: int | None = None) -> list[str]:
    """Returns the options of the store of sources, or of a proxy of it."""
    options = store.options if port is None else store.options_at(port)
    return [part for key, value in options.items() for part in ("--source-option", f"{key}={value}")]


def ingest(*args: str | Path, lake: Path, content: bytes | None = None) -> subprocess.CompletedProcess[str]:
    """Runs an ingest into a local lake."""
    command = [stoker_bin(), "ingest", *map(str, args), "--lake", str(lake)]
    done = subprocess.run(command, input=content, capture_output=True, timeout=300)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def done(*args: str | Path, lake: Path, content: bytes | None = None) -> str:
    """Runs an ingest that succeeds; returns what it prints."""
    run = ingest(*args, lake=lake, content=content)
    assert run.returncode == 0, run.stderr
    return run.stdout + run.stderr


def failed(*args: str | Path, lake: Path, content: bytes | None = None) -> str:
    """Runs an ingest that fails; returns its error."""
    run = ingest(*args, lake=lake, content=content)
    assert run.returncode != 0, run.stdout
    return run.stderr


def says(text: str, *parts: str) -> None:
    """Checks that a text has all parts."""
    assert [part for part in parts if part not in text] == [], text


def rows(lake: Path, name: str) -> pa.Table:
    """Returns all rows of a table."""
    return stoker.connect(str(lake)).sql(f"SELECT * FROM {name}").to_arrow()


@pytest.mark.parametrize("kind", SOURCES)
def test_rows_from_a_bucket_are_those_of_the_same_files_on_disk(kind: str, store: Store, tmp_path: Path) -> None:
    write, args = SOURCES[kind]
    folder, lake = tmp_path / "source", tmp_path / "lake"
    write(folder)
    uri = upload(store, folder, f"equal/{kind.replace(' ', '-')}")
    printed = [
        done(source, name, *args, *options, lake=lake)
        for source, name, options in [(str(folder), "local", []), (uri, "remote", source_options(store))]
    ]
    (found, _), (found_remote, _) = (text.split("table ", 1)[1].split(" in ", 1) for text in printed)
    assert found.replace("local", "remote") == found_remote, "the same report"
    local, remote = rows(lake, "local"), rows(lake, "remote")
    assert local.num_rows == NUM_ROWS
    assert remote.schema.equals(local.schema, check_metadata=True)
    assert remote.equals(local)
    dry = done(uri, "other", *args, *source_options(store), "--dry-run", lake=lake)
    assert f"table other would be written from {found.split(' files')[0].split()[-1]} files" in dry
    again = done(uri, "remote", *args, *source_options(store), "--mode", "append", lake=lake)
    assert "contains these sources already" in again


def test_large_files_are_read_by_ranges(store: Store, tmp_path: Path) -> None:
    folder, lake = tmp_path / "source", tmp_path / "lake"
    numbers = np.random.default_rng(5).integers(0, 256, (50, 1 << 20), np.uint8)
    folder.mkdir()
    np.save(folder / "x.npy", numbers)
    files = {"a": [b.tobytes() for b in numbers], "b": range(50)}
    pq.write_table(pa.table(files), folder / "big.parquet", row_group_size=50, compression="none")
    uri = upload(store, folder, "large")
    for name, kind in (("x.npy", []), ("big.parquet", [])):
        done(folder / name, "local", *kind, "--mode", "overwrite", lake=lake)
        since = len(store.log.read_text())
        done(f"{uri}/{name}", "remote", *source_options(store), "--mode", "overwrite", lake=lake)
        assert rows(lake, "remote").equals(rows(lake, "local"))
        gets = re.findall(rf"GET \S+{name} HTTP/1\.1\S* 206", store.log.read_text()[since:])
        assert 10 <= len(gets) <= 40, "ranges of up to 4 MiB, each read once"


def test_an_append_knows_the_files_of_a_bucket_by_their_etags(store: Store, tmp_path: Path) -> None:
    folder, lake = tmp_path / "source", tmp_path / "lake"
    class_folders(folder)
    uri = upload(store, folder, "growing")
    args = ["--size", "8x6", *source_options(store)]
    done(uri, "t", *args, lake=lake)
    store.client.put_object(Bucket=BUCKET, Key="growing/a/99.jpg", Body=jpeg(99))
    since = len(store.log.read_text())
    printed = done(uri, "t", *args, "--mode", "append", lake=lake)
    assert "1 rows from 1 files" in printed
    assert f"{NUM_ROWS} files were there already" in printed
    read = set(re.findall(r"GET \S+(growing/\S+\.jpg) HTTP/1\.1\S* 20[06]", store.log.read_text()[since:]))
    assert len(read) <= 2, "files that are known are not read: the new one, and the first one for its size"
    # The same objects elsewhere in the bucket are known by name and ETag.
    for page in store.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="growing/"):
        for found in page["Contents"]:
            key = found["Key"].replace("growing", "moved", 1)
            store.client.copy_object(Bucket=BUCKET, Key=key, CopySource={"Bucket": BUCKET, "Key": found["Key"]})
    printed = done(f"s3://{BUCKET}/moved/", "t", *args, "--mode", "append", lake=lake)
    assert "contains these sources already" in printed
    # Files that came from a disk are compared with objects by their bytes.
    done(folder, "disk", "--size", "8x6", lake=lake)
    printed = done(uri, "disk", *args, "--mode", "append", lake=lake)
    assert "1 rows from 1 files" in printed
    assert f"{NUM_ROWS} files were there already" in printed
    store.client.put_object(Bucket=BUCKET, Key="growing/a/99.jpg", Body=jpeg(98))
    error = failed(uri, "t", *args, "--mode", "append", lake=lake)
    assert f"the content of {uri}/a/99.jpg differs" in error
    assert rows(lake, "t").num_rows == NUM_ROWS + 1


@pytest.mark.parametrize("policy", ["fail", "skip"])
@pytest.mark.parametrize(
    ("write", "args", "name"), [(class_folders, ["--size", "8x6"], "a/03.jpg"), (json_lines, [], "1.jsonl")]
)
def test_an_object_that_changes_while_it_is_read_ends_the_ingest(
    write: object, args: list[str], name: str, policy: str, store: Store, proxy: SourceProxy, tmp_path: Path
) -> None:
    folder, lake = tmp_path / "source", tmp_path / "lake"
    write(folder)  # type: ignore[operator]
    prefix = f"changing/{policy}/{name.replace('/', '-')}"
    uri = upload(store, folder, prefix)
    content = (folder / name).read_bytes()
    proxy.before[name] = lambda: store.client.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=content[::-1])
    error = failed(uri, "t", *args, *source_options(store, proxy.port), "--on-error", policy, lake=lake)
    assert f"{uri}/{name} changed while it was ingested: it was written again after it had been listed" in error
    assert stoker.connect(str(lake)).tables() == []


def test_one_denied_object_of_many_is_named_or_skipped(store: Store, proxy: SourceProxy, tmp_path: Path) -> None:
    for kind, denied, args in [
        ("imagefolder", "a/03.jpg", ["--size", "8x6"]),
        ("jsonl", "images/7.jpg", ["--image", "image"]),
        ("parquet", "1.parquet", []),
        ("webdataset", "1.tar.gz", []),
    ]:
        lake = tmp_path / f"lake of {kind}"
        SOURCES[kind][0](tmp_path / kind)
        uri = upload(store, tmp_path / kind, f"denied/{kind}")
        proxy.statuses = {denied: 403}
        args = [*args, *source_options(store, proxy.port)]
        error = failed(uri, "t", *args, lake=lake)
        says(error, denied, "the store denies access", "--on-error skip")
        assert store.options["aws_secret_access_key"] not in error
        assert list(lake.glob("*.lance")) == []
        printed = done(uri, "t", *args, "--on-error", "skip", lake=lake)
        (line,) = [line for line in printed.splitlines() if line.startswith("skipped ")]
        assert f"skipped s3://{BUCKET}/denied/{kind}/" in line
        assert "the store denies access" in line
        assert denied in line
        left = {"imagefolder": 11, "jsonl": 11, "parquet": 8, "webdataset": 6}[kind]
        assert rows(lake, "t").num_rows == left


def test_a_store_that_does_not_answer_is_no_bad_file(store: Store, proxy: SourceProxy, tmp_path: Path) -> None:
    folder, lake = tmp_path / "source", tmp_path / "lake"
    class_folders(folder)
    uri = upload(store, folder, "outage")
    proxy.statuses = {"b/04.jpg": 503}
    options = [*source_options(store, proxy.port), "--source-option", "client_max_retries=1"]
    error = failed(uri, "t", "--size", "8x6", *options, "--on-error", "skip", lake=lake)
    says(error, f"cannot read {uri}/", "run the same command again to go on")
    assert stoker.connect(str(lake)).tables() == []
    proxy.statuses = {}
    done(uri, "t", "--size", "8x6", *options, lake=lake)
    assert rows(lake, "t").num_rows == NUM_ROWS


def test_an_ingest_from_a_bucket_that_is_killed_goes_on(store: Store, tmp_path: Path) -> None:
    folder, lake = tmp_path / "source", tmp_path / "lake"
    for part in range(16):
        lines = (json.dumps({"id": part * 4_000 + row, "text": "x" * 300}) for row in range(4_000))
        put(folder / f"{part:02}.jsonl", "\n".join(lines))
    uri = upload(store, folder, "killed")
    args = [uri, "t", *source_options(store), "--unit-mib", "1", "--quiet"]
    command = [stoker_bin(), "ingest", *args, "--lake", str(lake)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(list(lake.glob("_stoker/ingest/*/0*.json"))) < 2:
        assert process.poll() is None, "the ingest ended before it could be killed"
    process.kill()
    assert process.wait() == -9
    assert stoker.connect(str(lake)).tables() == []
    finished = len(list(lake.glob("_stoker/ingest/*/0*.json")))
    assert f", {finished} units from an earlier run" in done(*args, lake=lake)
    assert sorted(rows(lake, "t")["id"].to_pylist()) == list(range(64_000))


def test_credentials_of_sources_may_be_in_variables_of_their_own(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    json_lines(tmp_path / "source")
    uri = upload(store, tmp_path / "source", "variables")
    for key, value in store.options.items():
        monkeypatch.setenv(f"STOKER_SOURCE_{key.upper()}", value)
    # Those of the lake are other ones.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "other")
    printed = done(uri, "t", lake=tmp_path / "lake")
    assert "shows a credential" not in printed
    assert rows(tmp_path / "lake", "t").num_rows == NUM_ROWS


def test_media_paths_do_not_leave_the_folder(store: Store, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    store.client.put_object(Bucket=BUCKET, Key="outside/secret.jpg", Body=jpeg(1))
    lines = [
        {"id": number, "image": path} for number, path in enumerate(["../outside/secret.jpg", "/etc/x", "own.jpg"])
    ]
    body = "".join(json.dumps(line) + "\n" for line in lines)
    store.client.put_object(Bucket=BUCKET, Key="inside/rows.jsonl", Body=body.encode())
    store.client.put_object(Bucket=BUCKET, Key="inside/own.jpg", Body=jpeg(2))
    args = [f"s3://{BUCKET}/inside", "t", "--image", "image", *source_options(store)]
    error = failed(*args, lake=lake)
    assert "rows.jsonl row 0" in error
    assert "has .., and could leave the folder" in error
    printed = done(*args, "--on-error", "skip", lake=lake)
    assert "could leave the folder" in printed
    assert "is an absolute path" in printed
    assert rows(lake, "t")["id"].to_pylist() == [2]


def test_what_is_no_source_in_a_bucket_is_refused(store: Store, tmp_path: Path) -> None:
    lake, options = tmp_path / "lake", source_options(store)
    assert f"cannot list s3://{BUCKET}/nothing: there is no such object" in failed(
        f"s3://{BUCKET}/nothing", "t", *options, lake=lake
    )
    assert "scheme 'ftp' is not supported" in failed("ftp://host/a", "t", lake=lake)
    assert "a folder of a web server cannot be listed" in failed("https://host/folder/", "t", lake=lake)
    error = failed(f"s3://{BUCKET}/x", "t", "--source-option", "very-secret", lake=lake)
    assert "--source-option number 1 is not KEY=VALUE" in error
    assert "very-secret" not in error
    put(tmp_path / "a.csv", "id\n1\n")
    error = failed(tmp_path / "a.csv", "t", *options, lake=lake)
    assert "the sources are on this machine" in error


def test_a_bucket_of_google_is_a_source(store: Store, tmp_path: Path) -> None:
    folder, lake = tmp_path / "source", tmp_path / "lake"
    json_lines(folder)
    # The store does not decode the names of buckets, and the client encodes hyphens.
    store.client.create_bucket(Bucket="google")
    upload(store, folder, "data", "google")
    for found in store.client.list_objects_v2(Bucket="google")["Contents"]:
        store.client.put_object_acl(Bucket="google", Key=found["Key"], ACL="public-read")
    key = {
        "gcs_base_url": store.endpoint,
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    options = ["--source-option", f"google_service_account_key={json.dumps(key)}", "--source-option", "allow_http=true"]
    done("gs://google/data", "remote", "--image", "image", *options, lake=lake)
    done(folder, "local", "--image", "image", lake=lake)
    assert rows(lake, "remote").equals(rows(lake, "local"))


class Azure:
    """The two requests of Azure's blob service that read a container: listing blobs, and parts of a blob."""

    def __init__(self, folder: Path) -> None:
        stamp = "Mon, 30 Nov 2026 10:00:00 GMT"

        def tag(content: bytes) -> str:
            return f"0x{zlib.crc32(content):X}"

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = parse_qs(url.query)
                if query.get("comp") == ["list"]:
                    (prefix,) = query.get("prefix", [""])
                    blobs = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
                    entries = "".join(self.entry(blob) for blob in blobs if blob.startswith(prefix))
                    xml = f"<EnumerationResults><Blobs>{entries}</Blobs><NextMarker/></EnumerationResults>"
                    self.answer(200, xml.encode())
                    return
                path = folder / unquote(url.path).removeprefix("/container/")
                if not path.is_file():
                    self.answer(404, b"")
                    return
                content = path.read_bytes()
                headers = {"ETag": f'"{tag(content)}"', "Last-Modified": stamp}
                asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                if asked is None:
                    self.answer(200, content, **headers)
                    return
                part = content[int(asked[1]) : int(asked[2]) + 1]
                found = f"bytes {asked[1]}-{int(asked[1]) + len(part) - 1}/{len(content)}"
                self.answer(206, part, **headers, **{"Content-Range": found})

            def do_HEAD(self) -> None:
                self.do_GET()

            def entry(self, blob: str) -> str:
                content = (folder / blob).read_bytes()
                sizes = f"<Content-Length>{len(content)}</Content-Length><Content-Type>x</Content-Type>"
                about = f"<Last-Modified>{stamp}</Last-Modified>{sizes}<Etag>{tag(content)}</Etag>"
                return f"<Blob><Name>{blob}</Name><Properties>{about}</Properties></Blob>"

            def answer(self, status: int, body: bytes, **headers: str) -> None:
                self.send_response_only(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.parametrize("root", ["az://container", "abfss://container@account.dfs.core.windows.net"])
def test_a_container_of_azure_is_a_source(root: str, tmp_path: Path) -> None:
    folder, lake = tmp_path / "source", tmp_path / "lake"
    json_lines(folder / "below")
    azure = Azure(folder)
    try:
        settings = {
            "azure_storage_account_name": "account",
            "azure_storage_account_key": base64.b64encode(b"key").decode(),
            "azure_storage_endpoint": azure.url,
            "allow_http": "true",
        }
        options = [part for key, value in settings.items() for part in ("--source-option", f"{key}={value}")]
        done(f"{root}/below", "remote", "--image", "image", *options, lake=lake)
    finally:
        azure.close()
    done(folder / "below", "local", "--image", "image", lake=lake)
    assert rows(lake, "remote").equals(rows(lake, "local"))


class WebServer:
    """A web server with TLS for the files of a folder, which answers requests for ranges."""

    def __init__(self, folder: Path, certificate: tuple[Path, Path]) -> None:
        self.paths: list[str] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.paths.append(self.path)
                path, _, query = self.path.partition("?")
                if path.startswith("/moved/"):
                    self.answer(302, b"", Location=self.path.replace("/moved/", "/"))
                elif query != "signature=secret":
                    self.answer(403, b"")
                elif not (folder / path[1:]).is_file():
                    self.answer(404, b"")
                else:
                    content = (folder / path[1:]).read_bytes()
                    (first, last) = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
                    part = content[first : last + 1]
                    found = f"bytes {first}-{first + len(part) - 1}/{len(content)}"
                    self.answer(206, part, **{"Content-Range": found, "ETag": f'"{len(content)}"'})

            def answer(self, status: int, body: bytes, **headers: str) -> None:
                self.send_response_only(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()


def test_files_of_a_web_server_are_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, lake = tmp_path / "source", tmp_path / "lake"
    certificates = Certificates.issue(tmp_path)
    folder.mkdir()
    SOURCES["webdataset"][0](folder / "data")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    server = WebServer(folder, certificates.good)
    try:
        urls = [f"{server.url}/moved/data/{name}?signature=secret" for name in ("0.tar", "1.tar.gz")]
        printed = done(*urls, "remote", lake=lake)
        done(folder / "data", "local", lake=lake)
        assert rows(lake, "remote").equals(rows(lake, "local"))
        assert "secret" not in printed
        again = done(*urls, "remote", "--mode", "append", lake=lake)
        assert "contains these sources already" in again
        error = failed(f"{server.url}/data/0.tar?signature=wrong", "t", lake=lake)
        assert f"cannot list {server.url}/data/0.tar: the store denies access: the server answers 403" in error
        assert "wrong" not in error
        assert "there is no such object" in failed(f"{server.url}/data/9.tar?signature=secret", "t", lake=lake)
    finally:
        server.close()


def stream(rows: pa.Table, max_chunksize: int = 2) -> bytes:
    """Returns rows as a stream of Arrow IPC."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=max_chunksize)
    return sink.getvalue().to_pybytes()


def test_a_stream_of_arrow_is_read_from_standard_input(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    content = stream(table(range(10)))
    printed = done("-", "t", "--rename", "text=words", lake=lake, content=content)
    assert "found: arrow, 1 files" in printed
    assert "table t: version 1, 10 rows from 1 files" in printed
    expected = table(range(10)).rename_columns(["id", "words", "values"])
    assert rows(lake, "t").to_pylist() == expected.to_pylist()
    # The same bytes once more are further rows: nothing says that they are the same stream.
    for _ in range(2):
        done("-", "t", "--rename", "text=words", "--mode", "append", lake=lake, content=content)
    assert rows(lake, "t").num_rows == 30
    dry = done("-", "u", "--dry-run", lake=lake, content=content)
    assert "table u would be written" in dry
    assert "row 0" in dry
    assert stoker.connect(str(lake)).tables() == ["t"]


def test_streams_that_are_cut_off_or_none_change_nothing(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    content = stream(table(range(100)))
    for broken, said in [
        (content[:-1000], "standard input ended in the middle of a message"),
        (b"", "the file is empty"),
        (b'{"id": 1}\n' * 5, "no Arrow IPC file or stream"),
        (b"ARROW1\0\0" + content, "pipe a stream of Arrow IPC"),
    ]:
        error = failed("-", "t", lake=lake, content=broken)
        says(error, "cannot read standard input", said)
    assert "no file is of the kind jsonl" in failed("-", "t", "--as", "jsonl", lake=lake, content=content)
    assert stoker.connect(str(lake)).tables() == []
    printed = done("-", "t", "--on-error", "skip", lake=lake, content=content[:-1000])
    assert "skipped standard input row" in printed
    assert 50 < rows(lake, "t").num_rows < 100
