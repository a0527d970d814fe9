"""Streams of training batches, with a state that fits in a checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from stoker import _distributed, _native
from stoker._batch import Batch
from stoker._config import SliceConfig
from stoker._errors import InvalidRequestError, StokerError
from stoker._numbers import weight_list, whole
from stoker._place import Place
from stoker._record import Receipts, log_bad_rows, log_place
from stoker._stats import StreamStats, stream_stats

if TYPE_CHECKING:
    from stoker._lake import Lake
    from stoker._torch import TorchLoader

__all__ = ["Stream", "state_text"]

_Value = TypeVar("_Value")


class _Pass:
    """One pass of a loop, with a flag that says whether the pass was closed."""

    def __init__(self) -> None:
        self.is_closed = False


class Stream:
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

    def __init__(self, lake: Lake, handle: _native.StreamHandle, config: SliceConfig, epoch: int) -> None:
        self._lake = lake
        self._config = config
        self._handle: _native.StreamHandle | None = handle
        self._pinned = handle.pinned_state()
        self._open: _native.SampleStream | None = None
        self._ahead: tuple[int, _native.SliceRequest, _native.SampleStream] | None = None
        self._opens_ahead = True
        self._running: _Pass | None = None
        self._counters: dict[str, int | None] = {}
        self._receipts = Receipts()
        self._place_changes = 0
        self._event: str | None = None
        # The epoch before the current position, if a state says that it has ended: `set_epoch` must not begin it again.
        self._ended_epoch: int | None = None
        self._goes_on = False  # whether the next pass of an evaluation continues at the current position
        self._is_in_worker = False
        self._place = Place.start_of(epoch, 0, config.global_batch)
        self._num_steps = 0
        self._begin(self._place, "epoch")
        self._schema()

    @property
    def stream_id(self) -> str:
        """The digest of everything that determines rows and order: 64 hexadecimal digits, equal on all ranks."""
        return self._stream().stream_id

    @property
    def snapshots(self) -> list[tuple[str, int]]:
        """The pinned tables and their versions."""
        return self._stream().snapshots

    @property
    def num_rows(self) -> int:
        """The number of rows of an epoch over all ranks."""
        return self._stream().num_rows

    @property
    def schema(self) -> pa.Schema:
        """The columns of a batch; an image column that is decoded is a tensor."""
        return pa.schema(self._schema())

    @property
    def rank(self) -> int:
        """The rank of this process, zero-based."""
        return self._config.rank

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self._config.world_size

    @property
    def epoch(self) -> int:
        """The epoch that iterating delivers, zero-based; inside a loop, the epoch of its batches."""
        return self._place.epoch

    def __len__(self) -> int:
        """The number of batches of this epoch, those before a resume included; equal on all ranks."""
        return self._place.steps_before_origin + self._num_steps

    @property
    def remaining(self) -> int:
        """The number of batches that are left in this epoch, equal on all ranks."""
        return max(self._num_steps - self._place.next_step, 0)

    @property
    def step(self) -> int:
        """The number of the next step: the global batches since the start of the training, over all epochs."""
        return self._place.step

    @property
    def weights(self) -> list[float] | None:
        """The current share of each query of a mixture, as the stream stores it; ``None`` for one query."""
        segments = self._stream().weights
        draw = self._place.epoch * self.num_rows + self._place.position
        current = [weights for start, weights in segments if start <= draw]
        return current[-1] if current else None

    def __iter__(self) -> Iterator[Batch]:
        return self._iterate(lambda batches: ((batch, batch) for batch in batches))

    def torch(self, **options: Any) -> TorchLoader:
        """Returns this stream as an iterable of dicts of PyTorch tensors; both share one position.

        Args:
            **options: ``device``, ``transform``, ``collate_fn``, ``valid_key`` and ``int64_columns`` of
                :meth:`Query.torch`.

        Raises:
            ImportError: PyTorch is not installed.
            InvalidRequestError: The options do not fit the columns.
        """
        from stoker._torch import TorchLoader, TorchOptions

        return TorchLoader(self, TorchOptions(**options))

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
        if self._is_in_worker:
            raise InvalidRequestError(
                "a worker process of a DataLoader has no state of the stream: each worker sees a part of the batches, "
                "and some that wait to be taken; use num_workers=0 (the loader reads ahead by itself) and save the "
                "loader's state_dict() in the training process"
            )
        place = self._place
        following = self._following() if self._is_finished() else place
        # After the last batch, the log is still that of the epoch which ended: it tells that this epoch is over.
        text = self._stream().state(following.epoch, following.position, following.step, place.log)
        state: dict[str, Any] = json.loads(text)
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
        text = state_text(state)
        (epoch, position, step, log), stored = self._stream().check(text)
        self._drop()
        if stored is not None:
            self._use(stored)
        self._receipts = Receipts()
        size = self._config.global_batch
        if position == 0 and log and log[-1][0] < step:
            # The state was saved after the last batch of the epoch before, and has the log of that epoch.
            self._begin(Place.start_of(epoch, step, size), "resume")
            self._ended_epoch = epoch - 1
        else:
            self._begin(Place.resumed(epoch, position, step, log, size), "resume")
            if self._is_finished():
                self._begin(self._following(), "resume")
                self._ended_epoch = epoch
        self._goes_on = True

    def set_epoch(self, epoch: int) -> None:
        """Starts an epoch from its beginning. For the current epoch, even a resumed one, it does nothing.

        If a loaded state ended this epoch, nothing of it is left: the next pass is empty, and the pass after it
        delivers the next epoch.

        Raises:
            InvalidRequestError: The epoch is negative.
        """
        epoch = whole("epoch", epoch, 0)
        if self._is_finished() and epoch != self._place.epoch:
            self._settle()
        if epoch == self._place.epoch:
            return
        ended = self._ended_epoch
        self._drop()
        self._begin(Place.start_of(epoch, self.step, self._config.global_batch), "epoch")
        if epoch == ended:
            self._place = replace(self._place, origin=self.num_rows, position=self.num_rows)
            self._num_steps = 0
            self._ended_epoch = epoch

    def restart(self) -> None:
        """Returns to the start of the epoch that iterating delivers, and to the number of its first step."""
        if self._is_finished() and self._running is None:
            self._settle()
        place = self._place
        self._drop()
        self._begin(Place.start_of(place.epoch, place.log[0][0], self._config.global_batch), "epoch")

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
        steps = min(whole("steps", steps, 0), self.remaining)
        if steps == 0:
            return 0
        place, size = self._place, self._config.global_batch
        end = min(place.position + steps * size, self.num_rows)
        self._drop()
        self._receipts.skip(place.epoch, place.position, end)
        self._begin(Place.resumed(place.epoch, end, place.step, place.log, size), "skip")
        self._goes_on = True
        if self._is_finished():
            self._ended_epoch = place.epoch  # the next pass is the rest of this epoch, which is empty
        return steps

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
        place = self._place
        handle = self._stream().reweigh(place.epoch, place.position, weight_list(weights))
        self._drop()
        self._use(handle)
        size = self._config.global_batch
        self._begin(Place.resumed(place.epoch, place.position, place.step, place.log, size), "weights")
        self._goes_on = True

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
        if self._open is not None:
            self._counters = self._open.stats()
        return stream_stats(self._counters)

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
        return self._receipts.document(self.stream_id, self._open, self._place.next_step)

    def substituted(self) -> list[dict[str, Any]]:
        """Returns the bad rows that another row replaced in loops over this object.

        Each bad row is a dict of epoch, position, addresses by table, and reason. If ``torch.distributed`` is
        initialised, this is a collective call, which returns the bad rows of all ranks in ascending order.
        """
        rows = [
            {"epoch": part["epoch"], **row} for part in self.receipt()["parts"] for row in part.get("substituted", [])
        ]
        return sorted(_distributed.gather(rows), key=lambda row: (row["epoch"], row["position"]))

    def close(self) -> None:
        """Ends the running pass, if there is one, and drops its batches. The position is kept."""
        if self._running is not None:
            self._running.is_closed = True
        self._drop()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handle": None, "_open": None, "_ahead": None, "_running": None}

    def __repr__(self) -> str:
        place = self._place
        where = f"epoch={place.epoch}, position={place.position}, rank={self.rank}, world_size={self.world_size}"
        return f"Stream({self.stream_id[:8]}, rows={self.num_rows}, {where})"

    def _iterate(self, made: Callable[[Iterable[Batch]], Iterable[tuple[Batch, _Value]]]) -> Iterator[_Value]:
        """Yields the rest of the epoch. ``made`` may run ahead of the loop; only yielded batches count as delivered."""
        this, ended = self._enter(), False
        try:
            while not this.is_closed:
                changes = self._place_changes
                for batch, value in made(self._batches(this)):
                    place = self._place.after(batch.step - self._place.first_step, batch.cursor.position)
                    if place.next_step >= self._num_steps:
                        self._note_bad_rows(place)
                    # Nothing may come between these two lines: Ctrl-C there would lose the batch, or repeat it.
                    self._place = place
                    yield value
                    self._check(this)
                    if this.is_closed or self._place_changes != changes:
                        break
                else:
                    if not this.is_closed:
                        self._settle(always=True)
                        ended = True
                    return
        finally:
            self._leave(this, ended)

    def _enter(self) -> _Pass:
        """Begins a pass, and ends a running one."""
        self._close_running()
        if self._config.evaluation and not self._goes_on:
            self._receipts = Receipts()
            self._begin(Place.start_of(self._place.epoch, 0, self._config.global_batch), "epoch")
        elif self._is_finished() and self._ended_epoch != self._place.epoch:
            self._settle()
        self._goes_on = False
        self._running = _Pass()
        return self._running

    def _leave(self, this: _Pass, ended: bool) -> None:
        """Cleans up after a pass, unless a newer one has begun. The prefetched next epoch is kept if this one ended."""
        if self._running is not this:
            return
        self._running = None
        self._close_running()
        if self._is_finished():
            self._settle()
        elif not ended:
            self._close_ahead()

    def _check(self, this: _Pass) -> None:
        if self._running is not this and not this.is_closed:
            raise InvalidRequestError(
                "a newer iterator over this loader took over, and this one ended: a loader has one place, so that "
                "loops over it cannot take turns; make a second loader for a second loop"
            )

    def _batches(self, this: _Pass) -> Iterator[Batch]:
        """Yields the rest of the epoch without changing the position."""
        self._close_running()
        self._note_run()
        place, pid = self._place, os.getpid()
        step = place.next_step
        (running, early), ended = self._opened(step), False
        try:
            while True:
                if os.getpid() != pid:  # the loop's body forked: the parent's threads do not exist in this child
                    pid = os.getpid()
                    running, early = self._opened(step)
                try:
                    native = running.next(self._place.next_step, self._open_ahead)
                except StokerError:
                    self._check(this)
                    if this.is_closed:
                        return
                    if not early:
                        raise
                    running, early = self._opened(step)  # what made the prefetch fail may be over
                    continue
                early = False
                if native is None or running.is_read():
                    self._open_ahead()
                if native is None:
                    ended = True
                    return
                step = native.place.step + 1
                yield Batch(native, self._stream(), place.first_step)
        finally:
            if self._open is running and not ended:
                self._close_running()
            running.close()

    def _opened(self, step: int) -> tuple[_native.SampleStream, bool]:
        """Opens the rest of the epoch; returns also whether it was opened as a prefetch."""
        request = self._slice()
        request["first_step"] = step
        if self._open is not None:
            self._receipts.add(self._open, self._place.next_step)
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[:2] == (os.getpid(), request):
            self._open = ahead[2]
            self._open.begin(self._read())
            return self._open, True
        if ahead is not None:
            ahead[2].close()
        self._open = self._stream().open(request, self._read(), self._config.decode)
        return self._open, False

    def _open_ahead(self) -> None:
        """Opens the next epoch as a prefetch, unless that was done or the next epoch is not needed."""
        if self._ahead is not None or not self._opens_ahead:
            return
        epoch = self._following().epoch
        request: _native.SliceRequest = {**self._slice(), "epoch": epoch, "origin": 0, "first_step": 0}
        read: _native.ReadRequest = {**self._read(), "ahead": True}
        try:
            stream = self._stream().open(request, read, self._config.decode)
        except StokerError:
            return  # the loop that needs the epoch opens it again, and reports the error then
        self._ahead = (os.getpid(), request, stream)

    def _drop(self) -> None:
        """Closes the streams that are being read. A running loop continues at the current position."""
        self._close_running()
        self._close_ahead()

    def _close_running(self) -> None:
        if self._open is not None:
            self._open.close()
            self._counters = self._open.stats()
            self._receipts.add(self._open, self._place.next_step)
            self._open = None

    def _close_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead[2].close()

    def _read(self) -> _native.ReadRequest:
        config = self._config
        return {
            "memory_budget_bytes": config.memory_budget_bytes,
            "bad_rows": config.bad_rows,
            "max_bad_share": config.max_bad_share,
            "verify": config.verify,
            "retry_budget_secs": config.retry_budget_secs,
            "compression": config.compression,
            "ahead": False,
        }

    def _schema(self) -> _native.ArrowSchema:
        """Returns the columns of a batch. Raises for columns that cannot be decoded."""
        decode = self._config.decode
        return self._stream().schema if decode is None else self._stream().decoded_schema(decode)

    def _note_run(self) -> None:
        """Writes an entry of the run log if the steps do not follow from the entry before."""
        config = self._config
        if self._event is not None and config.run_id is not None and config.rank == 0:
            policy = (config.last_batch, config.world_size)
            log_place(self._lake, config.run_id, self._event, self.stream_id, self._place, policy)
            self._event = None

    def _note_bad_rows(self, place: Place) -> None:
        """Adds the rows that this rank substituted in the epoch to the table of bad rows, if the run is logged."""
        if self._config.run_id is not None:
            receipt = self._receipts.document(self.stream_id, self._open, place.next_step)
            log_bad_rows(self._lake, self._config.run_id, self._stream(), place.epoch, receipt)

    def _is_finished(self) -> bool:
        """Whether the loop has got the last batch of the epoch."""
        return self._place.is_begun and self._place.next_step >= self._num_steps

    def _following(self) -> Place:
        """Returns the start of the pass after this epoch."""
        size = self._config.global_batch
        if self._config.evaluation:
            return Place.start_of(self._place.epoch, 0, size)
        return Place.start_of(self._place.epoch + 1, self._place.step, size)

    def _settle(self, *, always: bool = False) -> None:
        """Continues with the next epoch if the loop has got the last batch of this one."""
        if always or self._is_finished():
            self._close_running()
            with suppress(InvalidRequestError):  # after the largest epoch number, the next pass raises this error
                self._begin(self._following(), "epoch")

    def _begin(self, place: Place, event: str) -> None:
        """Sets the position, other than by a delivered batch."""
        self._place = place
        self._num_steps = 0
        self._event = event
        self._ended_epoch = None
        self._place_changes += 1
        self._num_steps = self._stream().num_steps(self._slice())[0]  # raises for a slice that cannot be opened

    def _use(self, handle: _native.StreamHandle) -> None:
        self._handle, self._pinned = handle, handle.pinned_state()

    def _slice(self) -> _native.SliceRequest:
        config = self._config
        return {
            "rank": config.rank,
            "world_size": config.world_size,
            "batch_size": config.batch_size,
            "global_batch_size": config.global_batch_size,
            "last_batch": config.last_batch,
            "epoch": self._place.epoch,
            "origin": self._place.origin,
            "first_step": self._place.next_step,
        }

    def _for_worker(self, worker: int, num_workers: int) -> None:
        """Narrows this copy to one of several workers, as a rank of a larger world with the same global batches."""
        config = self._config
        self._opens_ahead = False  # the worker ends with its pass
        self._is_in_worker = True
        self._config = replace(
            config,
            batch_size=None,
            global_batch_size=config.global_batch,
            rank=config.rank + worker * config.world_size,
            world_size=config.world_size * num_workers,
        )

    def _stream(self) -> _native.StreamHandle:
        if self._handle is None:
            self._handle = self._lake._native.load_stream(self._pinned)
        return self._handle


def state_text(state: Mapping[str, Any] | str) -> str:
    """Returns a state as JSON text.

    Raises:
        InvalidRequestError: The state contains values that JSON cannot hold.
    """
    if isinstance(state, str):
        return state
    if not isinstance(state, Mapping):
        raise InvalidRequestError(f"cannot read stream state: it is {type(state).__name__}, not a dict or JSON text")
    try:
        return json.dumps(state)
    except (TypeError, ValueError, RecursionError) as failed:
        raise InvalidRequestError(f"cannot read stream state: {failed}") from failed
