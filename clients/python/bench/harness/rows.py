"""The kinds of rows that ``harness/dataset.py`` makes, and the subset. This module imports no library."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

__all__ = ["IMAGES", "ROW_KINDS", "SUBSET_PREDICATE", "SUBSET_SCORES", "TOKENS", "RowKind"]

_ELEMENT_BYTES = {"uint8": 1, "int32": 4}


@dataclass(frozen=True)
class RowKind:
    """What the tensor of each row is, and how many rows are measured by default.

    Attributes:
        name: The name on the command line and in the report.
        dtype: The name of the elements' type, which NumPy and PyTorch share.
        shape: The shape of a row's tensor.
        num_rows_default: The default number of rows.
        batch_size_default: The default number of rows in a batch.
        block_rows: The number of adjacent rows that are made and written at once, about 10^7 bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_rows_default: int
    batch_size_default: int
    block_rows: int

    @property
    def row_bytes(self) -> int:
        """The number of bytes of a row's tensor."""
        return prod(self.shape) * _ELEMENT_BYTES[self.dtype]

    def __str__(self) -> str:
        """Returns the type of the tensor, such as ``int32[512]``."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


IMAGES = RowKind("images", "uint8", (3, 224, 224), num_rows_default=4_096, batch_size_default=128, block_rows=64)
TOKENS = RowKind("tokens", "int32", (512,), num_rows_default=131_072, batch_size_default=256, block_rows=4_096)
#: All kinds by their names.
ROW_KINDS = {kind.name: kind for kind in (IMAGES, TOKENS)}

#: The rows of the subset have a score below this.
SUBSET_SCORES = 5
#: The same condition in SQL; the query languages of all systems accept it.
SUBSET_PREDICATE = f"score < {SUBSET_SCORES}"
