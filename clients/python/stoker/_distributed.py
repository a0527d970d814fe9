"""Finds the ranks of a job, and makes them agree on one stream."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stoker import _errors, _native
from stoker._errors import InternalError, InvalidRequestError, StateMismatchError, StokerError
from stoker._jax_processes import JaxStore, is_sharding, process_of_job, processes_of
from stoker._launcher import LauncherStore

__all__ = ["Ranks", "agree", "fingerprint", "gather", "process_group", "ranks_of"]

#: Names of mesh dimensions whose ranks must get the same rows.
_SAME_ROWS = ("tp", "cp", "pp", "sp", "ep")


@dataclass(frozen=True)
class Ranks:
    """The rank of this process among the ranks that share the rows.

    Attributes:
        rank: The rank of this process, zero-based.
        world_size: The number of ranks.
        origin: The source of both numbers: ``"given"``, ``"group"`` (of ``torch.distributed``), ``"jax"`` (its
            processes), ``"environment"`` or ``"alone"``.
    """

    rank: int
    world_size: int
    origin: str


def process_group() -> Any | None:
    """Returns ``torch.distributed`` if it is initialised. Never imports PyTorch."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def ranks_of(rank: int | None, world_size: int | None, mesh: Any = None, group: Any = None) -> Ranks:
    """Returns rank and world size: as given, or of a mesh, a group, ``torch.distributed``, JAX or the environment.

    Raises:
        InvalidRequestError: Only one of rank and world size is given, as argument or in the environment; a number in
            the environment is malformed; more than one of numbers, mesh and group is given; a mesh has dimensions whose
            ranks must get the same rows; this process is not in the mesh or group.
    """
    if (mesh is not None) + (group is not None) + (rank is not None or world_size is not None) > 1:
        raise InvalidRequestError("give one of rank and world_size, mesh, and process_group")
    if mesh is not None:
        return _of_mesh(mesh)
    if rank is not None and world_size is not None:
        return Ranks(rank, world_size, "given")
    if rank is not None or world_size is not None:
        raise InvalidRequestError("give both rank and world_size, or neither")
    distributed = process_group()
    if group is not None:
        return _of_group(distributed, group)
    if distributed is not None:
        return Ranks(distributed.get_rank(), distributed.get_world_size(), "group")
    process = process_of_job()
    if process is not None:
        return Ranks(*process, "jax")
    variables = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if variables == (None, None):
        return Ranks(0, 1, "alone")
    try:
        return Ranks(int(variables[0] or ""), int(variables[1] or ""), "environment")
    except ValueError:
        raise InvalidRequestError(
            f"the environment has RANK={variables[0]!r} and WORLD_SIZE={variables[1]!r}; "
            "set both to numbers, or neither"
        ) from None


def _of_mesh(mesh: Any) -> Ranks:
    """Returns this process's coordinate in a mesh of data-parallel dimensions, counted row by row."""
    if is_sharding(mesh):
        return Ranks(*processes_of(mesh), "jax")
    try:
        names, shape, coordinate = mesh.mesh_dim_names or (), tuple(mesh.shape), mesh.get_coordinate()
    except AttributeError:
        raise InvalidRequestError(
            f"mesh is {type(mesh).__name__}; it must be a torch.distributed.device_mesh.DeviceMesh or a "
            "jax.sharding.Sharding"
        ) from None
    same = [name for name in names if name in _SAME_ROWS]
    if same:
        rest = tuple(name for name in names if name not in _SAME_ROWS)
        example = f"mesh[{', '.join(map(repr, rest))}]" if rest else "the mesh of the data-parallel dimension"
        raise InvalidRequestError(
            f"the ranks along {', '.join(same)} must get the same rows: give the mesh without them, {example}"
        )
    if coordinate is None:
        raise InvalidRequestError("this process is not in the mesh")
    rank = 0
    for size, at in zip(shape, coordinate, strict=True):
        rank = rank * size + at
    return Ranks(rank, mesh.size(), "group")


def _of_group(distributed: Any, group: Any) -> Ranks:
    if distributed is None:
        raise InvalidRequestError("process_group needs torch.distributed, which is not initialised")
    try:
        rank, world_size = distributed.get_rank(group), distributed.get_world_size(group)
    except (AttributeError, TypeError, ValueError, RuntimeError) as failed:
        raise InvalidRequestError(f"process_group is no group of torch.distributed: {failed}") from failed
    if rank < 0:
        raise InvalidRequestError("this process is not in the process group")
    return Ranks(rank, world_size, "group")


def fingerprint(params: Sequence[Any]) -> str:
    """Returns a short text for comparing the parameters of ranks: the beginning of the parameters, and their digest."""
    try:
        text = _native.params_json(params)
    except StokerError:  # planning raises this error too, and reports it to all ranks
        text = repr([type(param).__name__ for param in params])
    return f"{text[:60]} ({hashlib.sha256(text.encode()).hexdigest()[:12]})"


def agree(
    ranks: Ranks,
    asked: dict[str, Any],
    plan: Callable[[], _native.StreamHandle],
    load: Callable[[str], _native.StreamHandle],
) -> _native.StreamHandle:
    """Plans a stream once for all ranks, so that all read the same snapshots.

    Rank 0 plans, and sends the state of its stream to the other ranks, which load it: over the process group, over the
    devices of a JAX job or, without either, over the store of the launcher. The ranks compare their requests and, in a
    process group, also their stream ids. In a process group, an error on any rank is raised on every rank, so that no
    rank waits for ever; so it is in a JAX job. Over the launcher's store, every rank gets the errors of rank 0. A
    single rank, or a rank whose number was given as an argument, plans for itself; so does a rank of a launcher with a
    ``run_id``, which gives all ranks the same stream.

    Args:
        ranks: This rank.
        asked: The request, which must be the same on all ranks: JSON values by name.
        plan: Plans the stream.
        load: Loads the stream of a state.

    Raises:
        StateMismatchError: The ranks ask for different streams; the message lists the differences.
    """
    distributed = process_group()
    if ranks.origin == "group" and distributed is not None and distributed.get_world_size() > 1:
        return _agree_in_group(distributed, asked, plan, load)
    process = process_of_job() if ranks.origin == "jax" else None
    if process is not None:
        return _agree_in_jax(JaxStore(process[0]), asked, plan, load)
    if ranks.origin == "environment" and ranks.world_size > 1 and asked.get("run_id") is None:
        store = LauncherStore.find(ranks.rank, ranks.world_size)
        if store is not None:
            return _agree_in_store(store, asked, plan, load)
        warnings.warn(
            f"rank {ranks.rank} of {ranks.world_size} comes from RANK and WORLD_SIZE, without a process group: ranks "
            "that start while someone writes may read different snapshots. Call torch.distributed.init_process_group() "
            "first, or give all ranks the same run_id",
            stacklevel=4,
        )
    return plan()


def _agree_in_group(
    group: Any,
    asked: dict[str, Any],
    plan: Callable[[], _native.StreamHandle],
    load: Callable[[str], _native.StreamHandle],
) -> _native.StreamHandle:
    wishes: list[Any] = [None] * group.get_world_size()
    group.all_gather_object(wishes, asked)
    for rank, wish in enumerate(wishes):
        _refuse_differences(wishes[0], wish, rank)
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


def _agree_in_jax(
    store: JaxStore,
    asked: dict[str, Any],
    plan: Callable[[], _native.StreamHandle],
    load: Callable[[str], _native.StreamHandle],
) -> _native.StreamHandle:
    error: Exception | None = None
    try:
        handle = _agree_in_store(store, asked, plan, load)
    except Exception as failed:  # of any kind: the other processes must not wait for ever
        error = failed
    without = store.those_with(error is not None)
    if error is not None:
        raise error
    if without:
        raise StateMismatchError(f"process {without[0]} of the JAX job got no stream; its own error has the reason")
    return handle


def _agree_in_store(
    store: LauncherStore | JaxStore,
    asked: dict[str, Any],
    plan: Callable[[], _native.StreamHandle],
    load: Callable[[str], _native.StreamHandle],
) -> _native.StreamHandle:
    wished = json.loads(json.dumps(asked, default=repr))
    if store.rank == 0:
        handle, outcome = _attempt(plan)
        state = handle.pinned_state() if handle else None
        store.tell({"asked": wished, "state": state, "outcome": outcome})
        if handle is None:
            raise _raised(outcome)
        return handle
    told = store.wait()
    _refuse_differences(told["asked"], wished, store.rank)
    if told["state"] is None:
        raise _raised(told["outcome"])
    return load(told["state"])


def _refuse_differences(first: dict[str, Any], other: dict[str, Any], rank: int) -> None:
    lines = [
        f"{name}: rank 0 has {first.get(name)!r}, rank {rank} has {other.get(name)!r}"
        for name in sorted({*first, *other})
        if first.get(name) != other.get(name)
    ]
    if lines:
        raise StateMismatchError("the ranks of the job ask for different streams:\n  " + "\n  ".join(lines))


def gather(items: list[Any]) -> list[Any]:
    """Returns the items of all ranks of the process group, in order of ranks; without a group, only ``items``."""
    group = process_group()
    if group is None or group.get_world_size() == 1:
        return items
    gathered: list[Any] = [None] * group.get_world_size()
    group.all_gather_object(gathered, items)
    return [item for part in gathered for item in part]


def _attempt(make: Callable[[], _native.StreamHandle]) -> tuple[_native.StreamHandle | None, tuple[str, str]]:
    try:
        handle = make()
    except Exception as failed:  # of any kind: the other ranks must be told
        return None, (type(failed).__name__, str(failed))
    return handle, ("stream", handle.stream_id)


def _raised(outcome: tuple[str, str] | list[str] | None) -> StokerError:
    name, text = outcome or ("InternalError", "rank 0 sent no stream")
    return getattr(_errors, name, InternalError)(text)
