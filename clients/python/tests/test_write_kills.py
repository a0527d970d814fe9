"""Eight processes change the same rows, are killed and go on: no change is lost, doubled or half visible."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import lance
import numpy as np
from conftest import Server
from write_worker import IMAGE_BYTES, MERGED, image_of, merged_id

import stoker

NUM_WRITERS = 8
#: The statements of each writer.
NUM_STATEMENTS = 18
NUM_KILLS = 14
#: What a table is told that got many small changes.
OF_SMALL_CHANGES = {"small_fragments", "deleted_rows"}


class Kills:
    """Kills writers when all of them together have printed a number of lines, which is at any point of a statement."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        lines = draw.sample(range(20, NUM_WRITERS * NUM_STATEMENTS * 3 // 2), NUM_KILLS)
        self._victims = {line: draw.randrange(NUM_WRITERS) for line in lines}
        self._lock = threading.Lock()
        self._num_lines = 0
        self.writers: list[Writer] = []

    def count(self) -> None:
        """Counts a line, and kills a writer if its time has come."""
        with self._lock:
            self._num_lines += 1
            victim = self._victims.get(self._num_lines)
            if victim is not None:
                self.writers[victim].kill()


class Writer(threading.Thread):
    """A writer process, which is started again after each kill, behind the statement in which it was killed."""

    def __init__(self, number: int, target: str, kills: Kills) -> None:
        super().__init__()
        self._number, self._target, self._kills = number, target, kills
        self._process: subprocess.Popen[str] | None = None
        self.begun: set[int] = set()
        self.done: set[int] = set()
        self.num_killed = 0
        self.errors: list[str] = []

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def run(self) -> None:
        while not self.errors and (first := max(self.begun, default=-1) + 1) < NUM_STATEMENTS:
            self._live(first)

    def _live(self, first: int) -> None:
        worker = str(Path(__file__).with_name("write_worker.py"))
        command = [sys.executable, worker, self._target, str(self._number), str(first), str(NUM_STATEMENTS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as self._process:
            assert self._process.stdout is not None
            others = []
            for line in self._process.stdout:
                word, _, number = line.strip().partition(" ")
                if word in ("begin", "done"):
                    (self.begun if word == "begin" else self.done).add(int(number))
                    self._kills.count()
                else:
                    others.append(line)
        if self._process.returncode == -signal.SIGKILL:
            self.num_killed += 1
        elif self._process.returncode != 0:
            self.errors.append("".join(others))


def test_killed_writers_lose_and_double_nothing(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    images = image_of(0).reshape(1, 1, 40, 40)
    lake.create_table("counters", {"id": np.array([0]), "n": np.array([0]), "image": images})
    lake.execute("CREATE TABLE log (writer BIGINT, number BIGINT)")
    server = Server(str(tmp_path), {"STOKER_ALLOW_WRITES": "true"})
    try:
        kills = Kills(seed=7)
        targets = [lake.target, server.url]
        kills.writers = [Writer(number, targets[number % 2], kills) for number in range(NUM_WRITERS)]
        for writer in kills.writers:
            writer.start()
        for writer in kills.writers:
            writer.join()
        # What a killed client had asked of the server may still be under way there.
        assert server.stop() == 0
    finally:
        server.process.kill()
    assert [writer.errors for writer in kills.writers] == [[]] * NUM_WRITERS
    assert sum(writer.num_killed for writer in kills.writers) >= NUM_KILLS // 2

    least, most = expected(kills.writers)
    rows = lake.sql("SELECT id, n FROM counters ORDER BY id").to_arrow().to_pylist()
    assert [row["id"] for row in rows] == [0, *MERGED], "no row was inserted twice"
    for row in rows:
        assert least[row["id"]] <= row["n"] <= most[row["id"]], row
    # Each statement that took effect is one version.
    assert lake.table("counters").version == 1 + sum(row["n"] for row in rows)
    logged = lake.sql("SELECT writer, number FROM log").to_arrow().to_pylist()
    found = [(row["writer"], row["number"]) for row in logged]
    assert len(set(found)) == len(found), "no row was inserted twice"
    done = {(number, i) for number, writer in enumerate(kills.writers) for i in writer.done if i % 3 == 2}
    begun = {(number, i) for number, writer in enumerate(kills.writers) for i in writer.begun if i % 3 == 2}
    assert done <= set(found) <= begun
    assert lake.table("log").version == 1 + len(found)
    check_tables(lake, tmp_path)


def expected(writers: list[Writer]) -> tuple[Counter[int], Counter[int]]:
    """Returns by id how often its row was changed at least and at most: a kill leaves open whether it was changed."""
    least: Counter[int] = Counter()
    most: Counter[int] = Counter()
    for writer in writers:
        for counted, numbers in ((least, writer.done), (most, writer.begun)):
            counted[0] += sum(number % 3 == 0 for number in numbers)
            counted.update(merged_id(number) for number in numbers if number % 3 == 1)
    return least, most


def check_tables(lake: stoker.Lake, folder: Path) -> None:
    """Checks that Lance reads the same rows, that images are whole, and that the doctor finds no damage."""
    for name in ("counters", "log"):
        dataset = lance.dataset(str(folder / f"{name}.lance"))
        dataset.validate()
        by_lance = dataset.to_table().to_pylist()
        by_stoker = lake.sql(f"SELECT * FROM {name}").to_arrow().to_pylist()
        assert sorted(map(str, by_lance)) == sorted(map(str, by_stoker))
        findings = [finding for finding in lake.table(name).doctor() if finding.code not in OF_SMALL_CHANGES]
        assert findings == []
    stream = lake.sql("SELECT id, image FROM counters").stream(batch_size=2)
    seen = 0
    for batch in stream:
        for row, image in zip(batch["id"][batch.valid], batch["image"][batch.valid], strict=True):
            np.testing.assert_array_equal(image.reshape(IMAGE_BYTES), image_of(int(row)))
            seen += 1
    assert seen == 1 + len(MERGED)
