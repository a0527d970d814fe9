"""Streams of training batches, with a state that fits in a checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from stoker import _distributed, _native
from stoker._batch import Batch
from stoker._errors import InvalidRequestError, StokerError
from stoker._numbers import weight_list, whole
from stoker._stats import StreamStats, stream_stats

if TYPE_CHECKING:
    from stoker._lake import Lake

__all__ = ["SliceConfig", "Stream"]

#: The address that stands for a table that does not supply a row.
_NO_ROW = 2**64 - 1


@dataclass(frozen=True)
class SliceConfig:
    """How one rank reads a stream; no row and no order depends on it.

    Attributes:
        batch_size: Rows per rank and batch.
        global_batch_size: Rows of all ranks per batch, instead of ``batch_size``.
        last_batch: ``"pad"``, ``"drop"`` or ``"uneven"``.
        rank: This rank, from zero.
        world_size: Ranks in all.
        memory_budget_bytes: Bytes of batches that are being filled or wait to be taken, at most; ``None`` for 1 GiB.
        bad_rows: ``"error"`` or ``"substitute"``.
        verify: Whether checksums are verified.
        retry_budget_secs: Seconds for which reads are tried again; ``None`` for 120.
        compression: ``"lz4"``, ``"zstd"``, or ``None`` for no compression.
        run_id: The run whose log is written, if it is.
        decode: The columns of images that are decoded; ``None`` for none.
    """

    batch_size: int | None
    global_batch_size: int | None
    last_batch: str
    rank: int
    world_size: int
    memory_budget_bytes: int | None
    bad_rows: str = "error"
    verify: bool = True
    retry_budget_secs: int | None = None
    compression: str | None = None
    run_id: str | None = None
    decode: _native.DecodeRequest | None = None


class Stream:
    """The batches of one rank, epoch after epoch: an iterable whose place is kept and can be saved.

    Made by :meth:`Query.stream`. One pass of a ``for`` loop is one epoch:

    - After the end of an epoch, iterating again delivers the next epoch.
    - After a ``break`` or an exception, iterating again continues with the batch after the last one that the loop got.
      :meth:`set_epoch` with another epoch starts that epoch from its beginning.
    - :meth:`set_epoch`, :meth:`load_state_dict`, :meth:`skip` and :meth:`set_weights` may be called inside the loop,
      which then goes on at the new place.
    - Leaving the loop before the end of the epoch stops the native threads and drops their batches. At the end of an
      epoch, the first batches of the next one wait already, in a sixteenth of the memory budget or in the place of
      those before them; :meth:`close` drops them. The memory of dropped batches is used again, or given back after
      five seconds.

    A stream may be pickled, which takes its place and the options of the connection (its token too) along, and may be
    used after ``fork``: the child opens a connection of its own.

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
        self._counters: dict[str, int | None] = {}
        self._log: list[tuple[int, int, int]] = []
        self._parts: list[dict[str, Any]] = []
        self._skipped: list[dict[str, int]] = []
        self._place_changes = 0
        self._epoch = self._origin = self._position = self._next_step = self._first_step = 0
        self._event: str | None = None
        self._restart(epoch, 0, 0, "epoch")
        handle.num_steps(self._slice())  # raises for invalid options
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
        """Rows of an epoch over all ranks."""
        return self._stream().num_rows

    @property
    def schema(self) -> pa.Schema:
        """The columns of a batch; a column of images that is decoded is a tensor."""
        return pa.schema(self._schema())

    @property
    def rank(self) -> int:
        """This rank, from zero."""
        return self._config.rank

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self._config.world_size

    @property
    def epoch(self) -> int:
        """The epoch that iterating delivers, from zero."""
        return self._epoch

    def __len__(self) -> int:
        """Batches from where the epoch or the last resume began to the end of the epoch; equal on all ranks."""
        return self._stream().num_steps(self._slice())[0]

    @property
    def step(self) -> int:
        """The number of the next step: global batches delivered since the start of the training, over all epochs."""
        return self._first_step + self._next_step

    @property
    def weights(self) -> list[float] | None:
        """The current share of each query of a mixture, as it is kept; ``None`` for one query."""
        segments = self._stream().weights
        draw = self._epoch * self.num_rows + self._position
        current = [weights for start, weights in segments if start <= draw]
        return current[-1] if current else None

    def __iter__(self) -> Iterator[Batch]:
        while True:
            place = self._place_changes
            for batch in self._batches():
                self._handed(batch)
                yield batch
                if self._place_changes != place:
                    break
            else:
                self._end_epoch()
                return

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the last batch that the loop got: JSON values, under 1 KiB, the same on all ranks.

        Batches that were fetched ahead do not count. The state names the snapshots, so that it pins the data; when the
        lake cannot be written, the whole specification of the stream travels in it.

        Example:
            >>> stream = lake.sql("SELECT label FROM digits").stream(batch_size=4)
            >>> batch = next(iter(stream))
            >>> stream.state_dict()["position"]
            4
        """
        log = self._logged()
        state: dict[str, Any] = json.loads(self._stream().state(self._epoch, self._position, self.step, log))
        return state

    def load_state_dict(self, state: Mapping[str, Any] | str) -> None:
        """Continues after the state's position. Batch size and world size may differ from those that saved it.

        Args:
            state: What :meth:`state_dict` returned, or its JSON text.

        Raises:
            StateMismatchError: The state belongs to other data, another query, seed or order; the message has the
                differences.
            InvalidRequestError: This is not a state.
        """
        text = state if isinstance(state, str) else _json(state)
        (epoch, position, step, log), reweighed = self._stream().check(text)
        self.close()
        if reweighed is not None:
            self._use(reweighed)
        self._parts, self._skipped = [], []
        self._restart(epoch, position, step, "resume")
        self._log = log

    def set_epoch(self, epoch: int) -> None:
        """Starts an epoch from its beginning; for the current epoch, also one that was resumed, this does nothing.

        Raises:
            InvalidRequestError: The epoch is negative.
        """
        epoch = whole("epoch", epoch, 0)
        if epoch != self._epoch:
            self.close()
            self._restart(epoch, 0, self.step, "epoch")

    def skip(self, steps: int) -> int:
        """Leaves out the next global batches of this epoch; all ranks must do the same at the same step.

        The number of the next step stays, and its rows are those that come after what was left out. Receipts, states
        and the run log tell what was skipped.

        Args:
            steps: How many global batches.

        Returns:
            How many were skipped: fewer where the epoch ends.

        Example:
            >>> stream = lake.sql("SELECT label FROM digits").stream(batch_size=4)
            >>> stream.skip(2), stream.step, next(iter(stream)).cursor.position
            (2, 0, 12)
        """
        steps = whole("steps", steps, 0)
        total, size = self._stream().num_steps(self._slice())
        steps = min(steps, total - self._next_step)
        if steps <= 0:
            return 0
        self._log = self._logged()
        end = min(self._position + steps * size, self.num_rows)
        self._skipped.append({"epoch": self._epoch, "start": self._position, "end": end})
        log, step = self._log, self.step
        self.close()
        self._restart(self._epoch, end, step, "skip")
        self._log = log
        return steps

    def set_weights(self, weights: Sequence[float]) -> None:
        """Changes the shares of a mixture's queries from the next step on; all ranks must do the same at the same step.

        What was delivered stays delivered: each query goes on where it is. The new weights are part of the state, and a
        stream with the old ones takes them over when it loads that state.

        Args:
            weights: One for each query, in the order of :func:`stoker.mix`; they need not add up to one.

        Raises:
            InvalidRequestError: This is not a mixture, or the weights do not fit it.

        Example:
            >>> query = lake.sql("SELECT image FROM digits")
            >>> stream = stoker.mix([(query, 0.5), (query, 0.5)]).stream(batch_size=4)
            >>> stream.set_weights([0.75, 0.25])
            >>> [batch.source.tolist().count(0) for batch in stream][:3]
            [3, 3, 3]
        """
        handle = self._stream().reweigh(self._epoch, self._position, weight_list(weights))
        log, step = self._logged(), self.step
        self.close()
        self._use(handle)
        self._restart(self._epoch, self._position, step, "weights")
        self._log = log

    def stats(self) -> StreamStats:
        """Returns the counters of the running or else the last pass.

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
        """Returns what loops over this object got, as JSON values: runs of positions with a sum over their rows.

        The receipts of all ranks together prove that an epoch was seen exactly once: ``stoker verify`` and
        :meth:`Lake.verify` check them. After a resume, the receipt that was saved with the state tells of what came
        before, and this one of what came after.

        Example:
            >>> stream = lake.sql("SELECT label FROM digits").stream(batch_size=4)
            >>> for batch in stream:
            ...     pass
            >>> [verdict.is_exactly_once for verdict in lake.verify([stream.receipt()])]
            [True]
        """
        running = [] if self._open is None else json.loads(self._open.receipt())["parts"]
        receipt = {"version": 2, "stream_id": self.stream_id, "parts": [*self._parts, *running]}
        return {**receipt, "skipped": self._skipped} if self._skipped else receipt

    def substituted(self) -> list[dict[str, Any]]:
        """Returns the bad rows in whose place loops over this object got another row.

        Each is a dict of epoch, position, addresses by table, and reason. When ``torch.distributed`` is
        initialised, this is a collective call that returns those of all ranks, ascending.
        """
        rows = [
            {"epoch": part["epoch"], **row} for part in self.receipt()["parts"] for row in part.get("substituted", [])
        ]
        return sorted(_distributed.gather(rows), key=lambda row: (row["epoch"], row["position"]))

    def close(self) -> None:
        """Stops the running pass, if there is one, and drops its batches. The place is kept."""
        self._close_running()
        self._close_ahead()

    def _close_running(self) -> None:
        if self._open is not None:
            self._open.close()
            self._counters = self._open.stats()
            self._keep_receipt()
            self._open = None

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handle": None, "_open": None, "_ahead": None}

    def __repr__(self) -> str:
        place = f"epoch={self._epoch}, position={self._position}, rank={self.rank}, world_size={self.world_size}"
        return f"Stream({self.stream_id[:8]}, rows={self.num_rows}, {place})"

    def _batches(self) -> Iterator[Batch]:
        """Delivers the rest of the epoch without keeping the place. There is one running pass at a time."""
        self._close_running()
        self._note_run()
        step, first_step, pid = self._next_step, self._first_step, os.getpid()
        (running, early), ended = self._opened(step), False
        try:
            while True:
                if os.getpid() != pid:  # a fork inside the loop: the parent's threads do not exist here
                    pid = os.getpid()
                    running, early = self._opened(step)
                try:
                    native = running.next(self._open_ahead)
                except StokerError:
                    if not early:
                        raise
                    running, early = self._opened(step)  # what was in the way before its time may be gone
                    continue
                early = False
                if native is None or running.is_read():
                    self._open_ahead()
                if native is None:
                    ended = True
                    return
                step = native.step + 1
                yield Batch(native, self._stream(), first_step)
        finally:
            if self._open is running:
                self._close_running()
            running.close()
            if not ended:
                self._close_ahead()

    def _opened(self, step: int) -> tuple[_native.SampleStream, bool]:
        """Opens the rest of the epoch, and tells whether that was done ahead of its time."""
        request = self._slice()
        request["first_step"] = step
        self._keep_receipt()
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
        """Opens the next epoch, of which little is read before its time, unless that was done or nobody needs it."""
        if self._ahead is not None or not self._opens_ahead:
            return
        request: _native.SliceRequest = {**self._slice(), "epoch": self._epoch + 1, "origin": 0, "first_step": 0}
        read: _native.ReadRequest = {**self._read(), "ahead": True}
        try:
            stream = self._stream().open(request, read, self._config.decode)
        except StokerError:
            return  # the loop that needs it opens it again, and says then what is wrong
        self._ahead = (os.getpid(), request, stream)

    def _close_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead[2].close()

    def _read(self) -> _native.ReadRequest:
        config = self._config
        return {
            "memory_budget_bytes": config.memory_budget_bytes,
            "bad_rows": config.bad_rows,
            "verify": config.verify,
            "retry_budget_secs": config.retry_budget_secs,
            "compression": config.compression,
            "ahead": False,
        }

    def _schema(self) -> _native.ArrowSchema:
        """The columns of a batch. Raises for columns that cannot be decoded."""
        decode = self._config.decode
        return self._stream().schema if decode is None else self._stream().decoded_schema(decode)

    def _note_run(self) -> None:
        """Writes an entry of the run log where steps do not follow from the entry before."""
        if self._event is None or self._config.run_id is None or self._config.rank != 0:
            return
        entry = {
            "run_id": self._config.run_id,
            "event": self._event,
            "stream_id": self.stream_id,
            "step": self._first_step,
            "epoch": self._epoch,
            "position": self._origin,
            "global_batch": self._stream().num_steps(self._slice())[1],
            "last_batch": self._config.last_batch,
            "world_size": self._config.world_size,
            "time_micros": 0,
        }
        self._lake._native.log_run(json.dumps(entry))
        self._event = None

    def _keep_receipt(self) -> None:
        """Notes what the running pass delivered, before it goes."""
        if self._open is not None:
            self._parts.extend(json.loads(self._open.receipt())["parts"])

    def _handed(self, batch: Batch) -> None:
        self._next_step = batch.step - self._first_step + 1
        self._position = batch.cursor.position
        self._log = self._logged()

    def _end_epoch(self) -> None:
        self._note_bad_rows()
        self._restart(self._epoch + 1, 0, self._first_step + len(self), "epoch")

    def _restart(self, epoch: int, position: int, step: int, event: str) -> None:
        """Sets the place: the training's step number `step` begins at `position`."""
        self._epoch, self._origin, self._position, self._next_step = epoch, position, position, 0
        self._first_step = step
        self._event = event
        self._log = []
        self._place_changes += 1

    def _use(self, handle: _native.StreamHandle) -> None:
        self._handle, self._pinned = handle, handle.pinned_state()

    def _logged(self) -> list[tuple[int, int, int]]:
        """The log of (step, position, global batch size) with the current size from the origin on."""
        size = self._stream().num_steps(self._slice())[1]
        log = [entry for entry in self._log if entry[1] < self._origin or entry[0] < self._first_step]
        if log and log[-1][2] == size and log[-1][1] + (self._first_step - log[-1][0]) * size == self._origin:
            return log
        return [*log, (self._first_step, self._origin, size)]

    def _note_bad_rows(self) -> None:
        """Adds what this rank substituted in the epoch to the table of bad rows, where the run is logged."""
        if self._config.run_id is None:
            return
        tables = [table for tables in self._stream().row_tables for table in tables]
        rows = [
            {
                "run_id": self._config.run_id,
                "stream_id": self.stream_id,
                "epoch": self._epoch,
                "position": row["position"],
                "table": table,
                "version": version,
                "row_addr": address,
                "reason": row["reason"],
            }
            for part in self.receipt()["parts"]
            if part["epoch"] == self._epoch
            for row in part.get("substituted", [])
            for (table, version), address in zip(tables, row["row_addrs"], strict=True)
            if address != _NO_ROW
        ]
        if rows:
            self._lake._native.log_bad_rows(json.dumps(rows))

    def _slice(self) -> _native.SliceRequest:
        config = self._config
        return {
            "rank": config.rank,
            "world_size": config.world_size,
            "batch_size": config.batch_size,
            "global_batch_size": config.global_batch_size,
            "last_batch": config.last_batch,
            "epoch": self._epoch,
            "origin": self._origin,
            "first_step": self._next_step,
        }

    def _for_worker(self, worker: int, num_workers: int) -> None:
        """Narrows this copy to one of several workers: a rank of a larger world with the same global batches."""
        size = self._stream().num_steps(self._slice())[1]
        config = self._config
        self._opens_ahead = False  # the worker ends with its pass
        self._config = replace(
            config,
            batch_size=None,
            global_batch_size=size,
            rank=config.rank + worker * config.world_size,
            world_size=config.world_size * num_workers,
        )

    def _stream(self) -> _native.StreamHandle:
        if self._handle is None:
            self._handle = self._lake._native.load_stream(self._pinned)
        return self._handle


def _json(state: Mapping[str, Any]) -> str:
    try:
        return json.dumps(state)
    except TypeError as failed:
        raise InvalidRequestError(f"cannot read stream state: {failed}") from failed
