"""The rows as Arrow record batches, for systems that write their data from these."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from harness.dataset import Dataset
from harness.rows import RowKind

__all__ = ["reader"]


def reader(dataset: Dataset) -> pa.RecordBatchReader:
    """Returns a reader of all rows in order, with the columns ``tensor``, ``label`` and ``score``."""
    schema = _schema(dataset.kind)
    return pa.RecordBatchReader.from_batches(schema, _record_batches(dataset, schema))


def _schema(kind: RowKind) -> pa.Schema:
    tensor = pa.fixed_shape_tensor(pa.from_numpy_dtype(kind.dtype), kind.shape)
    return pa.schema(
        [
            pa.field("tensor", tensor, nullable=False),
            pa.field("label", pa.int64(), nullable=False),
            pa.field("score", pa.int32(), nullable=False),
        ]
    )


def _record_batches(dataset: Dataset, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    tensor = schema.field("tensor").type
    for block in dataset.blocks():
        values = pa.FixedSizeListArray.from_arrays(pa.array(block.tensors.reshape(-1)), tensor.storage_type.list_size)
        tensors = pa.ExtensionArray.from_storage(tensor, values)
        yield pa.RecordBatch.from_arrays([tensors, pa.array(block.labels), pa.array(block.scores)], schema=schema)
