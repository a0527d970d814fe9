"""A filter that keeps the samples of the subset, for libraries that have no predicates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset

from harness.rows import SUBSET_SCORES

__all__ = ["Matching"]


class Matching(IterableDataset[Any]):
    """The samples of a data set that belong to the subset. A sample is a dict with the key ``score``."""

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return (sample for sample in self._dataset if sample["score"] < SUBSET_SCORES)
