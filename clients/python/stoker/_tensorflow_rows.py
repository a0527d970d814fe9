"""The tensors of TensorFlow that a transform of single rows makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from stoker._batch import Batch
from stoker._errors import InvalidRequestError
from stoker._loader_options import check_keys
from stoker._per_row import PerRow
from stoker._ragged import Layouts, layouts
from stoker._stream_info import StreamInfo
from stoker._tensorflow_columns import tensor

__all__ = ["TensorFlowRows"]


class TensorFlowRows:
    """The tensors of a batch whose rows a transform makes: a flat list, as :class:`TensorFlowColumns` has it.

    Attributes:
        specs: The type and shape of each tensor.
    """

    def __init__(self, stream: StreamInfo, ragged: Layouts, valid_key: str | None, transform: Any) -> None:
        outputs = transform.row_outputs if isinstance(transform, PerRow) else None
        if outputs is None:
            raise InvalidRequestError(
                f"transform is {transform!r}; TensorFlow takes a stoker.PerRow with outputs, the types of its tensors. "
                "Functions of TensorFlow are for the method map of the dataset"
            )
        self._transform: PerRow = transform
        # Rows of different lengths are single arrays here, unless they are padded.
        self._layouts = layouts(stream.schema, None if ragged == "jagged" else ragged)
        check_keys(stream.schema, valid_key, (), self._layouts)
        self._valid_key = valid_key
        self._keys = list(outputs)
        rows = stream.batch_size if stream.has_equal_batches else None
        self.specs = [tf.TensorSpec((rows, *out.shape), tf.as_dtype(out.dtype)) for out in outputs.values()]

    def named(self, tensors: list[Any]) -> dict[str, Any]:
        """Returns the tensors of a flat list by their keys."""
        return dict(zip(self._keys, tensors, strict=True))

    def tensors(self, batch: Batch) -> list[Any]:
        """Returns the tensors of a batch as a flat list."""
        values = batch.arrays(self._layouts)
        if self._valid_key is not None:
            values[self._valid_key] = batch.valid
        made = self._transform.batch(values, batch)
        return [tensor(np.asarray(made[key]), spec) for key, spec in zip(self._keys, self.specs, strict=True)]
