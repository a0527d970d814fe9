"""The rows of the measurements, as a lake and as flat files, which the ceilings read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BATCH_ROWS", "BUCKET", "DATA", "Rows", "prepare"]

#: The name of the folder that the object server serves as a bucket.
BUCKET = "first-epoch"
BATCH_ROWS = 256
_NUM_CLASSES = 100


@dataclass(frozen=True)
class Rows:
    """Rows of one tensor column and a label, sorted by label."""

    name: str
    column: str
    dtype: str
    item_bytes: int
    shape: tuple[int, ...]
    num_rows: int

    @property
    def row_bytes(self) -> int:
        """The bytes of the tensor of a row."""
        return prod(self.shape) * self.item_bytes

    @property
    def num_bytes(self) -> int:
        """The bytes of all tensors."""
        return self.num_rows * self.row_bytes

    @property
    def query(self) -> str:
        """The query of all rows."""
        return f"SELECT {self.column}, label FROM {self.name}"

    def divided(self, divisor: int) -> Rows:
        """Returns the same rows, but fewer of them."""
        return replace(self, num_rows=self.num_rows // divisor)

    def file(self, folder: Path) -> Path:
        """The flat file of the tensors."""
        return folder / BUCKET / f"{self.name}.bin"


DATA = {
    "images": Rows("images", "image", "uint8", 1, (3, 224, 224), 8_192),
    "tokens": Rows("tokens", "tokens", "int32", 4, (512,), 262_144),
}


def prepare(folder: Path, rows: Rows) -> bool:
    """Writes the rows once. Returns whether they had to be written."""
    import numpy as np
    import pyarrow as pa

    import stoker

    target = rows.file(folder)
    done = target.with_suffix(f".{rows.num_rows}_written")
    if done.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    tensor = pa.fixed_shape_tensor(pa.from_numpy_dtype(np.dtype(rows.dtype)), rows.shape)
    schema = pa.schema([(rows.column, tensor), ("label", pa.int64())])
    length = prod(rows.shape)

    def batches() -> Iterator[pa.RecordBatch]:
        step = max(1, (32 << 20) // rows.row_bytes)
        with target.open("wb") as file:
            for start in range(0, rows.num_rows, step):
                ids = np.arange(start, min(start + step, rows.num_rows))
                values = _values(rows, len(ids), start)
                file.write(values.data)
                storage = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), length)
                labels = pa.array(ids * _NUM_CLASSES // rows.num_rows)
                yield pa.record_batch([pa.ExtensionArray.from_storage(tensor, storage), labels], schema=schema)

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    stoker.connect(str(folder / BUCKET / "lake")).create_table(rows.name, reader, mode="overwrite")
    done.touch()
    return True


def _values(rows: Rows, count: int, seed: int) -> np.ndarray[Any, Any]:
    import numpy as np

    random = np.random.default_rng(seed)
    return random.integers(0, 200, (count, prod(rows.shape)), dtype=rows.dtype)
