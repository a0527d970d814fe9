"""The tensors of TensorFlow that the columns of a stream become."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from stoker._batch import Batch
from stoker._column_shapes import ColumnShape, column_shapes
from stoker._errors import InvalidRequestError
from stoker._loader_options import check_keys
from stoker._nulls import NULL_ROW, warn_of_nulls
from stoker._ragged import Layout, Layouts, Pad, layouts, numpy_values, padding_of, ragged_rows
from stoker._stream_info import StreamInfo

__all__ = ["TensorFlowColumns", "tensor"]

#: The alignment of memory that TensorFlow takes, in bytes.
_ALIGNMENT = 64


class TensorFlowColumns:
    """The tensors of a batch: a flat list, in which a ragged column has two places, its values and its offsets.

    Attributes:
        specs: The type and shape of each tensor.
    """

    def __init__(self, stream: StreamInfo, ragged: Layouts, valid_key: str | None) -> None:
        schema = stream.schema
        self._layouts = layouts(schema, ragged)
        check_keys(schema, valid_key, (), self._layouts)
        self._valid_key = valid_key
        self._shapes = dict(zip(schema.names, column_shapes(schema), strict=True))
        self._rows = stream.batch_size if stream.has_equal_batches else None
        self.specs: list[Any] = []
        self._keys: list[str] = []
        self._ragged: set[str] = set()
        for field in schema:
            self._add(field, self._shapes[field.name])
        if valid_key is not None:
            self._put(valid_key, tf.bool, ())

    def named(self, tensors: list[Any]) -> dict[str, Any]:
        """Returns the columns of a flat list of tensors."""
        rest = iter(tensors)
        found = {}
        for key in self._keys:
            values = next(rest)
            if key in self._ragged:
                values = tf.RaggedTensor.from_row_splits(values, next(rest), validate=False)
            found[key] = values
        return found

    def tensors(self, batch: Batch) -> list[Any]:
        """Returns the tensors of a batch as a flat list."""
        values: dict[str, Any] = {} if self._valid_key is None else {self._valid_key: batch.valid}
        for index, (name, shape) in enumerate(self._shapes.items()):
            layout: Layout | None = self._layouts.get(name)
            if layout is None:
                values[name] = batch[name]
                continue
            warn_of_nulls(batch.rows, name, NULL_ROW)
            if layout == "jagged":
                rows = ragged_rows(batch.native, index, shape)
                values[name] = (rows.values, rows.offsets[0])
            else:
                values.update(numpy_values(batch.native, index, name, shape, layout))
        flat = [part for key in self._keys for part in (values[key] if key in self._ragged else (values[key],))]
        return [tensor(value, spec) for value, spec in zip(flat, self.specs, strict=True)]

    def _add(self, field: pa.Field, shape: ColumnShape) -> None:
        name, layout = field.name, self._layouts.get(field.name)
        if layout is None:
            self._put(name, _type_of(field, shape), shape.shape)
            return
        padding = padding_of(layout)
        if padding is not None:
            self._add_padded(name, shape, padding)
        elif layout == "jagged" and shape.levels == 1:
            self._ragged.add(name)
            self._keys.append(name)
            self.specs.append(tf.TensorSpec((None, *shape.shape), _number(shape)))
            # A ragged tensor of a fixed number of rows has a fixed number of offsets.
            num_offsets = None if self._rows is None else self._rows + 1
            self.specs.append(tf.TensorSpec((num_offsets,), tf.int64))
        else:
            raise InvalidRequestError(
                f"ragged is {layout!r} for column {name}; TensorFlow has 'jagged' for lists of one level, and 'pad'"
            )

    def _add_padded(self, name: str, shape: ColumnShape, padding: Pad) -> None:
        num_dims = shape.levels or len(shape.sizes or ())
        sizes = (padding.length, *[None] * (num_dims - 1))
        self._put(name, _number(shape), (*sizes, *shape.shape))
        if padding.lengths is not None:
            self._put(padding.lengths, tf.int64, () if shape.sizes is None else (num_dims,))
        if padding.mask is not None:
            self._put(padding.mask, tf.bool, sizes)

    def _put(self, key: str, dtype: Any, shape: tuple[int | None, ...]) -> None:
        self._keys.append(key)
        self.specs.append(tf.TensorSpec((self._rows, *shape), dtype))


def tensor(values: np.ndarray[Any, Any], spec: Any) -> Any:
    """Returns an array as a tensor, which shares its memory where TensorFlow can."""
    if values.dtype.kind in "mM":
        values = values.view(np.int64)
    elif values.dtype == object:
        values = np.array(["" if value is None else value for value in values], dtype=object)
    if _is_shared(values, spec):
        return tf.experimental.dlpack.from_dlpack(_writable(values).__dlpack__())
    return tf.convert_to_tensor(values, spec.dtype)


def _is_shared(values: np.ndarray[Any, Any], spec: Any) -> bool:
    """Returns whether TensorFlow takes the memory of an array."""
    is_number = values.dtype.kind in "iuf" and tf.as_dtype(values.dtype) == spec.dtype
    is_aligned = values.flags.c_contiguous and values.ctypes.data % _ALIGNMENT == 0
    return is_number and is_aligned and values.size > 0


def _writable(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns an array of the same memory that says it is writable, because DLPack has no word for other memory.

    TensorFlow does not write to memory that it does not own.
    """
    if values.flags.writeable:
        return values
    memory: Any = (ctypes.c_uint8 * values.nbytes).from_address(values.ctypes.data)
    memory.owner = values  # keeps the memory
    return np.frombuffer(memory, values.dtype).reshape(values.shape)


def _number(shape: ColumnShape) -> Any:
    return tf.as_dtype(shape.small_float or shape.dtype)


def _type_of(field: pa.Field, shape: ColumnShape) -> Any:
    """Returns the type of the tensor of a column whose rows have one shape."""
    if shape.dtype is not None:
        return tf.int64 if shape.dtype.kind in "mM" else _number(shape)
    if shape.kind in ("text", "binary", "encoded_image", "encoded_video", "video_index"):
        return tf.string
    raise InvalidRequestError(f"column {field.name} holds {field.type}, which TensorFlow has no tensors for")
