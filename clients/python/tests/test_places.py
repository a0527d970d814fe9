"""Paths that are not lakes, empty lakes, readers that close their pipe, long values, and error responses of stores."""

from __future__ import annotations

import csv
import http.server
import io
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from conftest import NUM_ROWS, Server

import stoker

#: The exit status that a shell shows for a program that SIGPIPE ended.
READER_GONE = 141

DENIED = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>Not &quot;yours&quot;.</Message>'
    b"<RequestId>1</RequestId></Error>"
)


def cli(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [os.environ["STOKER_BIN"], *args]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)


def test_a_folder_that_does_not_exist_is_no_lake(tmp_path: Path) -> None:
    path = str(tmp_path / "lake")
    lake = stoker.connect(path)
    with pytest.raises(stoker.NotFoundError, match=f"the lake {path} does not exist; check the path"):
        lake.tables()
    with pytest.raises(stoker.NotFoundError, match=f"there is no folder {path}: check the path of the lake"):
        lake.sql("SELECT * FROM t")
    for command in (["tables"], ["sql", "SELECT * FROM t"], ["serve", "--listen", "127.0.0.1:0"]):
        done = cli(*command, "--lake", path)
        assert (done.returncode, done.stdout) == (1, "")
        assert path in done.stderr
        assert "check the path" in done.stderr
    assert not os.path.exists(path)
    lake.create_table("t", {"id": [1, 2]})
    assert lake.tables() == ["t"]


def test_an_empty_lake_is_one(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    assert lake.tables() == []
    server = Server(str(tmp_path))
    try:
        assert stoker.connect(server.url).tables() == []
        for target in (["--lake", str(tmp_path)], ["--server", server.url]):
            done = cli("tables", *target)
            assert (done.returncode, done.stdout) == (0, "")
            assert "the lake has no tables yet" in done.stderr
            assert "stoker ingest" in done.stderr
    finally:
        server.stop()


def test_a_table_is_no_lake(lake_path: str) -> None:
    path = f"{lake_path}/samples.lance"
    hint = f"is itself a table; give the folder that holds it, {lake_path}, as the lake, and samples as the table"
    lake = stoker.connect(path)
    with pytest.raises(stoker.InvalidRequestError, match=hint):
        lake.tables()
    with pytest.raises(stoker.NotFoundError, match=hint):
        lake.table("samples")
    for command in (["tables"], ["sql", "SELECT * FROM samples"], ["describe", "samples"]):
        done = cli(*command, "--lake", path)
        assert done.returncode == 1
        assert hint in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["sql", "SELECT id, name FROM samples"],
        ["sql", "SELECT * FROM samples", "--format", "csv"],
        ["sql", "SELECT * FROM samples", "--format", "json"],
        ["sql", "SELECT * FROM samples", "--format", "arrow"],
        ["sql", "SELECT id FROM samples", "--explain"],
        ["tables"],
        ["describe", "samples"],
        ["doctor", "samples"],
        ["versions", "samples"],
        ["stream", "SELECT id FROM samples", "--batch-size", "8"],
    ],
)
def test_a_reader_that_goes_away_ends_the_command_in_silence(lake_path: str, command: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    arguments = [os.environ["STOKER_BIN"], *command, "--lake", lake_path]
    done = subprocess.run(arguments, stdout=write, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(write)
    assert (done.returncode, done.stderr) == (READER_GONE, "")


def test_tables_show_the_beginning_of_long_values_and_other_formats_all(lake_path: str, lake: stoker.Lake) -> None:
    query = "SELECT id, image, emb FROM samples ORDER BY id LIMIT 2"
    shown = cli("sql", query, "--lake", lake_path).stdout
    image = lake.sql(query).to_arrow()["image"].combine_chunks().to_numpy_ndarray()
    first = ", ".join(map(str, image[1].reshape(-1)[:4]))
    assert f"| uint8[3, 8, 6]: {first}, … |" in shown, shown
    assert "[1.0, 1.0, 1.0, -1.0]" in shown, "few elements are shown whole"
    assert max(map(len, shown.splitlines())) < 100
    rows = [json.loads(line) for line in cli("sql", query, "--format", "json", "--lake", lake_path).stdout.splitlines()]
    np.testing.assert_array_equal([row["image"] for row in rows], image.reshape(2, -1))
    text = cli("sql", "SELECT id, name FROM samples", "--format", "csv", "--lake", lake_path).stdout
    assert len(list(csv.reader(io.StringIO(text)))) == NUM_ROWS + 1


class Denying(http.server.BaseHTTPRequestHandler):
    """A store that refuses all requests with S3's response for denied access."""

    def do_GET(self) -> None:
        self.deny()

    def do_HEAD(self) -> None:
        self.deny()

    def do_PUT(self) -> None:
        self.deny()

    def deny(self) -> None:
        self.send_response(403)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(DENIED)))
        self.end_headers()
        self.wfile.write(DENIED)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def denying_store() -> Iterator[dict[str, str]]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Denying) as store:
        thread = threading.Thread(target=store.serve_forever)
        thread.start()
        try:
            yield {
                "AWS_ENDPOINT": f"http://127.0.0.1:{store.server_port}",
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "a",
                "AWS_SECRET_ACCESS_KEY": "b",
            }
        finally:
            store.shutdown()
            thread.join()


def check_plain(text: str) -> None:
    assert 'AccessDenied: Not "yours".' in text, text
    assert not any(word in text for word in ("<", "LanceError", "RequestId", "PermissionDenied {")), text


def test_answers_of_stores_are_told_in_plain_words() -> None:
    with denying_store() as environment:
        for command in (["tables"], ["sql", "SELECT * FROM t"], ["describe", "t"]):
            done = cli(*command, "--lake", "s3://bucket/lake", **environment)
            assert done.returncode == 1
            (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
            check_plain(error)
        options = {name.lower(): value for name, value in environment.items()}
        lake = stoker.connect("s3://bucket/lake", storage_options=options)
        for call in (lake.tables, lambda: lake.table("t"), lambda: lake.create_table("t", {"id": [1]})):
            with pytest.raises(stoker.StokerError) as refused:
                call()
            check_plain(str(refused.value))
