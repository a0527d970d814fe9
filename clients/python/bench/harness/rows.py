"""What the rows are that every system gets; ``harness/dataset.py`` makes them. Needs nothing but Python."""

from __future__ import annotations

__all__ = ["IMAGE_BYTES", "IMAGE_SHAPE", "SUBSET_PREDICATE", "SUBSET_SCORES"]

IMAGE_SHAPE = (3, 224, 224)
IMAGE_BYTES = 3 * 224 * 224
#: Rows of the subset have a score below this.
SUBSET_SCORES = 5
#: The same in SQL, as all query languages here read it.
SUBSET_PREDICATE = f"score < {SUBSET_SCORES}"
