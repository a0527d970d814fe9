"""What a stream tells: its rows, its rank, and where it is."""

from __future__ import annotations

import pyarrow as pa

from stoker import _native

__all__ = ["StreamInfo"]


class StreamInfo:
    """The rows of a stream, the rank that it is read for, and its position."""

    def __init__(self, session: _native.Session) -> None:
        self._session = session

    @property
    def stream_id(self) -> str:
        """The digest of everything that determines rows and order: 64 hexadecimal digits, equal on all ranks."""
        return self._session.stream_id

    @property
    def snapshots(self) -> list[tuple[str, int]]:
        """The pinned tables and their versions."""
        return self._session.snapshots

    @property
    def num_rows(self) -> int:
        """The number of rows of an epoch over all ranks."""
        return self._session.num_rows

    @property
    def schema(self) -> pa.Schema:
        """The columns of a batch; an image column that is decoded is a tensor."""
        return pa.schema(self._session.schema)

    @property
    def rank(self) -> int:
        """The rank of this process, zero-based."""
        return self._session.rank

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self._session.world_size

    @property
    def epoch(self) -> int:
        """The epoch that iterating delivers, zero-based; inside a loop, the epoch of its batches."""
        return self._session.epoch

    @property
    def batch_size(self) -> int:
        """The maximum number of rows of this rank's batches; for a stream of buckets, the number of buckets: 1."""
        return self._session.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether the last global batch is left out if it is not full."""
        return self._session.last_batch == "drop"

    @property
    def has_equal_batches(self) -> bool:
        """Whether all batches of all ranks have the same number of rows, padding included."""
        return self._session.has_equal_batches

    @property
    def remaining(self) -> int:
        """The number of batches that are left in this epoch, equal on all ranks."""
        return self._session.remaining

    @property
    def step(self) -> int:
        """The number of the next step: the global batches since the start of the training, over all epochs."""
        return self._session.step

    @property
    def weights(self) -> list[float] | None:
        """The current share of each query of a mixture, as the stream stores it; ``None`` for one query."""
        return self._session.weights
