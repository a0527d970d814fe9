"""Runs this program's modules as processes with a time limit and an environment that sends S3 and HTTPS to loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["ChildError", "environment", "run_module"]

#: The number of last lines of a failed process that its error shows.
_LAST_LINES = 15
#: The folder with the packages `harness` and `peers`.
_BENCH = Path(__file__).parents[1]
#: The URL of a proxy that does not exist.
_NOWHERE = "http://127.0.0.1:1"


class ChildError(Exception):
    """A process failed, or exceeded its time limit."""


def environment(endpoint: str | None) -> dict[str, str]:
    """Returns an environment in which S3 requests go to the endpoint, and HTTPS requests to a nonexistent proxy.

    The proxy keeps libraries that report their use, or look for newer versions, from reaching other hosts.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "http_proxy", "HTTP_PROXY"):
        variables.pop(name, None)
    path = [str(_BENCH), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables |= {"PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1", "PYTHONWARNINGS": "ignore"}
    variables |= dict.fromkeys(("https_proxy", "HTTPS_PROXY"), _NOWHERE)
    variables |= dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost")
    variables |= {"AWS_EC2_METADATA_DISABLED": "true"}
    if endpoint is not None:
        variables |= dict.fromkeys(
            ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "S3_ENDPOINT_URL"), endpoint
        )
        variables |= dict.fromkeys(("AWS_REGION", "AWS_DEFAULT_REGION"), "us-east-1")
        variables |= {
            "AWS_ACCESS_KEY_ID": "stoker",
            "AWS_SECRET_ACCESS_KEY": "stoker-bench",
            "AWS_ALLOW_HTTP": "true",
        }
    return variables


def run_module(module: str, arguments: list[str], variables: dict[str, str], secs_max: float) -> None:
    """Runs ``python -m module``, and kills all processes of its group at the end.

    Raises:
        ChildError: The process failed or exceeded the time limit; the message has the last lines that it printed.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        command = [sys.executable, "-m", module, *arguments]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=variables, start_new_session=True)
        try:
            status: int | None = process.wait(secs_max)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with suppress(ProcessLookupError):  # the group does not exist once all of its processes have ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        last = "".join(log.readlines()[-_LAST_LINES:])
    if status is None:
        raise ChildError(f"not done within {secs_max:.0f} s\n{last}")
    if status != 0:
        how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        raise ChildError(f"{how}\n{last}")
