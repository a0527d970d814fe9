"""The processes of a JAX job: which rows each of them reads, and how they agree on one stream."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from stoker._column_shapes import column_shapes
from stoker._errors import InvalidRequestError
from stoker._ragged import Layout, padding_of
from stoker._stream_info import StreamInfo

__all__ = ["JaxStore", "check_sharding", "is_sharding", "one_ahead", "process_of_job", "processes_of"]

_Pair = TypeVar("_Pair")


def process_of_job() -> tuple[int, int] | None:
    """Returns index and number of the processes of the job, if JAX is imported and has several. Never imports JAX."""
    jax = sys.modules.get("jax")
    distributed: Any = getattr(jax, "distributed", None)
    if jax is None or not hasattr(distributed, "is_initialized") or not distributed.is_initialized():
        return None
    return (jax.process_index(), jax.process_count()) if jax.process_count() > 1 else None


def is_sharding(value: Any) -> bool:
    """Returns whether a value is a sharding of JAX. Never imports JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.sharding.Sharding)


def processes_of(sharding: Any) -> tuple[int, int]:
    """Returns which part of the rows the devices of this process hold, and the number of parts.

    Processes that hold the same rows, such as those of one group of model parallelism, have the same part.

    Raises:
        InvalidRequestError: The value is no sharding, or a process does not hold neighbouring rows.
    """
    import jax

    if not is_sharding(sharding):
        raise InvalidRequestError(f"sharding is {type(sharding).__name__}; it must be a jax.sharding.Sharding")
    num_rows = 1 << 20
    while num_rows % max(sharding.num_devices, 1):
        num_rows += 1
    held: dict[int, tuple[int, int]] = {}
    for device, index in _rows_of(sharding).devices_indices_map((num_rows,)).items():
        start, end, _ = index[0].indices(num_rows)
        known = held.get(device.process_index, (start, end))
        held[device.process_index] = (min(known[0], start), max(known[1], end))
    parts = sorted(set(held.values()))
    bounds = [0, *(end for _, end in parts)]
    mine = held.get(jax.process_index())
    if mine is None:
        raise InvalidRequestError("sharding has no device of this process")
    size = num_rows // len(parts)
    if [start for start, _ in parts] != bounds[:-1] or any(end - start != size for start, end in parts):
        raise InvalidRequestError(
            "sharding does not give each process neighbouring rows, and as many as the others: order the devices of "
            "the mesh so that those of a process are neighbours along the dimension of the rows"
        )
    return parts.index(mine), len(parts)


def check_sharding(sharding: Any, stream: StreamInfo, layouts: Mapping[str, Layout]) -> int:
    """Checks that batches of a stream can be arrays of a sharding, and returns the number of parts of the rows.

    Raises:
        InvalidRequestError: Batches differ in size or do not divide among the devices, the stream is for another part
            of the rows, or rows of different lengths have another shape on each process.
    """
    part, num_parts = processes_of(sharding)
    if (stream.rank, stream.world_size) != (part, num_parts):
        raise InvalidRequestError(
            f"the stream is for rank {stream.rank} of {stream.world_size}, but the devices of this process hold part "
            f"{part} of {num_parts} of the sharding: give mesh=sharding to the stream in place of rank and world_size"
        )
    if not stream.has_equal_batches:
        raise InvalidRequestError(
            "a sharding needs batches of one size: give last_batch='pad' (the default of Query.jax) or 'drop', and "
            "a global_batch_size that is a multiple of the number of processes; buckets have different numbers of rows"
        )
    num_rows = stream.batch_size * num_parts
    try:
        _rows_of(sharding).shard_shape((num_rows,))
    except ValueError as uneven:
        raise InvalidRequestError(f"{num_rows} rows of a batch do not divide among the devices: {uneven}") from None
    shapes = zip(stream.schema.names, column_shapes(stream.schema), strict=True)
    for name, shape in shapes if num_parts > 1 else ():
        padding = padding_of(layouts[name]) if name in layouts else None
        if padding is not None and (padding.length is None or max(shape.levels, len(shape.sizes or ())) > 1):
            raise InvalidRequestError(
                f"column {name} would have another shape on each process: give ragged={{{name!r}: "
                "stoker.Pad(length=…)}, which fixes the length of rows that differ in one dimension"
            )
    return num_parts


def _rows_of(sharding: Any) -> Any:
    """Returns the sharding of the first dimension alone."""
    import jax

    if isinstance(sharding, jax.sharding.NamedSharding):
        first = sharding.spec[0] if len(sharding.spec) else None
        return jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(first))
    return sharding


def one_ahead(pairs: Iterable[_Pair]) -> Iterator[_Pair]:
    """Yields each pair after the next one is made, so that its copy to the device has begun; the first one at once."""
    ahead: _Pair | None = None
    for number, pair in enumerate(pairs):
        if number == 0:
            yield pair
            continue
        if ahead is not None:
            yield ahead
        ahead = pair
    if ahead is not None:
        yield ahead


class JaxStore:
    """Sends what rank 0 planned to the other processes of a JAX job, as an array over its devices."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def tell(self, message: dict[str, Any]) -> None:
        """Sends a message of JSON values to the other processes."""
        data = np.frombuffer(json.dumps(message).encode(), np.uint8)
        self._broadcast(np.array([len(data)], np.int32))
        self._broadcast(data)

    def wait(self) -> dict[str, Any]:
        """Waits for the message of rank 0, and returns it."""
        length = self._broadcast(np.zeros(1, np.int32))
        data = self._broadcast(np.zeros(int(length[0]), np.uint8))
        message: dict[str, Any] = json.loads(np.asarray(data, np.uint8).tobytes())
        return message

    def those_with(self, flag: bool) -> list[int]:
        """Returns the processes whose flag is set. All processes must call this."""
        from jax.experimental import multihost_utils

        flags = np.asarray(multihost_utils.process_allgather(np.array([flag], np.int32)))
        found: list[int] = np.flatnonzero(flags.reshape(-1)).tolist()
        return found

    def _broadcast(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.broadcast_one_to_all(values, is_source=self.rank == 0))
