"""Detects what iterates over a loader (a ``DataLoader``, its worker, Accelerate) by the frames of its callers."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from torch.utils.data import DataLoader
from torch.utils.data._utils.fetch import _IterableDatasetFetcher

from stoker._errors import InvalidRequestError

__all__ = ["caller", "num_workers_of", "refuse_second_batching", "refuse_second_sharding", "warn_of_workers"]

#: The maximum number of frames between a loader and Accelerate's wrapper of the ``DataLoader`` around it.
_FRAMES_MAX = 24

#: Accelerate's classes that give each process a part of the items of a dataset.
_SHARDING = ("DataLoaderDispatcher", "IterableDatasetShard")


def caller() -> FrameType:
    """Returns the frame that called the function which calls this one."""
    return sys._getframe(2)


def refuse_second_batching(frame: FrameType | None) -> None:
    """Raises if a ``DataLoader`` would stack several batches into one.

    Raises:
        InvalidRequestError: The ``DataLoader`` has a batch size.
    """
    fetcher = None if frame is None else frame.f_locals.get("self")
    if isinstance(fetcher, _IterableDatasetFetcher) and fetcher.auto_collation:
        raise InvalidRequestError(
            "DataLoader(loader, batch_size=…) would stack batches a second time: use the loader itself "
            "(for batch in loader), or DataLoader(loader, batch_size=None)"
        )


def refuse_second_sharding(frame: FrameType | None, world_size: int) -> None:
    """Raises if Accelerate would shard the rows of this rank, which are sharded already.

    Raises:
        InvalidRequestError: The loader, one of several ranks, is inside a ``DataLoader`` that Accelerate prepared.
    """
    for _ in range(_FRAMES_MAX if world_size > 1 else 0):
        if frame is None:
            return
        inside = type(frame.f_locals.get("self"))
        if inside.__name__ in _SHARDING and inside.__module__.startswith(("accelerate.", "transformers.")):
            raise InvalidRequestError(
                f"{inside.__name__} would shard rows that are sharded already, and lose most of them: give "
                "the loader itself to accelerator.prepare(loader), without a DataLoader around it, or make it with "
                "rank=0, world_size=1"
            )
        frame = frame.f_back


def num_workers_of(frame: FrameType | None) -> int:
    """Returns the number of workers of the ``DataLoader`` that asks for the length, or zero for any other caller."""
    asking = None if frame is None else frame.f_locals.get("self")
    return asking.num_workers if isinstance(asking, DataLoader) else 0


def warn_of_workers(num_workers: int) -> None:
    """Warns of the costs of worker processes."""
    warnings.warn(
        f"DataLoader(num_workers={num_workers}): each global batch is cut into {num_workers} smaller ones, which are "
        "copied between processes; the loader prefetches on native threads by itself and needs no workers. Its "
        "position advances in the workers only: call set_epoch before each pass, and save states with num_workers=0",
        stacklevel=4,
    )
