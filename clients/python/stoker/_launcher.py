"""The store that ``torchrun`` keeps for its processes: a place to agree before there is a process group."""

from __future__ import annotations

import importlib
import json
import os
import time
from datetime import timedelta
from typing import Any

from stoker._errors import UnavailableError

__all__ = ["LauncherStore"]

#: How long the launcher's store may take to answer, how long rank 0 may take to plan, and how often it is asked.
_CONNECT_SECS = 10
_WAIT_SECS = 1800
_POLL_SECS = 0.05

#: Streams that this process asked for: all processes of a job ask for them in the same order.
_num_asked = 0


class LauncherStore:
    """Tells what rank 0 planned to the others of one job and one start of its processes."""

    def __init__(self, store: Any, key: str, rank: int) -> None:
        self._store = store
        self._key = key
        self.rank = rank

    @classmethod
    def find(cls, rank: int, world_size: int) -> LauncherStore | None:
        """Returns the store of the launcher that started this process; ``None`` where there is none.

        ``torchrun`` says with TORCHELASTIC_USE_AGENT_STORE that its agent keeps one at MASTER_ADDR and MASTER_PORT. It
        lives as long as the job, so that nothing of an earlier job with the same TORCHELASTIC_RUN_ID is found in it.
        """
        global _num_asked
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            return None
        address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
        if not address or not port.isdigit():
            return None
        try:
            distributed = importlib.import_module("torch.distributed")
            timeout = timedelta(seconds=_CONNECT_SECS)
            store = distributed.TCPStore(
                address, int(port), world_size, is_master=False, timeout=timeout, wait_for_workers=False
            )
        except (ImportError, RuntimeError):
            return None
        run, start = os.environ.get("TORCHELASTIC_RUN_ID", "none"), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        _num_asked += 1
        return cls(store, f"stoker/{run}/{start}/{_num_asked}", rank)

    def tell(self, message: dict[str, Any]) -> None:
        """Leaves a message of JSON values for the other ranks."""
        self._store.set(self._key, json.dumps(message))

    def wait(self) -> dict[str, Any]:
        """Returns the message of rank 0. Ctrl-C ends the wait.

        Raises:
            UnavailableError: There is none after half an hour, or the store is gone.
        """
        end = time.monotonic() + _WAIT_SECS
        try:
            while not self._store.check([self._key]):
                if time.monotonic() > end:
                    raise UnavailableError(f"rank {self.rank} waited {_WAIT_SECS} s for rank 0 to plan the stream")
                time.sleep(_POLL_SECS)
            message: dict[str, Any] = json.loads(self._store.get(self._key))
        except RuntimeError as failed:
            raise UnavailableError(f"the launcher's store is gone while rank 0 plans the stream: {failed}") from failed
        return message
