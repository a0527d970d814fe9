"""The schedule of events in a soak, a pure function of its seed and its length."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Happening:
    """An event of the schedule: a kill, an outage, an attack, a compaction or a cleanup."""

    #: Seconds since the start of the load.
    at_secs: float
    kind: str
    #: The number of earlier events of the same kind; with `dealt`, it chooses among the variants of the kind.
    turn: int
    #: The seed of all other choices of the event.
    seed: int


@dataclass(frozen=True)
class Rate:
    """The frequency of one kind of event."""

    period_secs: float
    #: The fraction of the load, from its start, in which the event may happen.
    part: float = 1.0


def rates(load_secs: float) -> dict[str, Rate]:
    """Returns the rates for a load of this length.

    A long load has about 36 outages, so that waits can be judged in most of its time. Servers are killed in the first
    40 % of the load only, so that the last one runs long enough to show a leak.
    """
    return {
        "outage": Rate(max(32, load_secs / 40), 0.9),
        "kill server": Rate(max(30, load_secs / 20), 0.4),
        "kill stream": Rate(8),
        "kill writer": Rate(12),
        "kill ingest": Rate(12),
        "compact": Rate(15),
        "kill compaction": Rate(40),
        "clean up": Rate(20),
        "attack": Rate(5),
    }


def schedule(seed: int, load_secs: float) -> list[Happening]:
    """Returns all events, ordered by time. Each kind occurs at least once."""
    happenings = []
    for kind, rate in rates(load_secs).items():
        draw = random.Random(f"{seed}/{kind}")
        end = load_secs * rate.part
        at = draw.uniform(0.2, 0.8) * min(rate.period_secs, end)
        turn = 0
        while at < end:
            happenings.append(Happening(at, kind, turn, draw.randrange(1 << 32)))
            at += draw.uniform(0.5, 1.5) * rate.period_secs
            turn += 1
    return sorted(happenings)


def dealt(options: list[str], turn: int, seed: int) -> str:
    """Returns the option of a turn: every option comes once, in a random order, before any comes again."""
    deck, place = divmod(turn, len(options))
    shuffled = list(options)
    random.Random(f"{seed}/deck {deck}").shuffle(shuffled)
    return shuffled[place]
