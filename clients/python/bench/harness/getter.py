"""Raw GETs of ranges, which the ceilings of the S3 paths make."""

from __future__ import annotations

from http.client import HTTPConnection
from threading import local
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from harness.dataset import Array

__all__ = ["Getter"]


class Getter:
    """Makes GETs of ranges of an object, with one connection per thread."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._thread = local()

    def get(self, start: int, target: Array) -> None:
        """Reads the bytes from ``start`` on into ``target``."""
        if not hasattr(self._thread, "connection"):
            self._thread.connection = HTTPConnection(str(self._url.hostname), self._url.port)
        headers = {"Range": f"bytes={start}-{start + len(target) - 1}"}
        self._thread.connection.request("GET", self._url.path, headers=headers)
        with self._thread.connection.getresponse() as response:
            if response.status != 206:
                raise OSError(f"the server answered {response.status} to a GET of a range of {self._url.path}")
            view = target.data
            while view:
                size = response.readinto(view)
                if not size:
                    raise OSError(f"{len(view)} bytes of a range of {self._url.path} did not come")
                view = view[size:]
