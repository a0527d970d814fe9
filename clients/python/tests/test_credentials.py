"""A stream survives replaced credentials and a single refusal; credentials that stay refused are an error at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from fault_proxy import Faults, Head, S3Proxy
from s3_store import BUCKET, Store
from test_unsafe_stores import Place

import stoker

NUM_ROWS = 600
#: The most requests that the store may refuse before a call fails: the concurrent requests of a stream, and one more
#: for each kind of request. A call that retried until its retry budget is spent would send many times as many.
REFUSALS_MAX = 100


class ChecksKeys(S3Proxy):
    """A proxy of a store that accepts only one access key, and refuses `num_stray` requests with that key too."""

    def __init__(self, store: Store) -> None:
        self.accepted = "test"
        self.refusal = (403, "InvalidAccessKeyId")
        self.num_stray = 0
        super().__init__(store.port, Faults(0, {}))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await Head.read(reader)) is not None:
            key = re.search(r"Credential=([^/]+)/", request.headers["authorization"])
            is_accepted = key is not None and key[1] == self.accepted
            if is_accepted and self.num_stray > 0:
                self.num_stray -= 1
                is_accepted = False
            if not is_accepted:
                await self._refuse(request, reader, writer)
            elif not await self._forward(request, reader, writer, None):
                return None
        return None

    async def _refuse(self, request: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.faults.count("refused")
        await reader.readexactly(request.length or 0)
        status, code = self.refusal
        body = b"" if request.method == "HEAD" else f"<Error><Code>{code}</Code></Error>".encode()
        head = {"content-type": "application/xml", "content-length": str(len(body))}
        writer.write(Head(f"HTTP/1.1 {status} by the proxy", head).to_bytes() + body)
        await writer.drain()


class KeyFile:
    """A credentials file in the format of the AWS tools."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("test")

    def write(self, key: str) -> None:
        """Replaces the access key in the file."""
        self.path.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = test-secret\n")


@pytest.fixture
def proxy(store: Store) -> Iterator[ChecksKeys]:
    with closing(ChecksKeys(store)) as proxy:
        yield proxy


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeyFile:
    """The credentials file that this process and its children use."""
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return KeyFile(tmp_path / "credentials")


@pytest.fixture
def uri(store: Store, request: pytest.FixtureRequest) -> str:
    """The URI of a lake with the table `t`, which has two columns, one of them heavy."""
    name = re.sub(r"\W+", "-", request.node.name)
    uri = f"s3://{BUCKET}/{name}"
    lake = stoker.connect(uri, storage_options=store.options)
    images = np.arange(NUM_ROWS * 600, dtype=np.int32).reshape(NUM_ROWS, 600)
    lake.create_table("t", {"id": range(NUM_ROWS), "image": images})
    return uri


@pytest.fixture(params=["in process", "through a server"])
def is_remote(request: pytest.FixtureRequest) -> bool:
    return bool(request.param != "in process")


def streamed(place: Place) -> stoker.Stream:
    return place.lake.sql("SELECT id, image FROM t").stream(batch_size=16, seed=1)


def rows(stream: stoker.Stream) -> Iterator[int]:
    for batch in stream:
        for row, image in zip(batch["id"][batch.valid], batch["image"][batch.valid], strict=True):
            assert (image == np.arange(row * 600, row * 600 + 600)).all()
            yield int(row)


def without_keys(store: Store, port: int) -> dict[str, str]:
    return {name: value for name, value in store.options_at(port).items() if "key" not in name}


@pytest.mark.parametrize(
    "refusal", [(403, "InvalidAccessKeyId"), (400, "ExpiredToken"), (401, "Unauthorized")], ids=str
)
def test_a_stream_goes_on_with_credentials_that_were_replaced(
    store: Store, uri: str, proxy: ChecksKeys, key_file: KeyFile, is_remote: bool, refusal: tuple[int, str]
) -> None:
    proxy.refusal = refusal
    with closing(Place(uri, without_keys(store, proxy.port), is_remote)) as place:
        stream = streamed(place)
        epoch = rows(stream)
        begun = [next(epoch) for _ in range(20)]
        key_file.write("second")
        proxy.accepted = "second"
        assert sorted([*begun, *epoch]) == list(range(NUM_ROWS))
        # The stream may have prefetched the rest of this epoch and the next one, so three more epochs are read.
        for _ in range(3):
            assert sorted(rows(stream)) == list(range(NUM_ROWS))
        assert 0 < proxy.faults.fired["refused"] <= REFUSALS_MAX
        # Opening a table and planning a query use the new credentials too.
        key_file.write("third")
        proxy.accepted = "third"
        assert place.lake.sql("SELECT count(*) AS n FROM t").to_arrow()["n"].to_pylist() == [NUM_ROWS]
        assert sorted(rows(streamed(place))) == list(range(NUM_ROWS))


def test_a_request_that_is_refused_once_ends_nothing(
    store: Store, uri: str, proxy: ChecksKeys, is_remote: bool
) -> None:
    with closing(Place(uri, store.options_at(proxy.port), is_remote)) as place:
        proxy.num_stray = 1
        stream = streamed(place)
        assert sorted(rows(stream)) == list(range(NUM_ROWS))
        assert proxy.num_stray == 0


def test_credentials_that_stay_refused_are_an_error_at_once(
    store: Store, uri: str, proxy: ChecksKeys, is_remote: bool
) -> None:
    with closing(Place(uri, store.options_at(proxy.port), is_remote)) as place:
        stream = streamed(place)
        assert sorted(rows(stream)) == list(range(NUM_ROWS))
        proxy.accepted = "another"
        calls = [
            # The stream may have prefetched an epoch, so three epochs are read.
            lambda: [list(rows(stream)) for _ in range(3)],
            lambda: place.lake.tables(),
            lambda: place.lake.table("t"),
            lambda: place.lake.sql("SELECT count(*) FROM t").to_arrow(),
            lambda: streamed(place),
        ]
        for call in calls:
            before = proxy.faults.fired["refused"]
            with pytest.raises(stoker.PermissionDeniedError):
                call()
            assert proxy.faults.fired["refused"] - before <= REFUSALS_MAX


def test_a_lake_whose_credentials_are_refused_cannot_be_opened(store: Store, uri: str, proxy: ChecksKeys) -> None:
    proxy.accepted = "another"
    lake = stoker.connect(uri, storage_options=store.options_at(proxy.port))
    with pytest.raises(stoker.PermissionDeniedError, match="t"):
        lake.table("t")
    assert proxy.faults.fired["refused"] <= REFUSALS_MAX
