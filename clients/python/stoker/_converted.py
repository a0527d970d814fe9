"""Converts batches, on request by several threads ahead of the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

from stoker._batch import Batch
from stoker._numbers import whole
from stoker._per_row import PerRow, Stack

__all__ = ["Transform", "check_threads", "converted", "transformed"]

_Value = TypeVar("_Value")

#: A function of the dict of a batch, or of single rows.
Transform: TypeAlias = Callable[[dict[str, Any]], Any] | PerRow

#: The maximum number of threads that call a transform.
_THREADS_MAX = 1024

#: The maximum row ids that the note of an exception names.
_ROW_IDS_SHOWN = 8


def check_threads(transform_threads: int) -> int:
    """Returns the number of threads that call a transform; 0 for the thread of the loop.

    Raises:
        InvalidRequestError: The number is out of range.
    """
    return whole("transform_threads", transform_threads, 0, _THREADS_MAX)


def converted(
    batches: Iterable[Batch], convert: Callable[[Batch], _Value], num_threads: int
) -> Iterator[tuple[Batch, _Value]]:
    """Yields each batch with what ``convert`` makes of it, in order.

    With threads, up to ``num_threads`` batches are converted while the loop works on the one before them. The first
    exception ends the loop at its batch.
    """
    if num_threads == 0:
        yield from ((batch, convert(batch)) for batch in batches)
        return
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="stoker-transform")
    ahead: deque[tuple[Batch, Future[_Value]]] = deque()
    try:
        for batch in batches:
            ahead.append((batch, pool.submit(convert, batch)))
            if len(ahead) > num_threads:
                first, value = ahead.popleft()
                yield first, value.result()
        while ahead:
            first, value = ahead.popleft()
            yield first, value.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def transformed(transform: Transform | None, values: Any, batch: Batch, stack: Stack | None = None) -> Any:
    """Returns what a transform makes of a batch. ``stack`` stacks the values of rows; default: as arrays of NumPy.

    An exception gets a note that names the step and the rows (from Python 3.11 on).
    """
    if transform is None:
        return values
    if isinstance(transform, PerRow):
        return transform.batch(values, batch, stack)
    try:
        return transform(values)
    except Exception as error:
        if hasattr(error, "add_note"):
            error.add_note(f"in the transform of {_described(batch)}")
        raise


def _described(batch: Batch) -> str:
    tables = ", ".join(f"{table} version {version}" for table, version in batch.tables)
    row_ids = batch.row_ids.reshape(len(batch.tables) or 1, -1)[0]
    shown = ", ".join(str(row_id) for row_id in row_ids[:_ROW_IDS_SHOWN].tolist())
    more = f" and {len(row_ids) - _ROW_IDS_SHOWN} more" if len(row_ids) > _ROW_IDS_SHOWN else ""
    return f"step {batch.step}: {tables}, row ids {shown}{more}"
