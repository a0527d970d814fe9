"""Streams of training batches, with a state that fits in a checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from stoker import _native
from stoker._batch import Batch
from stoker._errors import InvalidRequestError
from stoker._numbers import whole

if TYPE_CHECKING:
    from stoker._lake import Lake

__all__ = ["SliceConfig", "Stream", "StreamStats"]


@dataclass(frozen=True)
class SliceConfig:
    """How one rank reads a stream; no row and no order depends on it.

    Attributes:
        batch_size: Rows per rank and batch.
        global_batch_size: Rows of all ranks per batch, instead of ``batch_size``.
        last_batch: ``"pad"``, ``"drop"`` or ``"uneven"``.
        rank: This rank, from zero.
        world_size: Ranks in all.
        memory_budget_bytes: Bytes of batches that are being filled or wait to be taken; ``None`` for 1 GiB.
    """

    batch_size: int | None
    global_batch_size: int | None
    last_batch: str
    rank: int
    world_size: int
    memory_budget_bytes: int | None


@dataclass(frozen=True)
class StreamStats:
    """What a stream did since iteration began.

    Attributes:
        rows: Rows delivered, padding included.
        batches: Batches delivered.
        bytes: Bytes of the delivered columns.
        bytes_read: Bytes that range reads brought.
        requests: Range reads.
        retries: Reads repeated after transient faults.
        wait_secs: Seconds that the caller waited for batches.
        first_batch_secs: Seconds from opening to the first batch, or ``None`` before it.
    """

    rows: int = 0
    batches: int = 0
    bytes: int = 0
    bytes_read: int = 0
    requests: int = 0
    retries: int = 0
    wait_secs: float = 0.0
    first_batch_secs: float | None = None


class Stream:
    """The batches of one rank, epoch after epoch: an iterable whose place is kept and can be saved.

    Made by :meth:`Query.stream`. One pass of a ``for`` loop is one epoch:

    - After the end of an epoch, iterating again delivers the next epoch.
    - After a ``break`` or an exception, iterating again continues with the batch after the last one that the loop got.
      :meth:`set_epoch` with another epoch starts that epoch from its beginning.
    - Leaving the loop in any way stops the native threads and frees their buffers.

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
        self._counters: dict[str, int | None] = {}
        self._log: list[tuple[int, int]] = []
        self._parts: list[dict[str, Any]] = []
        self._restart(epoch, 0)
        handle.num_steps(self._slice())  # raises for invalid options

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
        """The columns of a batch."""
        return pa.schema(self._stream().schema)

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

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._batches():
            self._handed(batch)
            yield batch
        self._end_epoch()

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
        state: dict[str, Any] = json.loads(self._stream().state(self._epoch, self._position, log))
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
        epoch, position, log = self._stream().check(text)
        self.close()
        self._parts = []
        self._restart(epoch, position)
        self._log = log

    def set_epoch(self, epoch: int) -> None:
        """Starts an epoch from its beginning; for the current epoch, also one that was resumed, this does nothing.

        Raises:
            InvalidRequestError: The epoch is negative.
        """
        epoch = whole("epoch", epoch, 0)
        if epoch != self._epoch:
            self.close()
            self._restart(epoch, 0)

    def stats(self) -> StreamStats:
        """Returns the counters of the running or else the last pass."""
        if self._open is not None:
            self._counters = self._open.stats()
        counters = dict(self._counters)
        wait, first = counters.pop("wait_nanos", 0), counters.pop("first_batch_nanos", None)
        whole = {name: value or 0 for name, value in counters.items()}
        return StreamStats(
            **whole, wait_secs=(wait or 0) / 1e9, first_batch_secs=None if first is None else first / 1e9
        )

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
        return {"version": 1, "stream_id": self.stream_id, "parts": [*self._parts, *running]}

    def close(self) -> None:
        """Stops the running pass, if there is one, and frees its buffers. The place is kept."""
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
        return {**self.__dict__, "_handle": None, "_open": None}

    def __repr__(self) -> str:
        place = f"epoch={self._epoch}, position={self._position}, rank={self.rank}, world_size={self.world_size}"
        return f"Stream({self.stream_id[:8]}, rows={self.num_rows}, {place})"

    def _batches(self) -> Iterator[Batch]:
        """Delivers the rest of the epoch without keeping the place. There is one running pass at a time."""
        self.close()
        step, pid, running = self._next_step, os.getpid(), self._opened(self._next_step)
        try:
            while True:
                if os.getpid() != pid:  # a fork inside the loop: the parent's threads do not exist here
                    pid, running = os.getpid(), self._opened(step)
                native = running.next()
                if native is None:
                    return
                step = native.step + 1
                yield Batch(native, self._stream().stream_id)
        finally:
            if self._open is running:
                self.close()
            running.close()

    def _opened(self, step: int) -> _native.SampleStream:
        request = self._slice()
        request["first_step"] = step
        self._keep_receipt()
        self._open = self._stream().open(request, self._config.memory_budget_bytes)
        return self._open

    def _keep_receipt(self) -> None:
        """Notes what the running pass delivered, before it goes."""
        if self._open is not None:
            self._parts.extend(json.loads(self._open.receipt())["parts"])

    def _handed(self, batch: Batch) -> None:
        self._next_step = batch.step + 1
        self._position = batch.cursor.position
        self._log = self._logged()

    def _end_epoch(self) -> None:
        self._restart(self._epoch + 1, 0)

    def _restart(self, epoch: int, position: int) -> None:
        self._epoch, self._origin, self._position, self._next_step = epoch, position, position, 0
        self._log = []

    def _logged(self) -> list[tuple[int, int]]:
        """The log of (position, global batch size) with the current size from the origin on."""
        size = self._stream().num_steps(self._slice())[1]
        if self._log and self._log[-1][1] == size:
            return self._log
        return [*(entry for entry in self._log if entry[0] < self._origin), (self._origin, size)]

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
