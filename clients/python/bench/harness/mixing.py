"""Shuffle quality: how many distinct labels a batch of a uniform permutation is expected to have."""

from __future__ import annotations

from math import exp, lgamma

import numpy as np

from harness.dataset import Array

__all__ = ["expected_distinct"]


def expected_distinct(labels: Array, batch_size: int) -> float:
    """Returns the expected number of distinct labels in a batch that is drawn without replacement from these labels.

    The hypergeometric distribution gives the probability that the batch has no row of a class.
    """
    num_rows = len(labels)
    batch_size = min(batch_size, num_rows)
    _, counts = np.unique(labels, return_counts=True)
    missed = (_ratio_of_choices(num_rows - int(count), num_rows, batch_size) for count in counts)
    return float(len(counts) - sum(missed))


def _ratio_of_choices(fewer: int, more: int, chosen: int) -> float:
    """Returns the binomial coefficient of ``fewer`` over ``chosen``, divided by that of ``more`` over ``chosen``."""
    if chosen > fewer:
        return 0.0
    return exp(lgamma(fewer + 1) - lgamma(fewer - chosen + 1) - lgamma(more + 1) + lgamma(more - chosen + 1))
