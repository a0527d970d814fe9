"""A proxy between an ingest and the store of its sources, which refuses objects and says when they are read."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class SourceProxy:
    """Passes requests on to a store on this machine.

    Attributes:
        statuses: The statuses with which requests for an object are refused, by the end of its key.
        before: What is called before the first request for the bytes of an object, by the end of its key.
        gets: The number of requests for bytes, by path.
    """

    def __init__(self, store_port: int) -> None:
        self.statuses: dict[str, int] = {}
        self.before: dict[str, Callable[[], None]] = {}
        self.gets: Counter[str] = Counter()
        proxy = self
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = unquote(urlsplit(self.path).path)
                with lock:
                    proxy.gets[path] += self.command == "GET"
                    hooks = [end for end in proxy.before if path.endswith(end) and self.command == "GET"]
                    for end in hooks:
                        proxy.before.pop(end)()
                status = next((status for end, status in proxy.statuses.items() if path.endswith(end)), None)
                if status is not None:
                    self.answer(status, [], b"")
                    return
                upstream = http.client.HTTPConnection("127.0.0.1", store_port, timeout=60)
                upstream.request(self.command, self.path, headers=dict(self.headers))
                response = upstream.getresponse()
                self.answer(response.status, response.getheaders(), response.read())
                upstream.close()

            def do_HEAD(self) -> None:
                self.do_GET()

            def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response_only(status)
                dropped = {"transfer-encoding", "connection"}
                kept = [(name, value) for name, value in headers if name.lower() not in dropped]
                for name, value in kept:
                    self.send_header(name, value)
                if "content-length" not in {name.lower() for name, _ in kept}:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the proxy."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
