"""The codecs that compress rows on their way from a server."""

from __future__ import annotations

from typing import Literal

from stoker._errors import InvalidRequestError

__all__ = ["Compression", "compression_or_none"]

Compression = Literal["lz4", "zstd"]


def compression_or_none(compression: str | None) -> str | None:
    """Checks the name of a codec.

    Raises:
        InvalidRequestError: There is no such codec.
    """
    if compression not in ("lz4", "zstd", None):
        raise InvalidRequestError(f"compression is {compression!r}; it must be 'lz4', 'zstd' or None")
    return compression
