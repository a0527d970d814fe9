"""Shuffle quality: distinct labels in a batch, over what a uniform permutation would lead to expect."""

from __future__ import annotations

from math import exp, lgamma

import numpy as np

from harness.dataset import Array

__all__ = ["expected_distinct"]


def expected_distinct(labels: Array, batch_size: int) -> float:
    """The expected number of distinct labels among so many rows drawn without replacement from rows with these labels.

    Each class is missed with the probability of the hypergeometric distribution.
    """
    num_rows = len(labels)
    batch_size = min(batch_size, num_rows)
    _, counts = np.unique(labels, return_counts=True)
    missed = (_ratio_of_choices(num_rows - int(count), num_rows, batch_size) for count in counts)
    return float(len(counts) - sum(missed))


def _ratio_of_choices(fewer: int, more: int, chosen: int) -> float:
    """``fewer`` choose ``chosen``, over ``more`` choose ``chosen``."""
    if chosen > fewer:
        return 0.0
    return exp(lgamma(fewer + 1) - lgamma(fewer - chosen + 1) - lgamma(more + 1) + lgamma(more - chosen + 1))
