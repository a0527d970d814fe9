"""Makes versions of a table look old to a cleanup, so that the cleanup has something to remove."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta

from fault_proxy import Faults, Head, S3Proxy
from lance_files import written_earlier
from s3_store import BUCKET, Store

AGE = timedelta(days=40)
_ENTRY = re.compile(rb"<Key>([^<]+)</Key>(\s*)<LastModified>([^<]+)</LastModified>")


def age_manifests(store: Store, table: str) -> frozenset[str]:
    """Sets the times in a table's manifests back by `AGE`; returns the keys of all its objects, for `AgedProxy`."""
    objects = store.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{table}/")["Contents"]
    keys = frozenset(found["Key"] for found in objects)
    for key in keys:
        if key.endswith(".manifest"):
            stored = store.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
            changed = written_earlier(stored, round(AGE.total_seconds()))
            store.client.put_object(Bucket=BUCKET, Key=key, Body=changed)
    return keys


class AgedProxy(S3Proxy):
    """A proxy of an S3 server whose listings say that some objects are old: S3 has no request that sets their times."""

    def __init__(self, upstream_port: int, aged: frozenset[str]) -> None:
        self._aged = aged
        super().__init__(upstream_port, Faults(0, {}))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await Head.read(reader)) is not None:
            if request.method == "GET" and "list-type=2" in request.path:
                await self._list(request, writer)
            elif not await self._forward(request, reader, writer, None):
                return None
        return None

    async def _list(self, request: Head, writer: asyncio.StreamWriter) -> None:
        """Forwards a listing with the times of the aged objects changed."""
        answers, asking = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        try:
            asking.write(Head(request.first, {**request.headers, "connection": "close"}).to_bytes())
            head = await Head.read(answers)
            if head is None:
                raise ConnectionResetError("the store gave no answer")
            listed = await (answers.read() if head.length is None else answers.readexactly(head.length))
        finally:
            asking.close()
        body = _ENTRY.sub(self._entry, listed)
        head.headers |= {"content-length": str(len(body)), "connection": "keep-alive"}
        writer.write(head.to_bytes() + body)
        await writer.drain()

    def _entry(self, found: re.Match[bytes]) -> bytes:
        key, space, text = found.groups()
        if key.decode() not in self._aged:
            return found[0]
        time = datetime.fromisoformat(text.decode().replace("Z", "+00:00")) - AGE
        told = time.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()
        return b"<Key>" + key + b"</Key>" + space + b"<LastModified>" + told + b"</LastModified>"
