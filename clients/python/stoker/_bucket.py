"""Buckets: rows of similar length that come together, under a limit of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stoker._errors import InvalidRequestError
from stoker._names import column_name
from stoker._numbers import whole, whole_or_none

if TYPE_CHECKING:
    from stoker import _native

__all__ = ["Bucket", "bucket_request", "refuse_sizes"]

#: The largest number of tokens in a bucket.
_TOKENS_MAX = 2**40


@dataclass(frozen=True)
class Bucket:
    """Puts rows of similar length together (``stream(bucket=…)``); each batch of a rank has the rows of one bucket.

    A batch is one of ordinary rows, as many as the bucket has: the largest number whose padded size, the number of rows
    times the longest of them, is at most ``max_tokens``. Each row comes once per epoch. An epoch has the same number of
    buckets each time, and ``len`` knows it. ``batch_size`` is left out; positions, ``len`` and the progress of states
    count buckets.

    Buckets are made in groups of 4,096 rows: 16 blocks of 256 neighbours, from anywhere in the query's rows unless
    ``shuffle=False``. In each epoch, rows change places with those of buckets that have as many and nearly as long
    rows, and buckets come in another order.

    Attributes:
        column: The column that tells the length of each row: lists, whose values are counted when a stream is made, or
            whole numbers. A row without a value has length 0.
        max_tokens: The largest number of tokens in a bucket, padding included, 1 to 2**40.
        max_rows: The largest number of rows in a bucket. Default: as many as ``max_tokens`` allows.
        multiple: The number of tokens to whose multiples rows will be padded, as of :class:`Pad`.
        longer: What to do with a row that has more than ``max_tokens`` when it is padded: ``"alone"`` makes it a bucket
            of its own, ``"error"`` raises an :class:`InvalidRequestError` that names the row when the stream is made.

    Example:
        >>> lines = [[1], [2, 3], [4, 5, 6, 7, 8], [9], [10, 11]]
        >>> table = lake.create_table("lines", {"tokens": pa.array(lines)}, mode="overwrite")
        >>> stream = lake.sql("SELECT tokens FROM lines").stream(seed=1, bucket=stoker.Bucket("tokens", max_tokens=5))
        >>> len(stream)
        3
        >>> sorted(sorted(len(tokens) for tokens in batch["tokens"]) for batch in stream)
        [[1, 1], [2, 2], [5]]
    """

    column: str
    max_tokens: int
    max_rows: int | None = None
    multiple: int = 1
    longer: Literal["alone", "error"] = "alone"

    def __post_init__(self) -> None:
        column_name("column", self.column)
        whole("max_tokens", self.max_tokens, 1, _TOKENS_MAX)
        whole_or_none("max_rows", self.max_rows, 1)
        whole("multiple", self.multiple, 1, self.max_tokens)
        if self.longer not in ("alone", "error"):
            raise InvalidRequestError(f'longer is {self.longer!r:.40}; it must be "alone" or "error"')


def bucket_request(bucket: Bucket | None) -> _native.BucketRequest | None:
    """Returns the option as the engine takes it.

    Raises:
        InvalidRequestError: It is no :class:`Bucket`.
    """
    if bucket is None:
        return None
    if not isinstance(bucket, Bucket):
        raise InvalidRequestError(f"bucket is a {type(bucket).__name__}; it must be a stoker.Bucket")
    return {
        "column": bucket.column,
        "max_tokens": bucket.max_tokens,
        "max_rows": bucket.max_rows,
        "multiple": bucket.multiple,
        "longer": bucket.longer,
    }


def refuse_sizes(batch_size: int | None, global_batch_size: int | None) -> None:
    """Refuses sizes of batches that have other than one bucket for each rank.

    Raises:
        InvalidRequestError: There is a global batch size, or a batch size that is not 1.
    """
    for name, size in (("batch_size", batch_size), ("global_batch_size", global_batch_size)):
        if size is not None and (name, size) != ("batch_size", 1):
            raise InvalidRequestError(
                f"{name} is {size}, but each batch of a rank is one bucket: leave it out, or set batch_size=1; "
                "max_tokens and max_rows of the bucket say how many rows a batch has"
            )
