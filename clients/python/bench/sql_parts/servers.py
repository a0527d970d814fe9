"""Servers in processes of their own: ``stoker serve``, and others that tell their address in the same way."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sql_parts.context import Context

__all__ = ["listening", "serving"]

#: The seconds that a server has to end after it was asked to.
_END_SECS = 30


@contextmanager
def serving(context: Context) -> Iterator[str]:
    """Serves the lake on the loopback interface, with default options, and gives the address.

    Raises:
        SkippedError: There is no ``stoker`` binary.
    """
    lake = context.folder / "lake"
    lake.mkdir(exist_ok=True)
    command = [context.needed_binary(), "serve", "--lake", str(lake), "--listen", "127.0.0.1:0"]
    settings = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    with listening(command, settings) as address:
        yield address


@contextmanager
def listening(command: list[str], variables: Mapping[str, str]) -> Iterator[str]:
    """Runs a server until the end of the block, and gives the address that it prints: ``listening on grpc://…``."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=variables
    )
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if found := re.search(r"listening on (grpc://\S+)", line):
                yield found[1]
                return
        raise RuntimeError(f"`{' '.join(command)}` did not listen: {''.join(lines).strip()}")
    finally:
        process.terminate()
        process.stdout.close()
        try:
            process.wait(_END_SECS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
