"""What the loaders of all frameworks have in common: the position of their stream, and what the stream tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stoker._stats import StreamStats
from stoker._stream import Stream

__all__ = ["LoaderRows", "StreamLoader"]


class StreamLoader:
    """A loader over a stream. Both share one position; passes, breaks and epochs work as for :class:`Stream`."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream

    @property
    def stream(self) -> Stream:
        """The stream that this loader reads, with its id, snapshots, schema and rank."""
        return self._stream

    @property
    def epoch(self) -> int:
        """The epoch that iterating delivers, zero-based; after a pass has ended, the next epoch."""
        return self._stream.epoch

    @property
    def num_rows(self) -> int:
        """The number of rows of an epoch over all ranks."""
        return self._stream.num_rows

    @property
    def batch_size(self) -> int:
        """The maximum number of rows of this rank's batches."""
        return self._stream.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether the last global batch is left out if it is not full."""
        return self._stream.drop_last

    @property
    def remaining(self) -> int:
        """The number of batches that are left in this epoch, equal on all ranks."""
        return self._stream.remaining

    def __len__(self) -> int:
        """The number of batches of this epoch, equal on all ranks."""
        return len(self._stream)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the last batch that the loop got; see :meth:`Stream.state_dict`."""
        return self._stream.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | str) -> None:
        """Continues after the state's position; see :meth:`Stream.load_state_dict`.

        Raises:
            StateMismatchError: The state belongs to another stream.
        """
        self._stream.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """Starts an epoch from its beginning, unless it is the current epoch; see :meth:`Stream.set_epoch`."""
        self._stream.set_epoch(epoch)

    def restart(self) -> None:
        """Returns to the start of the epoch that iterating delivers; see :meth:`Stream.restart`."""
        self._stream.restart()

    def skip(self, steps: int) -> int:
        """Skips the next global batches of this epoch; see :meth:`Stream.skip`."""
        return self._stream.skip(steps)

    def set_weights(self, weights: Sequence[float]) -> None:
        """Changes the shares of a mixture's queries from the next step on; see :meth:`Stream.set_weights`."""
        self._stream.set_weights(weights)

    def stats(self) -> StreamStats:
        """Returns the counters of the running pass or, if none is running, of the last pass."""
        return self._stream.stats()

    def receipt(self) -> dict[str, Any]:
        """Returns the receipt of the loops over this loader; see :meth:`Stream.receipt`."""
        return self._stream.receipt()

    def substituted(self) -> list[dict[str, Any]]:
        """Returns the bad rows that another row replaced; see :meth:`Stream.substituted`."""
        return self._stream.substituted()

    def close(self) -> None:
        """Ends the running pass, if there is one, and drops the prefetched batches."""
        self._stream.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._stream!r})"


class LoaderRows:
    """The rows of an epoch, of which only the number is known."""

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows

    def __len__(self) -> int:
        return self._num_rows
