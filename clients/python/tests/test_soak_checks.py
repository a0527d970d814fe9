"""The checks of the soak test find each kind of fault that they look for, and report none where there is none."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from soak_checks import epoch_findings, table_findings, verdict_findings
from soak_outages import RECOVERY_SECS, Window, longest_outside
from soak_schedule import dealt, rates, schedule
from soak_table import NUM_BASE_ROWS, Write, write_of

import stoker

DONE = Write(writer=2, number=5, num_rows=3, outcome="done")
UNKNOWN = Write(writer=3, number=9, num_rows=2, outcome="unknown")
BEGUN = Write(writer=8, number=0, num_rows=2, outcome="begun")
WRITES = [DONE, UNKNOWN, BEGUN]
BASE = list(range(NUM_BASE_ROWS))
ALL = [*BASE, *map(int, DONE.ids()), *map(int, UNKNOWN.ids())]


def test_rows_name_their_write() -> None:
    for write in WRITES:
        assert {write_of(int(row)) for row in write.ids()} == {write.key}
        assert min(write.ids()) > NUM_BASE_ROWS


def test_a_table_with_all_that_was_acknowledged_is_right() -> None:
    assert table_findings("t", WRITES, ALL) == []
    assert table_findings("t", WRITES, ALL[: -UNKNOWN.num_rows]) == []


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ([row for row in ALL if row != DONE.ids()[1]], "of 3 rows of .*, 2 are there"),
        (BASE, "of 3 rows of .*, 0 are there"),
        (ALL[:-1], "of 2 rows of .*unknown.*, 1 are there"),
        ([*ALL, int(DONE.ids()[0])], "is there 2 times"),
        ([*ALL, 7], "row 7 is there 2 times"),
        (ALL[1:], "row 0 of the base is lost"),
        ([*ALL, int(replace(DONE, number=6).ids()[0])], "which nobody wrote"),
    ],
)
def test_lost_repeated_and_foreign_rows_are_found(stored: list[int], said: str) -> None:
    (found,) = table_findings("t", WRITES, stored)
    assert re.search(said, found)


def test_an_acknowledged_write_is_missed_where_the_record_says_so() -> None:
    wrong = [*WRITES, replace(DONE, number=77)]
    (found,) = table_findings("t", wrong, ALL)
    assert "number=77" in found


def test_epochs_must_have_the_rows_of_their_snapshot() -> None:
    epochs = {0: [1, 2, 3], 1: [3, 1, 2], 2: [1]}
    assert epoch_findings("s", epochs, 2, [1, 2, 3]) == []
    for seen in ([1, 2], [1, 2, 3, 3], [1, 2, 4], []):
        (found,) = epoch_findings("s", {0: [1, 2, 3], 1: seen}, 2, [1, 2, 3])
        assert found.startswith("s, epoch 1: ")


def test_each_finished_epoch_needs_a_proof() -> None:
    sound = stoker.EpochVerdict(0, 3, 0, [], 0, [], [], 0, [], [])
    assert verdict_findings("s", [sound], 1) == []
    assert len(verdict_findings("s", [sound], 2)) == 1
    assert len(verdict_findings("s", [replace(sound, num_missing=1)], 1)) == 1
    assert len(verdict_findings("s", [replace(sound, num_repeated=1)], 1)) == 1


def test_waits_count_outside_outages_and_recovery() -> None:
    windows = [Window("503", 100, 104), Window("kill", 130, 131)]
    end = 104 + RECOVERY_SECS
    assert longest_outside([(101, 103)], windows)[0] == 0
    assert longest_outside([(50, 51), (101, end)], windows) == (1, 50)
    assert longest_outside([(99.5, end + 1.5)], windows) == (1.5, end)
    assert longest_outside([(97, 110)], windows) == (3, 97)
    assert longest_outside([(90, 150)], windows) == (130 - end, end)


def test_a_schedule_is_a_function_of_its_seed_and_has_all_kinds() -> None:
    assert schedule(1, 180) == schedule(1, 180) != schedule(2, 180)
    for secs in (60, 180, 3600):
        for seed in range(20):
            happenings = schedule(seed, secs)
            assert {happening.kind for happening in happenings} == set(rates(secs))
            assert all(0 < happening.at_secs < secs for happening in happenings)
    outages = [happening.at_secs for happening in schedule(3, 3600) if happening.kind == "outage"]
    assert 25 < len(outages) < 60
    options = ["a", "b", "c"]
    assert sorted(dealt(options, turn, 5) for turn in range(3, 6)) == options
