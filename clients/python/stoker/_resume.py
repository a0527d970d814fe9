"""Resumes streams at the position of a state, without their query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stoker import _distributed, _native
from stoker._bucket import refuse_sizes
from stoker._config import slice_config
from stoker._errors import InvalidRequestError
from stoker._state_text import state_text
from stoker._stream import Stream

if TYPE_CHECKING:
    from stoker._lake import Lake

__all__ = ["resumed"]

#: The options of `stream` that a state pins and that a resume therefore does not take.
_PINNED = (
    "seed",
    "epoch",
    "shuffle",
    "shuffle_window_bytes",
    "block_bytes",
    "num_lanes",
    "order_version",
    "weight",
    "pack",
    "bucket",
    "params",
)


def resumed(
    lake: Lake,
    state: Mapping[str, Any] | str,
    topology: tuple[int | None, int | None, Any, Any],
    options: dict[str, Any],
) -> Stream:
    """Returns the stream of a state, at the state's position; see :meth:`Lake.resume`."""
    pinned = [name for name in _PINNED if name in options]
    if pinned:
        raise InvalidRequestError(f"resume does not accept {', '.join(pinned)}: the state determines this already")
    ranks = _distributed.ranks_of(*topology)
    try:
        config = slice_config(ranks=ranks, **options)
    except TypeError as unknown:
        raise InvalidRequestError(f"resume: {str(unknown).removeprefix('slice_config() ')}") from None
    text = state_text(state)
    native = lake._native
    asked = {**config.agreed(), "run_id": options.get("run_id"), "state": _place(text)}
    handle = _distributed.agree(ranks, asked, lambda: native.load_stream(text), native.load_stream)
    if handle.has_buckets:
        refuse_sizes(config.batch_size, config.global_batch_size)
    stream = Stream(lake, _native.Session(native, handle, config.request(), 0))
    stream.load_state_dict(text)
    return stream


def _place(text: str) -> Any:
    """Returns what distinguishes states, which must be the same on all ranks of a job."""
    try:
        state = json.loads(text)
        return {name: state.get(name) for name in ("stream_id", "epoch", "position", "step")}
    except (AttributeError, ValueError):
        return text[:100]
