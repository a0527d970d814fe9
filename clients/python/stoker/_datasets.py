"""Datasets of Hugging Face's package ``datasets``, which is not imported before one is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from stoker._errors import InvalidRequestError
from stoker._row_batches import noting

__all__ = ["dataset_reader", "is_dataset"]

#: The rows that are read at once. A batch of images is in memory twice.
_BATCH_ROWS = 256


def is_dataset(data: object) -> bool:
    """Whether data is of the package ``datasets``."""
    return type(data).__module__.partition(".")[0] == "datasets"


def dataset_reader(data: Any, failures: list[BaseException]) -> pa.RecordBatchReader:
    """Returns the rows of a dataset with its features in the metadata of the schema, by which the engine converts them.

    Files to which rows refer by their paths are read into the rows.

    Raises:
        InvalidRequestError: The data is a dict of splits, or a stream whose features are not known.
    """
    if isinstance(data, dict):
        raise InvalidRequestError(
            f"cannot write a {type(data).__qualname__}, which has the splits {list(data)}: write one of them"
        )
    if not hasattr(data, "with_format") or not hasattr(data, "features"):
        raise InvalidRequestError(
            f"cannot write a datasets.{type(data).__qualname__}; use a Dataset or IterableDataset"
        )
    features = data.features
    if features is None:
        raise InvalidRequestError(
            "the features of this datasets.IterableDataset are not known: set them with data.cast(features)"
        )
    from datasets.table import embed_table_storage

    schema = features.arrow_schema

    def batches() -> Iterator[pa.RecordBatch]:
        for rows in data.with_format("arrow").iter(batch_size=_BATCH_ROWS):
            table = pa.table(rows) if isinstance(rows, dict) else rows
            yield from embed_table_storage(table.cast(schema)).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, noting(batches(), failures))
