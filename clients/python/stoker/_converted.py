"""Converts batches, on request by several threads ahead of the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from stoker._batch import Batch
from stoker._numbers import whole

__all__ = ["check_threads", "converted", "transformed"]

_Value = TypeVar("_Value")

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


def transformed(transform: Callable[[Any], Any] | None, values: Any, batch: Batch) -> Any:
    """Returns what a transform makes of a batch.

    An exception gets a note that names the step and the rows (from Python 3.11 on).
    """
    if transform is None:
        return values
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
