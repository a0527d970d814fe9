"""Datasets of Hugging Face's package ``datasets``, which is not imported before one is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from stoker._errors import InvalidRequestError, StokerError
from stoker._refused import refused
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
    schema = features.arrow_schema

    def batches() -> Iterator[pa.RecordBatch]:
        first_row = 0
        for rows in data.with_format("arrow").iter(batch_size=_BATCH_ROWS):
            table = (pa.table(rows) if isinstance(rows, dict) else rows).cast(schema)
            yield from _embedded(table, first_row).cast(schema).to_batches()
            first_row += table.num_rows

    return pa.RecordBatchReader.from_batches(schema, noting(_told(batches()), failures))


def _told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields batches. What a dataset raises, for example in a function of its own, becomes an error of Stoker."""
    try:
        yield from batches
    except StokerError:
        raise
    except Exception as failed:
        raise InvalidRequestError(f"the dataset raised {type(failed).__name__}: {failed}") from failed


def _embedded(table: pa.Table, first_row: int) -> pa.Table:
    """Reads the files that rows name by their paths.

    Raises:
        InvalidRequestError: A file cannot be read; the message names column and row.
    """
    from datasets.table import embed_table_storage

    try:
        return embed_table_storage(table)
    except Exception as failed:
        for name in table.column_names:
            for row in range(table.num_rows):
                try:
                    embed_table_storage(table.select([name]).slice(row, 1))
                except Exception as reason:
                    raise refused(name, first_row + row, "a file", str(reason)) from failed
        raise
