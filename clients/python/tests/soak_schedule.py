"""What happens in a soak, and when: a pure function of its seed and its length."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Happening:
    """Something that is done to the service."""

    #: Seconds after the beginning of the load.
    at_secs: float
    kind: str
    #: Chooses among the forms of the kind, which are cycled through in a random order.
    turn: int
    #: Chooses the rest.
    seed: int


@dataclass(frozen=True)
class Rate:
    """How often something happens."""

    period_secs: float
    #: The part of the load, from its beginning, in which it happens.
    part: float = 1.0


def rates(load_secs: float) -> dict[str, Rate]:
    """The rates for a load of this length.

    A long load has no more than 40 outages, so that most of its time can be judged. Servers are killed in its first
    part only, so that one of them has the rest of the time to leak something.
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
    """All that happens, in order. Each kind happens at least once."""
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
    """The option of a turn: each comes once, in a random order, before any comes again."""
    deck, place = divmod(turn, len(options))
    shuffled = list(options)
    random.Random(f"{seed}/deck {deck}").shuffle(shuffled)
    return shuffled[place]
