"""Streams of training batches, with a state that fits in a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from stoker import _distributed, _native
from stoker._batch import Batch
from stoker._numbers import weight_list, whole
from stoker._passes import passes
from stoker._state_text import state_text
from stoker._stats import StreamStats, stream_stats
from stoker._stream_info import StreamInfo

if TYPE_CHECKING:
    from stoker._jax import JaxLoader
    from stoker._lake import Lake
    from stoker._numpy import NumpyLoader
    from stoker._torch import TorchLoader

__all__ = ["Stream"]

_Value = TypeVar("_Value")

#: The maximum number of workers of a rank.
_WORKERS_MAX = 2**16


class Stream(StreamInfo):
    """The batches of one rank, epoch after epoch: an iterable whose position is kept and can be saved.

    A stream is made by :meth:`Query.stream`. One pass of a ``for`` loop is one epoch:

    - After the end of an epoch, iterating again delivers the next epoch. An epoch ends when the loop has got its last
      batch, whether or not it asks for another one.
    - After a ``break`` or an exception, iterating again continues with the batch after the last one that the loop got.
      :meth:`set_epoch` with another epoch starts that epoch from its beginning.
    - :meth:`set_epoch`, :meth:`load_state_dict`, :meth:`restart`, :meth:`skip` and :meth:`set_weights` may be called
      inside the loop, which then continues at the new position. :meth:`close` ends it.
    - With ``evaluation=True``, every pass delivers the same epoch from its start.
    - Leaving the loop before the end of the epoch stops the native threads and drops their batches. At the end of an
      epoch, the first batches of the next epoch have been prefetched, within a sixteenth of the memory budget and in
      memory that the ending epoch no longer needs; :meth:`close` drops them. The memory of dropped batches is reused,
      or freed after five seconds.

    A stream may be pickled, and its position and the options of the connection (the token too) are pickled with it. It
    may be used after ``fork``: the child opens a connection of its own.

    Example:
        >>> stream = lake.sql("SELECT image, label FROM digits").stream(batch_size=4, seed=7)
        >>> sum(batch.num_valid for batch in stream) == stream.num_rows
        True
    """

    def __init__(self, lake: Lake, session: _native.Session) -> None:
        super().__init__(session)
        self._lake = lake

    def __len__(self) -> int:
        """The number of batches of this epoch, those before a resume included; equal on all ranks."""
        return self._session.num_steps

    def __iter__(self) -> Iterator[Batch]:
        return self.passes(lambda batches: ((batch, batch) for batch in batches))

    def passes(self, convert: Callable[[Iterable[Batch]], Iterable[tuple[Batch, _Value]]]) -> Iterator[_Value]:
        """Iterates as a loop over the stream does, over other values than batches: for adapters to frameworks.

        Args:
            convert: A function that gets the rest of the epoch's batches, and yields each of them in order, with the
                value that the loop gets for it. The function may read ahead of the loop: only batches whose values the
                loop got count as delivered. If the position is changed inside the loop, the function is called again
                with the batches from there on, and its older iterator is dropped.

        Example:
            >>> stream = lake.sql("SELECT label FROM digits").stream(batch_size=4)
            >>> sum(stream.passes(lambda batches: ((batch, batch.num_valid) for batch in batches)))
            20
        """
        return passes(self._session, convert)

    def for_worker(self, worker: int, num_workers: int) -> None:
        """Narrows this stream to one of several workers, which divide each of this rank's batches: for adapters.

        Each worker process narrows a copy of its own. The copy prefetches no further epoch, and has no state.

        Args:
            worker: The number of the worker, zero-based.
            num_workers: The number of workers.

        Raises:
            InvalidRequestError: A number is out of range.
        """
        num_workers = whole("num_workers", num_workers, 1, _WORKERS_MAX)
        self._session.narrow(whole("worker", worker, 0, num_workers - 1), num_workers)

    def torch(self, **options: Any) -> TorchLoader:
        """Returns this stream as an iterable of dicts of PyTorch tensors; both share one position.

        Args:
            **options: ``device``, ``transform``, ``transform_threads``, ``collate_fn``, ``valid_key``,
                ``int64_columns``, ``ragged`` and ``null_masks`` of :meth:`Query.torch`.

        Raises:
            ImportError: PyTorch is not installed.
            InvalidRequestError: The options do not fit the columns.
        """
        from stoker._torch import TorchLoader, TorchOptions

        return TorchLoader(self, TorchOptions(**options))

    def numpy(self, **options: Any) -> NumpyLoader:
        """Returns this stream as an iterable of dicts of NumPy arrays; both share one position.

        Args:
            **options: ``transform``, ``transform_threads``, ``valid_key``, ``ragged`` and ``null_masks`` of
                :meth:`Query.numpy`.

        Raises:
            InvalidRequestError: The options do not fit the columns.
        """
        from stoker._numpy import NumpyLoader, NumpyOptions

        return NumpyLoader(self, NumpyOptions(**options))

    def jax(self, **options: Any) -> JaxLoader:
        """Returns this stream as an iterable of dicts of JAX arrays; both share one position.

        Args:
            **options: ``sharding``, ``transform``, ``transform_threads``, ``valid_key``, ``ragged`` and
                ``null_masks`` of :meth:`Query.jax`.

        Raises:
            ImportError: JAX is not installed.
            InvalidRequestError: The options do not fit the columns.
        """
        from stoker._jax import JaxLoader, JaxOptions

        return JaxLoader(self, JaxOptions(**options))

    def tensorflow(self, **options: Any) -> Any:
        """Returns this stream as a ``tf.data.Dataset`` of dicts of tensors; both share one position.

        Args:
            **options: ``ragged``, ``valid_key`` and ``transform`` of :meth:`Query.tensorflow`.

        Raises:
            ImportError: TensorFlow is not installed.
            InvalidRequestError: The options do not fit the columns.
        """
        from stoker._tensorflow import TensorFlowOptions, dataset

        return dataset(self, TensorFlowOptions(**options))

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the last batch that the loop got: JSON values, the same on all ranks.

        The state takes less than 1 KiB. Prefetched batches do not count. After the last batch of an epoch, the state is
        the start of the next epoch. The state names the snapshots, so that it pins the data; if the lake cannot be
        written, the state contains the whole specification of the stream, which may take more.

        Raises:
            InvalidRequestError: This is the copy of a ``DataLoader`` worker, which sees only a part of the batches.

        Example:
            >>> stream = lake.sql("SELECT label FROM digits").stream(batch_size=4)
            >>> batch = next(iter(stream))
            >>> stream.state_dict()["position"]
            4
        """
        state: dict[str, Any] = self._session.state()
        return state

    def load_state_dict(self, state: Mapping[str, Any] | str) -> None:
        """Continues after the state's position. Batch size and world size may differ from those of the saving job.

        A state that was saved after the last batch of an epoch continues with the next epoch. A state of the same query
        written differently, in spaces or the case of keywords, is accepted; the stream then takes over the state's
        stream id. For a state of an older version of the tables, see :meth:`Lake.resume`.

        Args:
            state: The return value of :meth:`state_dict`, or its JSON text.

        Raises:
            StateMismatchError: The state belongs to other data, another query, seed or order; the message lists the
                differences.
            InvalidRequestError: The value is not a state.
        """
        self._session.load_state(state_text(state))

    def set_epoch(self, epoch: int) -> None:
        """Starts an epoch from its beginning. For the current epoch, even a resumed one, it does nothing.

        If a loaded state ended this epoch, nothing of it is left: the next pass is empty, and the pass after it
        delivers the next epoch.

        Raises:
            InvalidRequestError: The epoch is negative.
        """
        self._session.set_epoch(whole("epoch", epoch, 0))

    def restart(self) -> None:
        """Returns to the start of the epoch that iterating delivers, and to the number of its first step."""
        self._session.restart()

    def skip(self, steps: int) -> int:
        """Skips the next global batches of this epoch; all ranks must skip the same number at the same step.

        The number of the next step does not change, and its rows are those after the skipped ones. Receipts, states and
        the run log record what was skipped.

        Args:
            steps: The number of global batches to skip.

        Returns:
            The number of skipped global batches, which is smaller if the epoch ends.

        Example:
            >>> stream = lake.sql("SELECT label FROM digits").stream(batch_size=4)
            >>> stream.skip(2), stream.step, next(iter(stream)).cursor.position
            (2, 0, 12)
        """
        return self._session.skip(whole("steps", steps, 0))

    def set_weights(self, weights: Sequence[float]) -> None:
        """Changes the shares of a mixture's queries from the next step on; all ranks must do so at the same step.

        Delivered rows stay delivered: each query continues at its own position. The new weights are part of the state,
        and a stream with the old weights takes them over when it loads that state.

        Args:
            weights: One weight for each query, in the order of :func:`stoker.mix`; they need not add up to one.

        Raises:
            InvalidRequestError: The stream is not a mixture, or the weights do not fit it.

        Example:
            >>> query = lake.sql("SELECT image FROM digits")
            >>> stream = stoker.mix([(query, 0.5), (query, 0.5)]).stream(batch_size=4)
            >>> stream.set_weights([0.75, 0.25])
            >>> [batch.source.tolist().count(0) for batch in stream][:3]
            [3, 3, 3]
        """
        self._session.set_weights(weight_list(weights))

    def stats(self) -> StreamStats:
        """Returns the counters of the running pass or, if none is running, of the last pass.

        Example:
            >>> stream = lake.sql("SELECT image FROM digits").stream(batch_size=4)
            >>> for batch in stream:
            ...     pass
            >>> stats = stream.stats()
            >>> stats.rows
            20
            >>> sorted(stats.stalls)
            ['consumer', 'decode', 'network', 'storage']
            >>> stats.stalls["network"].share
            0.0
        """
        return stream_stats(self._session.stats())

    def receipt(self) -> dict[str, Any]:
        """Returns the receipt of the loops over this object, as JSON values.

        It has ranges of positions, and a checksum over the rows of each range. The receipts of all ranks together prove
        that each row of an epoch was delivered exactly once: ``stoker verify`` and :meth:`Lake.verify` check them.
        After a resume, the receipt that was saved with the state covers the steps before the interruption, and this one
        the steps after it. For an evaluation, the receipt covers the running or, if none is running, the last pass.

        Example:
            >>> stream = lake.sql("SELECT label FROM digits").stream(batch_size=4)
            >>> for batch in stream:
            ...     pass
            >>> [verdict.is_exactly_once for verdict in lake.verify([stream.receipt()])]
            [True]
        """
        receipt: dict[str, Any] = self._session.receipt()
        return receipt

    def substituted(self) -> list[dict[str, Any]]:
        """Returns the bad rows that another row replaced in loops over this object.

        Each bad row is a dict of epoch, position, addresses by table, and reason. If ``torch.distributed`` is
        initialised, this is a collective call, which returns the bad rows of all ranks in ascending order.
        """
        rows = _distributed.gather(self._session.substituted())
        return sorted(rows, key=lambda row: (row["epoch"], row["position"]))

    def close(self) -> None:
        """Ends the running pass, if there is one, and drops its batches. The position is kept."""
        self._session.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"lake": self._lake, "session": self._session.save()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._lake = state["lake"]
        self._session = _native.Session.restored(self._lake._native, state["session"])

    def __repr__(self) -> str:
        session = self._session
        where = f"epoch={session.epoch}, position={session.position}, rank={self.rank}, world_size={self.world_size}"
        return f"Stream({self.stream_id[:8]}, rows={self.num_rows}, {where})"
