"""Copies of tables, so that what one side changes is no part of what the other measurements read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["copied"]


@contextmanager
def copied(source: str, target: str) -> Iterator[str]:
    """Copies the folder of a table, and removes the copy at the end."""
    try:
        shutil.copytree(source, target)
        if hasattr(os, "sync"):
            os.sync()  # otherwise the copy would still be written to the disk while the change is measured
        yield target
    finally:
        if Path(target).exists():
            shutil.rmtree(target)
