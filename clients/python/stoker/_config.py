"""The options for how one rank reads a stream, which change neither the rows nor their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stoker import _distributed, _native
from stoker._compression import compression_or_none
from stoker._decode import decode_request, tokenizers_of
from stoker._errors import InvalidRequestError
from stoker._numbers import share_or_none, whole, whole_or_none

__all__ = ["SliceConfig", "slice_config"]

#: The maximum rows of a global batch, and the maximum number of ranks.
_BATCH_MAX = 2**32
_RANKS_MAX = 2**32 - 1

_LAST_BATCH = ("pad", "drop", "uneven")
_BAD_ROWS = ("error", "substitute")


@dataclass(frozen=True)
class SliceConfig:
    """The options for how one rank reads a stream; they change neither the rows nor their order.

    Attributes:
        batch_size: Rows per rank and batch.
        global_batch_size: Rows of all ranks per batch, instead of ``batch_size``.
        last_batch: ``"pad"``, ``"drop"`` or ``"uneven"``.
        rank: The rank of this process, zero-based.
        world_size: The number of ranks.
        memory_budget_bytes: The maximum bytes of batches that are being filled or wait to be taken; ``None`` for 1 GiB.
        bad_rows: ``"error"`` or ``"substitute"``.
        max_bad_share: The share of the rows of a window that may be bad; ``None`` for 0.01.
        verify: Whether checksums are verified.
        retry_budget_secs: Seconds for which reads are retried; ``None`` for 120.
        compression: ``"lz4"``, ``"zstd"``, or ``None`` for no compression.
        run_id: The run whose log is written; ``None`` to write no log.
        decode: The columns to decode; ``None`` for none.
        evaluation: Whether every pass delivers the same epoch from its start.
    """

    batch_size: int | None
    global_batch_size: int | None
    last_batch: str
    rank: int
    world_size: int
    memory_budget_bytes: int | None
    bad_rows: str = "error"
    max_bad_share: float | None = None
    verify: bool = True
    retry_budget_secs: int | None = None
    compression: str | None = None
    run_id: str | None = None
    decode: _native.DecodeRequest | None = None
    evaluation: bool = False

    def request(self, *, any_order_version: bool = False) -> _native.SessionRequest:
        """Returns the options in the form of the native module.

        ``any_order_version`` says whether a state may have another version of the order than the stream.
        """
        return {
            "rank": self.rank,
            "world_size": self.world_size,
            "batch_size": self.batch_size,
            "global_batch_size": self.global_batch_size,
            "last_batch": self.last_batch,
            "memory_budget_bytes": self.memory_budget_bytes,
            "bad_rows": self.bad_rows,
            "max_bad_share": self.max_bad_share,
            "verify": self.verify,
            "retry_budget_secs": self.retry_budget_secs,
            "compression": self.compression,
            "run_id": self.run_id,
            "decode": self.decode,
            "evaluation": self.evaluation,
            "any_order_version": any_order_version,
        }

    def agreed(self) -> dict[str, Any]:
        """Returns the options that must be the same on all ranks of a job."""
        return {
            "batch_size": self.batch_size,
            "global_batch_size": self.global_batch_size,
            "last_batch": self.last_batch,
            "bad_rows": self.bad_rows,
            "evaluation": self.evaluation,
            "tokenizers": tokenizers_of(self.decode),
        }


def slice_config(
    *,
    ranks: _distributed.Ranks,
    batch_size: int | None = None,
    global_batch_size: int | None = None,
    last_batch: str | None = None,
    drop_last: bool | None = None,
    memory_budget_bytes: int | None = None,
    bad_rows: str = "error",
    max_bad_share: float | None = None,
    verify: bool = True,
    retry_budget_secs: int | None = None,
    compression: Any = None,
    run_id: str | None = None,
    run_log: bool = False,
    decode: Any = None,
    decode_threads: int | None = None,
    evaluation: bool = False,
) -> SliceConfig:
    """Returns the validated options; see :meth:`StreamSource.stream` for what they mean.

    Raises:
        InvalidRequestError: Options that contradict each other, or a value out of range; the message names the option.
    """
    if run_log and run_id is None:
        raise InvalidRequestError("run_log=True needs a run_id, the name under which the steps are found again")
    if run_log and evaluation:
        raise InvalidRequestError("evaluation=True and run_log=True exclude each other: an evaluation has no steps")
    config = SliceConfig(
        batch_size=whole_or_none("batch_size", batch_size, 1, _BATCH_MAX),
        global_batch_size=whole_or_none("global_batch_size", global_batch_size, 1, _BATCH_MAX),
        last_batch=_last_batch(last_batch, drop_last, evaluation or ranks.world_size == 1),
        rank=whole("rank", ranks.rank, 0, _RANKS_MAX),
        world_size=whole("world_size", ranks.world_size, 1, _RANKS_MAX),
        memory_budget_bytes=whole_or_none("memory_budget_bytes", memory_budget_bytes, 1),
        bad_rows=_one_of("bad_rows", bad_rows, _BAD_ROWS),
        max_bad_share=share_or_none("max_bad_share", max_bad_share),
        verify=bool(verify),
        retry_budget_secs=whole_or_none("retry_budget_secs", retry_budget_secs, 0),
        compression=compression_or_none(compression),
        run_id=run_id if run_log else None,
        decode=decode_request(decode, decode_threads),
        evaluation=bool(evaluation),
    )
    if (batch_size is None) == (global_batch_size is None):
        raise InvalidRequestError("give either batch_size or global_batch_size")
    return config


def _last_batch(last_batch: str | None, drop_last: bool | None, uneven: bool) -> str:
    if drop_last and last_batch not in (None, "drop"):
        raise InvalidRequestError(f"drop_last=True contradicts last_batch={last_batch!r}")
    if drop_last:
        return "drop"
    if last_batch is None:
        return "uneven" if uneven else "pad"
    return _one_of("last_batch", last_batch, _LAST_BATCH)


def _one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    for choice in choices:
        if value == choice:
            return choice
    listed = " or ".join(", ".join(repr(choice) for choice in choices).rsplit(", ", 1))
    raise InvalidRequestError(f"{name} is {value!r}; it must be {listed}")
