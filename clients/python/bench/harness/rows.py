"""Constants about the rows, which ``harness/dataset.py`` makes. This module imports no library."""

from __future__ import annotations

__all__ = ["IMAGE_BYTES", "IMAGE_SHAPE", "SUBSET_PREDICATE", "SUBSET_SCORES"]

IMAGE_SHAPE = (3, 224, 224)
IMAGE_BYTES = 3 * 224 * 224
#: The rows of the subset have a score below this.
SUBSET_SCORES = 5
#: The same condition in SQL; the query languages of all systems accept it.
SUBSET_PREDICATE = f"score < {SUBSET_SCORES}"
