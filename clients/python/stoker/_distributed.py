"""Ranks of a job, and their agreement on one stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from stoker import _errors, _native
from stoker._errors import InternalError, InvalidRequestError, StateMismatchError, StokerError

__all__ = ["agree", "gather", "process_group", "topology"]


def process_group() -> Any | None:
    """Returns ``torch.distributed`` when it is initialised; PyTorch is never imported for that."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def topology(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Returns rank and world size: as given, else of ``torch.distributed``, else of the environment, else ``(0, 1)``.

    Raises:
        InvalidRequestError: Only one of both is given, here or in the environment, or a number is not one.
    """
    if rank is not None and world_size is not None:
        return rank, world_size
    if rank is not None or world_size is not None:
        raise InvalidRequestError("give both rank and world_size, or neither")
    group = process_group()
    if group is not None:
        return group.get_rank(), group.get_world_size()
    variables = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if variables == (None, None):
        return 0, 1
    try:
        return int(variables[0] or ""), int(variables[1] or "")
    except ValueError:
        raise InvalidRequestError(
            f"the environment has RANK={variables[0]!r} and WORLD_SIZE={variables[1]!r}; "
            "set both to numbers, or neither"
        ) from None


def agree(
    plan: Callable[[], _native.StreamHandle], load: Callable[[str], _native.StreamHandle]
) -> _native.StreamHandle:
    """Plans a stream once for all ranks of the process group, so that all read the same snapshots.

    Rank 0 plans and broadcasts the specification, the others load it; then all compare stream ids. An error on any rank
    is raised on every rank, so that none waits for ever. Without a process group this is ``plan()``.

    Raises:
        StateMismatchError: The ranks did not end up with the same stream.
    """
    group = process_group()
    if group is None or group.get_world_size() == 1:
        return plan()
    handle: _native.StreamHandle | None = None
    outcome: tuple[str, str] | None = None
    if group.get_rank() == 0:
        handle, outcome = _attempt(plan)
    message: list[Any] = [(handle.pinned_state() if handle else None, outcome)]
    group.broadcast_object_list(message, src=0)
    state, planned = message[0]
    if state is None:
        raise _raised(planned)
    if handle is None:
        handle, outcome = _attempt(lambda: load(state))
    outcomes: list[Any] = [None] * group.get_world_size()
    group.all_gather_object(outcomes, outcome)
    for rank, (kind, text) in enumerate(outcomes):
        if kind != "stream":
            raise _raised((kind, f"rank {rank}: {text}"))
    ids = {text for _, text in outcomes}
    if len(ids) > 1 or handle is None:
        raise StateMismatchError(f"the ranks have different streams: {sorted(ids)}")
    return handle


def gather(items: list[Any]) -> list[Any]:
    """Returns the items of all ranks of the process group, in order of ranks; without one, these."""
    group = process_group()
    if group is None or group.get_world_size() == 1:
        return items
    gathered: list[Any] = [None] * group.get_world_size()
    group.all_gather_object(gathered, items)
    return [item for part in gathered for item in part]


def _attempt(make: Callable[[], _native.StreamHandle]) -> tuple[_native.StreamHandle | None, tuple[str, str]]:
    try:
        handle = make()
    except Exception as failed:  # whatever it is, the other ranks must hear of it
        return None, (type(failed).__name__, str(failed))
    return handle, ("stream", handle.stream_id)


def _raised(outcome: tuple[str, str] | None) -> StokerError:
    name, text = outcome or ("InternalError", "rank 0 sent no stream")
    return getattr(_errors, name, InternalError)(text)
