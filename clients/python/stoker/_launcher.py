"""The store that ``torchrun`` keeps for its processes, over which ranks agree without a process group."""

from __future__ import annotations

import importlib
import json
import os
import time
from datetime import timedelta
from typing import Any

from stoker._errors import UnavailableError

__all__ = ["LauncherStore"]

#: The connection timeout of the launcher's store, the time that rank 0 may take to plan, and the poll interval.
_CONNECT_SECS = 10
_WAIT_SECS = 1800
_POLL_SECS = 0.05

#: The number of streams that this process has asked for; all processes of a job ask for them in the same order.
_num_asked = 0


class LauncherStore:
    """Sends what rank 0 planned to the other ranks, for one job and one start of its processes."""

    def __init__(self, store: Any, key: str, rank: int) -> None:
        self._store = store
        self._key = key
        self.rank = rank

    @classmethod
    def find(cls, rank: int, world_size: int) -> LauncherStore | None:
        """Returns the store of the launcher that started this process, or ``None`` if there is none.

        ``torchrun`` sets TORCHELASTIC_USE_AGENT_STORE if its agent keeps a store at MASTER_ADDR and MASTER_PORT. The
        store lives as long as the job, so that it holds nothing of an earlier job with the same TORCHELASTIC_RUN_ID.
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
        """Stores a message of JSON values for the other ranks."""
        self._store.set(self._key, json.dumps(message))

    def wait(self) -> dict[str, Any]:
        """Waits for the message of rank 0, and returns it. Ctrl-C ends the wait.

        Raises:
            UnavailableError: Rank 0 sent no message within half an hour, or the store is gone.
        """
        end = time.monotonic() + _WAIT_SECS
        try:
            while not self._store.check([self._key]):
                if time.monotonic() > end:
                    raise UnavailableError(f"rank {self.rank} waited {_WAIT_SECS} s for rank 0 to plan the stream")
                time.sleep(_POLL_SECS)
            message: dict[str, Any] = json.loads(self._store.get(self._key))
        except RuntimeError as failed:
            raise UnavailableError(f"the launcher's store failed while rank 0 planned the stream: {failed}") from failed
        return message
