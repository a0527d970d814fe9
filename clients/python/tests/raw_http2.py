"""HTTP/2 frames as bytes, and requests of Stoker's protocol, for tests with clients that break the rules."""

from __future__ import annotations

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 2, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
SERVICE = "/arrow.flight.protocol.FlightService"


def frame(kind: int, payload: bytes = b"", *, stream: int = 0, flags: int = 0) -> bytes:
    """Encodes one frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(**values: int) -> bytes:
    """Encodes a SETTINGS frame."""
    numbers = {"initial_window_size": 4}
    return frame(SETTINGS, b"".join(struct.pack(">HI", numbers[name], value) for name, value in values.items()))


def headers(method: str, *, stream: int = 1, token: str | None = None, ends: bool = False) -> bytes:
    """Encodes the HEADERS frame of a call, without compression of the headers."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"{SERVICE}/{method}",
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    if token is not None:
        fields["authorization"] = f"Bearer {token}"
    block = b"".join(b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in field) for field in fields.items())
    return frame(HEADERS, block, stream=stream, flags=END_HEADERS | (END_STREAM if ends else 0))


def field(number: int, value: bytes | str | int) -> bytes:
    """Encodes a field of a Protocol Buffers message."""

    def varint(rest: int) -> bytes:
        low, rest = rest & 0x7F, rest >> 7
        return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])

    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def stream_command(sql: str, batch_size: int) -> bytes:
    """Encodes the descriptor of a stream for the only rank of a job (see ``stream.proto``)."""
    query = field(1, sql) + field(3, 7)
    share = field(1, 0) + field(2, 1) + field(3, batch_size)
    return field(1, 1) + field(2, field(1, query) + field(4, share))


def do_get(ticket: bytes, *, stream: int = 1, token: str | None = None) -> bytes:
    """Encodes the frames of a DoGet request."""
    message = field(1, ticket)
    body = b"\0" + struct.pack(">I", len(message)) + message
    return headers("DoGet", stream=stream, token=token) + frame(DATA, body, stream=stream, flags=END_STREAM)


def connect(port: int) -> socket.socket:
    """Connects with a receive buffer of 4 KiB, so that a server soon cannot send to a client that reads nothing."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.settimeout(60)
    plain.connect(("127.0.0.1", port))
    return plain


def until_closed(plain: socket.socket) -> set[int]:
    """Reads until the server closes the connection; returns the kinds of the frames that it sent."""
    received = b""
    try:
        while part := plain.recv(1 << 16):
            received += part
    except ConnectionError:
        pass
    kinds, at = set(), 0
    while at + 9 <= len(received):
        kinds.add(received[at + 3])
        at += 9 + int.from_bytes(received[at : at + 3], "big")
    return kinds
