"""The folder of the data of a benchmark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["data_folder"]


@contextmanager
def data_folder(chosen: Path | None, prefix: str) -> Iterator[Path]:
    """Makes the chosen folder, which stays, or a temporary one whose name begins with a prefix."""
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen.resolve()
        return
    with tempfile.TemporaryDirectory(prefix=prefix) as temporary:
        yield Path(temporary)
