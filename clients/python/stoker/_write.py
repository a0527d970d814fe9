"""Writes rows as one version of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from stoker import _native
from stoker._data import PAGE_BYTES_MAX, ArrowSource
from stoker._errors import InvalidRequestError, StokerError
from stoker._numbers import whole_or_none

if TYPE_CHECKING:
    from stoker._lake import Lake

__all__ = ["WriteMode", "write"]

WriteMode: TypeAlias = Literal["create", "append", "create_or_append", "overwrite"]


def write(
    lake: Lake,
    table: str,
    source: ArrowSource,
    *,
    mode: WriteMode,
    key: str | None,
    rows_per_fragment: int | None,
    page_bytes: int | None,
) -> int:
    """Writes all rows and commits them; returns the new version.

    Raises:
        StokerError: As for :meth:`Lake.create_table`.
    """
    if key is not None and not isinstance(key, str):
        raise InvalidRequestError(f"key is a {type(key).__name__}; it must be text")
    request: _native.WriteRequest = {
        "table": table,
        "mode": mode,
        "rows_per_fragment_max": whole_or_none("rows_per_fragment", rows_per_fragment, 1),
        "page_bytes": whole_or_none("page_bytes", page_bytes, 1, PAGE_BYTES_MAX),
        "has_features": source.has_features,
        "key": key,
        "is_repeatable": source.is_repeatable,
    }
    try:
        return lake._native.write(source, request)
    except StokerError:
        # Arrow's readers keep only the text of what an iterator raised.
        if source.failures:
            raise source.failures[0]  # noqa: B904 - it has a cause of its own
        raise
