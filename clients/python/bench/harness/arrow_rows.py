"""The rows as Arrow record batches, for systems that write their data from these."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from harness.dataset import Dataset
from harness.rows import IMAGE_BYTES, IMAGE_SHAPE

__all__ = ["SCHEMA", "reader"]

SCHEMA = pa.schema(
    [
        pa.field("image", pa.fixed_shape_tensor(pa.uint8(), IMAGE_SHAPE), nullable=False),
        pa.field("label", pa.int64(), nullable=False),
        pa.field("score", pa.int32(), nullable=False),
    ]
)


def reader(dataset: Dataset) -> pa.RecordBatchReader:
    """Returns a reader of all rows in order, with :data:`SCHEMA`."""
    return pa.RecordBatchReader.from_batches(SCHEMA, _record_batches(dataset))


def _record_batches(dataset: Dataset) -> Iterator[pa.RecordBatch]:
    for block in dataset.blocks():
        values = pa.FixedSizeListArray.from_arrays(pa.array(block.images.reshape(-1)), IMAGE_BYTES)
        images = pa.ExtensionArray.from_storage(SCHEMA.field("image").type, values)
        yield pa.RecordBatch.from_arrays([images, pa.array(block.labels), pa.array(block.scores)], schema=SCHEMA)
