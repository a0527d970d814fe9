"""Streams as datasets of TensorFlow. It is imported on its first use, because TensorFlow is optional."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import tensorflow as tf

from stoker._batch import Batch
from stoker._per_row import PerRow
from stoker._ragged import Layouts
from stoker._stream import Stream
from stoker._tensorflow_columns import TensorFlowColumns
from stoker._tensorflow_rows import TensorFlowRows

__all__ = ["TensorFlowOptions", "dataset"]


@dataclass(frozen=True, kw_only=True)
class TensorFlowOptions:
    """The options that convert the columns of a batch; see :meth:`Query.tensorflow`."""

    ragged: Layouts = "jagged"
    valid_key: str | None = None
    transform: PerRow | None = None


def dataset(stream: Stream, options: TensorFlowOptions) -> Any:
    """Returns a ``tf.data.Dataset`` over a stream; see :meth:`Query.tensorflow`."""
    columns: TensorFlowColumns | TensorFlowRows
    if options.transform is None:
        columns = TensorFlowColumns(stream, options.ragged, options.valid_key)
    else:
        columns = TensorFlowRows(stream, options.ragged, options.valid_key, options.transform)
    running = _Pass(stream)

    def begin() -> Any:
        return tf.constant(running.begin(), tf.int64)

    def take(_: Any) -> list[Any]:
        return columns.tensors(running.take())

    def batch(number: Any) -> dict[str, Any]:
        found = tf.py_function(take, [number], [spec.dtype for spec in columns.specs])
        for tensor, spec in zip(found, columns.specs, strict=True):
            tensor.set_shape(spec.shape)
        return columns.named(found)

    def epoch(_: Any) -> Any:
        num_batches = tf.py_function(begin, [], tf.int64)
        num_batches.set_shape(())
        return tf.data.Dataset.range(num_batches).map(plain(batch))

    # Python runs these functions as they are.
    plain = tf.autograph.experimental.do_not_convert
    # Otherwise TensorFlow reads ahead of the loop by itself, also in datasets that are made of this one, so that the
    # state is ahead of the loop too. `prefetch` and `map(…, num_parallel_calls=…)` do so on request.
    settings = tf.data.Options()
    settings.experimental_optimization.inject_prefetch = False
    settings.experimental_optimization.map_parallelization = False
    found = tf.data.Dataset.from_tensors(0).flat_map(plain(epoch)).with_options(settings)
    found.stoker = stream
    return found


class _Pass:
    """One pass over a stream, whose batches are asked for one by one."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._rows: Iterator[Batch] = iter(())
        self._batches: Iterator[Batch] = iter(())

    def begin(self) -> int:
        """Ends the pass that is running, begins the next one, and returns the number of its batches."""
        self._close()
        self._rows = iter(self._stream)
        # A pass begins with its first batch: before, an evaluation tells what is left of the pass before.
        first = list(islice(self._rows, 1))
        self._batches = chain(first, self._rows)
        return len(first) + self._stream.remaining

    def take(self) -> Batch:
        """Returns the next batch. The last one ends the pass."""
        batch = next(self._batches)
        if batch.native.is_last:
            self._close()
        return batch

    def _close(self) -> None:
        close = getattr(self._rows, "close", None)
        if close is not None:
            close()
