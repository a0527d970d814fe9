"""S3-compatible servers for tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import boto3

#: The name of the bucket in every store.
BUCKET = "stoker-test"


class Store:
    """A moto server on a port that the system chooses, and the log of its requests."""

    def __init__(self, log: Path) -> None:
        self.log = log
        program = Path(__file__).parents[3] / "crates/xtask/scripts/moto_store.py"
        with log.open("w") as out:
            command = [sys.executable, program, "-H", "127.0.0.1", "-p", "0"]
            self.process = subprocess.Popen(
                command, stdout=out, stderr=out, env={**os.environ, "PYTHONUNBUFFERED": "1"}
            )
        found = None
        while found is None:
            assert self.process.poll() is None, f"the store ended:\n{log.read_text()}"
            found = re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())
        self._use(found[1], "test", "test-secret")

    def _use(self, endpoint: str, key_id: str, secret: str) -> None:
        self.endpoint = endpoint
        self.options = {
            "aws_endpoint": self.endpoint,
            "aws_region": "us-east-1",
            "aws_access_key_id": key_id,
            "aws_secret_access_key": secret,
            "allow_http": "true",
        }
        names = ("endpoint_url", "region_name", "aws_access_key_id", "aws_secret_access_key")
        self.client = boto3.client("s3", **dict(zip(names, self.options.values(), strict=False)))
        self.client.create_bucket(Bucket=BUCKET)

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return int(self.endpoint.rsplit(":", 1)[1])

    def options_at(self, port: int) -> dict[str, str]:
        """Returns the storage options for a proxy of this store that listens on `port`."""
        return {**self.options, "aws_endpoint": f"http://127.0.0.1:{port}"}

    def environment(self) -> dict[str, str]:
        """Returns the storage options as environment variables of a process."""
        return {name.upper(): value for name, value in self.options.items()}

    def gets(self, since: int) -> list[str]:
        """Returns the path of each successful GET of a data file after the first `since` characters of the log."""
        return re.findall(r"GET (\S+/data/\S+) HTTP/1\.1\S* 20[06]", self.log.read_text()[since:])

    def stop(self) -> None:
        """Ends the server."""
        self.process.terminate()
        self.process.wait(timeout=30)


class RunningStore(Store):
    """A store that runs already, for example another implementation of S3. The test bucket in it is emptied."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        key_id, secret = place.username, place.password
        if key_id is None or secret is None:
            raise ValueError("the URL of a store has the form http://KEY_ID:SECRET@127.0.0.1:PORT")
        self._use(f"http://{place.hostname}:{place.port}", key_id, secret)
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
            for found in page.get("Contents", []):
                self.client.delete_object(Bucket=BUCKET, Key=found["Key"])
