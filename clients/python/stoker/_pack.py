"""Packs: sequences of one length that are filled with whole documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoker._errors import InvalidRequestError
from stoker._names import column_name
from stoker._numbers import whole

if TYPE_CHECKING:
    from stoker import _native

__all__ = ["Pack", "pack_request"]

#: The largest length of a pack.
_LENGTH_MAX = 2**24


@dataclass(frozen=True)
class Pack:
    """Fills sequences of one length with whole documents (``stream(pack=…)``); the rows of a batch are then packs.

    Each document is in one pack, put where it leaves the least room; only one that is longer than a pack is cut, into
    pieces as long as a pack and a rest. The documents of a pack are neighbours in the query's rows: those of about
    2^16 tokens (at least 8 packs) share packs. Which of them share one, and in which order, is drawn from seed and
    epoch. An epoch has the same number of packs each time, and ``len`` knows it.

    A batch has, in addition to the columns of the query:

    - ``position_ids``, int32 of shape ``(packs, length)``: the number of each token in its document, 0 for padding;
    - ``document_ids``, int32 of shape ``(packs, length)``: the number of its document in the pack, from 1; 0 for
      padding;
    - ``cu_seqlens``, a list for each pack: where its documents begin, and the length at its end; padding counts as
      the last document;
    - ``document_row_ids``, a list for each pack: the row ids of its documents.

    Columns that are not packed have a list with one value for each document of the pack.

    Attributes:
        columns: The column with the tokens, a list of numbers in each row; or several columns with as many values
            in each row, such as tokens and loss mask. A batch has them as arrays of shape ``(packs, length)``.
        length: The number of tokens in a pack, 2 to 2**24.
        lengths: A column with the number of tokens of each row. Without one, all tokens are read to count them when a
            stream is made.
        pad: What fills the rest of a pack, in all packed columns.

    Example:
        >>> table = lake.create_table("docs", {"tokens": pa.array([[1, 2, 3], [4], [5, 6], [7, 8, 9, 10, 11]])})
        >>> stream = lake.sql("SELECT tokens FROM docs").stream(batch_size=2, pack=stoker.Pack("tokens", length=4))
        >>> len(stream), stream.num_rows
        (2, 3)
        >>> sorted(int(token) for batch in stream for token in batch["tokens"][batch["document_ids"] > 0])
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    """

    columns: str | Sequence[str]
    length: int
    lengths: str | None = None
    pad: int = 0

    def __post_init__(self) -> None:
        names = [self.columns] if isinstance(self.columns, str) else self.columns
        if not isinstance(names, Sequence) or not names or "" in names:
            raise InvalidRequestError(
                f"columns is {self.columns!r}; it must be the name of a column, or a list of names"
            )
        for name in names:
            column_name("columns", name)
        whole("length", self.length, 2, _LENGTH_MAX)
        whole("pad", self.pad, -(2**63))
        if self.lengths is not None:
            column_name("lengths", self.lengths)


def pack_request(pack: Pack | None) -> _native.PackRequest | None:
    """Returns the option as the engine takes it.

    Raises:
        InvalidRequestError: It is no :class:`Pack`.
    """
    if pack is None:
        return None
    if not isinstance(pack, Pack):
        raise InvalidRequestError(f"pack is a {type(pack).__name__}; it must be a stoker.Pack")
    columns = [pack.columns] if isinstance(pack.columns, str) else list(pack.columns)
    return {"columns": columns, "length": pack.length, "lengths": pack.lengths, "pad": pack.pad}
