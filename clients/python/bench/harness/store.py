"""The S3-compatible server of the S3 paths: ``stoker bench object-server``, on the loopback interface."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["StoreError", "check_loopback", "sent_bytes", "serve", "storage_options"]


class StoreError(Exception):
    """There is no S3-compatible server for the measurements."""


def check_loopback(endpoint: str) -> str:
    """Returns the endpoint, without a slash at its end, if it is on this machine.

    Raises:
        StoreError: The endpoint is not on the loopback interface.
    """
    if urlsplit(endpoint).hostname not in ("127.0.0.1", "localhost"):
        raise StoreError(f"the S3 endpoint {endpoint} is not on the loopback interface")
    return endpoint.rstrip("/")


@contextmanager
def serve(binary: str | None, folder: Path, latency_ms: int, *, mb_per_sec: float | None = None) -> Iterator[str]:
    """Serves each subfolder of a folder as a bucket, and gives the endpoint.

    Args:
        binary: The ``stoker`` binary.
        folder: The folder with the buckets.
        latency_ms: Milliseconds that the server waits before it answers.
        mb_per_sec: The megabytes (10^6 bytes) per second that it sends at most; default: no limit.

    Raises:
        StoreError: The server did not start.
    """
    if binary is None or not Path(binary).exists():
        raise StoreError(f"the stoker binary is needed for its object server; found {binary}; give --stoker")
    command = [binary, "bench", "object-server", "--dir", str(folder), "--latency-ms", str(latency_ms)]
    if mb_per_sec is not None:
        command += ["--mb-per-sec", str(mb_per_sec)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # The server has a thread for each connection. Without this, the kernel would zero huge pages for each thread
        # during the measurements.
        env={**os.environ, "MIMALLOC_ALLOW_THP": "0"},
    )
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if found := re.search(r"listening on (http://\S+)", line):
                yield check_loopback(found[1])
                return
        raise StoreError(f"`{' '.join(command)}` did not listen: {''.join(lines).strip()}")
    finally:
        process.kill()  # the server has nothing to save
        process.stdout.close()
        process.wait()


def sent_bytes(endpoint: str) -> int:
    """Returns the bytes of all bodies that the server has sent, as it counts them."""
    place = urlsplit(endpoint)
    connection = HTTPConnection(str(place.hostname), place.port)
    try:
        connection.request("GET", "/__stats")
        return int(json.load(connection.getresponse())["bytes"])
    finally:
        connection.close()


def storage_options(endpoint: str) -> dict[str, str]:
    """Returns the options with which ``stoker.connect`` opens lakes of the server."""
    keys = dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), "bench")
    return {"aws_endpoint": endpoint, "aws_region": "us-east-1", "allow_http": "true", **keys}
