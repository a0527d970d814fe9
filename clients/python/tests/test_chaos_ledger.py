"""The oracle of the chaos job passes correct ledgers, and finds the faults in others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chaos_ledger import Entry, Phase, digest, findings, name_of, payload_of, read_ledger


def sound_ledgers() -> tuple[list[list[int]], list[Phase]]:
    """Returns the order of two epochs of eleven rows, and correct ledgers of two ranks and then three."""
    order = [[3, 1, 4, 10, 5, 9, 2, 6, 8, 7, 0], [2, 7, 1, 8, 10, 0, 4, 5, 9, 6, 3]]
    phases = [Phase((0, 0), (0, 8), 0, 4, [[], []]), Phase((0, 8), (2, 0), 2, 6, [[], [], []])]
    return order, [simulated(phase, order) for phase in phases]


def simulated(phase: Phase, order: Sequence[Sequence[int]]) -> Phase:
    """Returns this phase with the ledgers that ranks without faults would write."""
    ledgers: list[list[Entry]] = [[] for _ in phase.ledgers]
    for step in phase.steps(len(order[0])):
        for rank, ledger in enumerate(ledgers):
            places = [at for at in range(step.begin, step.end) if (at - step.origin) % len(ledgers) == rank]
            ids = tuple(order[step.epoch][at] for at in places)
            digests = tuple(digest(name_of(row), payload_of(row)) for row in ids)
            ledger.append(Entry(step.epoch, step.number, step.end, len(ids), ids, digests))
    return replace(phase, ledgers=ledgers)


def in_second_phase(change: Callable[[list[Entry]], None]) -> Callable[[list[Phase]], None]:
    """Returns a function that changes the ledger of the second phase's last rank."""

    def damage(phases: list[Phase]) -> None:
        ledger = phases[1].ledgers[-1]
        assert isinstance(ledger, list)
        change(ledger)

    return damage


def swap_batches(ledger: list[Entry]) -> None:
    """Swaps the rows of two batches, so that every row still comes once."""
    first, second = ledger[0], ledger[1]
    ledger[0] = replace(first, ids=second.ids, digests=second.digests)
    ledger[1] = replace(second, ids=first.ids, digests=first.digests)


def pad_wrongly(ledger: list[Entry]) -> None:
    """Adds rows of the next batch as padding."""
    first, second = ledger[0], ledger[1]
    ledger[0] = replace(first, ids=first.ids + second.ids, digests=first.digests + second.digests)


def change_first(**fields: Any) -> Callable[[list[Phase]], None]:
    return in_second_phase(lambda ledger: ledger.__setitem__(0, replace(ledger[0], **fields)))


DAMAGE: dict[str, tuple[Callable[[list[Phase]], None], str]] = {
    "a lost batch": (in_second_phase(lambda ledger: ledger.__delitem__(1)), "lost or repeated"),
    "a repeated batch": (in_second_phase(lambda ledger: ledger.insert(1, ledger[0])), "lost or repeated"),
    "swapped batches": (in_second_phase(swap_batches), "other rows than without faults"),
    "other bytes": (change_first(digests=("0" * 16,)), "other bytes"),
    "another cursor": (change_first(position=1), "steps of"),
    "another number of a step": (change_first(step=7), "steps of"),
    "rows taken for padding": (change_first(num_valid=0), "lost or repeated"),
    "padding of another batch": (in_second_phase(pad_wrongly), "padding from another batch"),
    "a lost last step": (in_second_phase(lambda ledger: ledger.__delitem__(-1)), "steps of"),
    "a lost run": (lambda phases: phases.__delitem__(1), "lost or repeated"),
}


def test_the_oracle_passes_sound_ledgers() -> None:
    order, phases = sound_ledgers()
    assert [len(ledger) for phase in phases for ledger in phase.ledgers] == [2, 2, 3, 3, 3]
    assert findings(phases, order) == []


@pytest.mark.parametrize("name", DAMAGE)
def test_the_oracle_finds(name: str) -> None:
    order, phases = sound_ledgers()
    damage, expected = DAMAGE[name]
    damage(phases)
    assert any(expected in finding for finding in findings(phases, order))


def test_a_ledger_ends_where_a_kill_cut_it_off(tmp_path: Path) -> None:
    _, phases = sound_ledgers()
    entries = list(phases[1].ledgers[0])
    path = tmp_path / "ledger"
    path.write_bytes(b"".join(entry.to_line() for entry in entries)[:-7])
    assert read_ledger(path) == entries[:-1]
    assert Phase((0, 8), (0, 11), 2, 6, [entries]).cut().ledgers == [entries[:1]]
