"""Stores that do not create objects atomically, and stores that cannot be written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest
from conftest import Server
from fault_proxy import Faults, Head, S3Proxy
from s3_store import BUCKET, Store

import stoker

NUM_ROWS = 30


class IgnoresConditions(S3Proxy):
    """A store that ignores the header `If-None-Match`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        super().__init__(store.port, Faults(0, {}))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await Head.read(reader)) is not None:
            if request.headers.pop("if-none-match", None) is not None and await self.is_refused(request):
                await self._answer(request, reader, writer, 412)
            elif not await self._forward(request, reader, writer, None):
                return None
        return None

    async def is_refused(self, request: Head) -> bool:
        """Returns whether a conditional write is refused, because the object exists."""
        return False


class LooksAndWrites(IgnoresConditions):
    """A store that first checks whether an object exists and then writes it, which is not atomic."""

    async def is_refused(self, request: Head) -> bool:
        return await asyncio.get_running_loop().run_in_executor(None, self._exists, request.path)

    def _exists(self, path: str) -> bool:
        bucket, _, key = path.lstrip("/").partition("/")
        return "Contents" in self._store.client.list_objects_v2(Bucket=bucket, Prefix=key)


class RefusesWrites(S3Proxy):
    """A store that responds to all writes with an error status."""

    def __init__(self, store: Store, status: int) -> None:
        self._status = status
        super().__init__(store.port, Faults(0, {}))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await Head.read(reader)) is not None:
            if request.method in ("PUT", "POST", "DELETE"):
                self.faults.count(request.method)
                await self._answer(request, reader, writer, self._status)
            elif not await self._forward(request, reader, writer, None):
                return None
        return None


def streamed(lake: stoker.Lake) -> list[int]:
    stream = lake.sql("SELECT id FROM t").stream(batch_size=7, seed=1)
    return sorted(row for batch in stream for row in batch["id"][batch.valid].tolist())


@pytest.fixture(params=["in process", "through a server"])
def is_remote(request: pytest.FixtureRequest) -> bool:
    return bool(request.param != "in process")


class Place:
    """A lake in a store behind a proxy, opened in process or through a server."""

    def __init__(self, uri: str, given: Mapping[str, str], is_remote: bool) -> None:
        environment = {name.upper(): value for name, value in given.items()}
        self._server = Server(uri, environment) if is_remote else None
        self.lake = stoker.connect(self._server.url) if self._server else stoker.connect(uri, storage_options=given)

    def close(self) -> None:
        if self._server:
            self._server.stop()


@pytest.fixture(params=[IgnoresConditions, LooksAndWrites])
def unsafe(request: pytest.FixtureRequest, store: Store) -> Iterator[IgnoresConditions]:
    with closing(request.param(store)) as proxy:
        yield proxy


def test_a_store_that_is_not_atomic_is_read_and_not_written(
    store: Store, unsafe: IgnoresConditions, is_remote: bool
) -> None:
    uri = f"s3://{BUCKET}/{type(unsafe).__name__}-{is_remote}"
    safe = stoker.connect(uri, storage_options=store.options)
    safe.create_table("t", {"id": range(NUM_ROWS)})
    with closing(Place(uri, store.options_at(unsafe.port), is_remote)) as place:
        refused = r"cannot be written, commits would be lost: of 8 writers that created one object.*, [2-8] were told"
        table = place.lake.table("t")
        writes = [lambda: place.lake.sql("SELECT id FROM t").stream(batch_size=7, run_id="new")]
        if not is_remote:
            writes += [
                lambda: table.quarantine([0]),
                lambda: table.append({"id": [NUM_ROWS]}),
                lambda: place.lake.create_table("t", {"id": [NUM_ROWS]}, mode="overwrite"),
                lambda: place.lake.create_table("u", {"id": [1]}),
                lambda: table.create_index("id", kind="btree"),
            ]
        for write in writes:
            with pytest.raises(stoker.InvalidRequestError, match=refused):
                write()
        assert streamed(place.lake) == list(range(NUM_ROWS))
    assert [found.version for found in safe.table("t").versions()] == [1]
    listed = store.client.list_objects_v2(Bucket=BUCKET, Prefix=uri.rsplit("/", 1)[1] + "/")["Contents"]
    assert not [found["Key"] for found in listed if "/probes/" in found["Key"] or "/u.lance/" in found["Key"]]


@pytest.mark.parametrize("status", [403, 405, 501])
def test_a_store_that_cannot_be_written_is_streamed(store: Store, status: int, is_remote: bool) -> None:
    uri = f"s3://{BUCKET}/refuses-{status}-{is_remote}"
    stoker.connect(uri, storage_options=store.options).create_table("t", {"id": range(NUM_ROWS)})
    with (
        closing(RefusesWrites(store, status)) as proxy,
        closing(Place(uri, store.options_at(proxy.port), is_remote)) as place,
    ):
        assert streamed(place.lake) == list(range(NUM_ROWS))
        assert proxy.faults.fired["PUT"] > 0
        with pytest.raises(stoker.PermissionDeniedError, match=rf"{status}|[Pp]ermission"):
            place.lake.sql("SELECT id FROM t").stream(batch_size=7, seed=1, run_id="new")
        if not is_remote:
            for write in (lambda table: table.append({"id": [NUM_ROWS]}), lambda table: table.quarantine([0])):
                with pytest.raises(stoker.PermissionDeniedError):
                    write(place.lake.table("t"))
    assert streamed(stoker.connect(uri, storage_options=store.options)) == list(range(NUM_ROWS))
