"""The samples of a stream that match the predicate, for libraries that have none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset

from harness.rows import SUBSET_SCORES

__all__ = ["Matching"]


class Matching(IterableDataset[Any]):
    """Those samples of a data set, dicts with a score, that belong to the subset."""

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return (sample for sample in self._dataset if sample["score"] < SUBSET_SCORES)
