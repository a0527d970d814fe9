"""A delayed commit that is acknowledged is in the table, though others committed and a cleanup removed old versions."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import lance
import pytest
from fault_proxy import Faults, Head, S3Proxy
from s3_store import BUCKET, Store

import stoker

#: The timeout of a test's waits, in seconds.
PATIENCE = 120
NUM_ROWS = 10
OWN = 1_000


class StalledPut(S3Proxy):
    """Delays the first PUT of a manifest after `is_armed` is set, until `may_go` is set."""

    def __init__(self, upstream_port: int) -> None:
        self.is_armed = threading.Event()
        self.has_stalled = threading.Event()
        self.may_go = threading.Event()
        super().__init__(upstream_port, Faults(0, {}))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await Head.read(reader)) is not None:
            is_manifest = request.method == "PUT" and "/_versions/" in request.path
            if is_manifest and self.is_armed.is_set() and not self.has_stalled.is_set():
                self.has_stalled.set()
                await asyncio.get_running_loop().run_in_executor(None, self.may_go.wait)
            if not await self._forward(request, reader, writer, None):
                return None
        return None


def ids(lake: stoker.Lake) -> list[int]:
    found: list[int] = lake.sql("SELECT id FROM t ORDER BY id").to_arrow()["id"].to_pylist()
    return found


@pytest.mark.parametrize("num_foreign", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("timeout", ["30 seconds", "10 minutes"])
def test_an_append_that_is_acknowledged_is_there(store: Store, num_foreign: int, timeout: str) -> None:
    uri = f"s3://{BUCKET}/stalled-{num_foreign}-{timeout.split()[0]}"
    others = stoker.connect(uri, storage_options=store.options)
    table = others.create_table("t", {"id": range(NUM_ROWS)})
    with closing(StalledPut(store.port)) as proxy, ThreadPoolExecutor(1) as pool:
        options = {**store.options_at(proxy.port), "timeout": timeout}
        own = stoker.connect(uri, storage_options=options).table("t")
        proxy.is_armed.set()
        appending = pool.submit(own.append, {"id": [OWN]})
        assert proxy.has_stalled.wait(PATIENCE)
        for number in range(num_foreign):
            table.append({"id": [NUM_ROWS + number]})
        lance.dataset(f"{uri}/t.lance", storage_options=store.options).cleanup_old_versions(older_than=timedelta(0))
        proxy.may_go.set()
        appending.result(timeout=PATIENCE)
    assert ids(stoker.connect(uri, storage_options=store.options)) == [*range(NUM_ROWS + num_foreign), OWN]


@pytest.mark.parametrize("num_foreign", [1, 2, 4])
def test_a_quarantine_that_is_acknowledged_is_there(store: Store, num_foreign: int) -> None:
    uri = f"s3://{BUCKET}/stalled-quarantine-{num_foreign}"
    others = stoker.connect(uri, storage_options=store.options)
    table = others.create_table("t", {"id": range(NUM_ROWS)})
    with closing(StalledPut(store.port)) as proxy, ThreadPoolExecutor(1) as pool:
        options = {**store.options_at(proxy.port), "timeout": "10 minutes"}
        own = stoker.connect(uri, storage_options=options).table("t")
        proxy.is_armed.set()
        excluding = pool.submit(own.quarantine, [3])
        assert proxy.has_stalled.wait(PATIENCE)
        for number in range(num_foreign):
            table.append({"id": [NUM_ROWS + number]})
        lance.dataset(f"{uri}/t.lance", storage_options=store.options).cleanup_old_versions(older_than=timedelta(0))
        proxy.may_go.set()
        assert excluding.result(timeout=PATIENCE).version > num_foreign + 1
    left = [number for number in range(NUM_ROWS + num_foreign) if number != 3]
    assert ids(stoker.connect(uri, storage_options=store.options)) == left
