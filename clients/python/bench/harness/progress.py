"""Counts the measurements that are done, and estimates how long the others take."""

from __future__ import annotations

from time import perf_counter

__all__ = ["Progress"]


class Progress:
    """Counts measurements. The estimate assumes that each remaining one takes the average time of those done."""

    def __init__(self, num_measurements: int) -> None:
        self._num_measurements = num_measurements
        self._num_done = 0
        self._begin = perf_counter()

    def leave_out(self) -> None:
        """Records that a measurement will not be made."""
        self._num_measurements -= 1

    def done(self) -> str:
        """Records that a measurement is done. Returns a text about the progress of all measurements."""
        self._num_done += 1
        num_left = self._num_measurements - self._num_done
        secs_left = (perf_counter() - self._begin) / self._num_done * num_left
        return f"{self._num_done} of {self._num_measurements}, {_in_words(secs_left)} left"


def _in_words(secs: float) -> str:
    return f"about {secs / 60:.0f} min" if secs >= 60 else "less than a minute"
