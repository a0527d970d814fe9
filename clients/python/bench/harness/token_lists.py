"""Tables of tokens: rows of one length, and rows whose lengths are as those of texts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    import stoker

__all__ = ["MEAN", "token_lengths", "write_tokens"]

#: The mean number of tokens of a row.
MEAN = 512
_ROWS_AT_ONCE = 8_192


def token_lengths(mib: int) -> np.ndarray[Any, Any]:
    """Returns the lengths of the rows of ``ragged`` with so many MiB of int32: log-normal with the mean ``MEAN``."""
    import numpy as np

    lengths = np.exp(np.random.default_rng(5).normal(0, 1, (mib << 20) // (MEAN * 4)))
    whole: np.ndarray[Any, Any] = np.maximum(1, np.rint(lengths * (MEAN / lengths.mean()))).astype(np.int64)
    return whole


def write_tokens(lake: stoker.Lake, mib: int, names: tuple[str, ...] = ("fixed", "ragged")) -> None:
    """Writes tables of so many MiB of tokens, unless they are there.

    Rows of ``fixed`` have ``MEAN`` tokens, and a weight in the column ``w``; those of ``ragged`` have the lengths of
    :func:`token_lengths`, which the column ``n`` tells.
    """
    import numpy as np
    import pyarrow as pa

    import stoker

    lengths, random = token_lengths(mib), np.random.default_rng(6)
    try:
        known = lake.tables()
    except stoker.NotFoundError:
        known = []  # the first table makes the lake
    for name in names:
        if name in known:
            continue
        table = None
        for start in range(0, len(lengths), _ROWS_AT_ONCE):
            print(f"writing {name}: {start:,} of {len(lengths):,} rows", file=sys.stderr)
            some = lengths[start : start + _ROWS_AT_ONCE]
            if name == "fixed":
                tokens = random.integers(0, 50_000, (len(some), MEAN), dtype=np.int32)
                columns: Any = {"tokens": tokens, "w": (0.5 + np.arange(len(some)) % 2).astype(np.float32)}
            else:
                values = pa.array(random.integers(0, 50_000, int(some.sum()), dtype=np.int32))
                offsets = pa.array(np.concatenate([[0], np.cumsum(some)]).astype(np.int32))
                columns = pa.table({"tokens": pa.ListArray.from_arrays(offsets, values), "n": pa.array(some)})
            table = lake.create_table(name, columns) if table is None else table.append(columns)
