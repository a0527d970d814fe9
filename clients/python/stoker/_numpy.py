"""The NumPy loader, which needs no framework."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stoker._batch import Batch
from stoker._converted import Transform, check_threads, converted, transformed
from stoker._loader import StreamLoader
from stoker._loader_batch import LoaderBatch
from stoker._loader_options import check_functions, check_keys, columns_to_mask
from stoker._masked import mask_key
from stoker._ragged import Layouts, layouts
from stoker._stream import Stream

__all__ = ["NumpyBatch", "NumpyLoader", "NumpyOptions"]


@dataclass(frozen=True, kw_only=True)
class NumpyOptions:
    """The options that convert the columns of a batch; see :meth:`Query.numpy`."""

    transform: Transform | None = None
    transform_threads: int = 0
    valid_key: str | None = None
    ragged: Layouts = None
    null_masks: Sequence[str] | bool = ()


class NumpyBatch(LoaderBatch):
    """A dict of NumPy arrays that also has the cursor and the mask of its batch."""

    _made_by = "numpy"

    @property
    def valid(self) -> np.ndarray[Any, Any]:
        """A bool array of shape ``(rows,)``: False for padding."""
        rows = self.rows
        return np.arange(rows.num_rows) < rows.num_valid


class NumpyLoader(StreamLoader):
    """An iterable of dicts of NumPy arrays, which :meth:`Query.numpy` makes.

    Native threads prefetch batches without Python's global lock. Passes, breaks and epochs work as for :class:`Stream`.

    A batch is a :class:`NumpyBatch`, a dict that maps each column to the array that :class:`Batch` has for it: shape
    ``(rows, *tensor_shape)`` for tensors, ``(rows, size)`` for vectors, ``(rows,)`` for other columns. Numbers are
    read-only views of the Arrow memory. Text and binary values are objects. Rows of different lengths are as ``ragged``
    says. ``batch.valid`` is a bool array of shape ``(rows,)``, which is False for padding, and
    ``batch.is_valid(column)`` one that is False for nulls.

    A loader may be pickled and used after ``fork``.

    Example:
        >>> loader = lake.sql("SELECT image, label FROM digits").numpy(batch_size=4, seed=7, valid_key="valid")
        >>> batch = next(iter(loader))
        >>> batch["image"].shape, batch["valid"].tolist(), batch.cursor.position
        ((4, 1, 8, 8), [True, True, True, True], 4)
    """

    def __init__(self, stream: Stream, options: NumpyOptions) -> None:
        super().__init__(stream)
        check_functions(transform=options.transform)
        self._options, self._num_threads = options, check_threads(options.transform_threads)
        self._layouts = layouts(stream.schema, options.ragged)
        self._masked = columns_to_mask(stream.schema, options.null_masks)
        check_keys(stream.schema, options.valid_key, self._masked, self._layouts)

    def __iter__(self) -> Iterator[Any]:
        return self.stream.passes(self._pairs)

    def _pairs(self, batches: Iterable[Batch]) -> Iterable[tuple[Batch, Any]]:
        return converted(batches, self._value, self._num_threads)

    def _value(self, batch: Batch) -> Any:
        masks = {mask_key(column): batch.is_valid(column) for column in self._masked}
        values: Any = batch.arrays(self._layouts) | masks
        if self._options.valid_key is not None:
            values[self._options.valid_key] = batch.valid
        values = transformed(self._options.transform, values, batch)
        return NumpyBatch.of(values, batch.rows) if isinstance(values, Mapping) else values
