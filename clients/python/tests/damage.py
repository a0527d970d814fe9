"""Tables to damage, a process that reads them, and a check of the rows and errors that reading may give."""

from __future__ import annotations

import re
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from json import loads
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fuzz_worker import COLUMNS
from table_data import plain, write

#: Rows of a fragment; a table has three fragments.
FRAGMENT_ROWS = 6
#: Seconds that reading a damaged table by SQL and by a stream may take. Damage is an error that is not retried.
READ_SECS_MAX = 10.0

#: The exceptions that report damage.
DAMAGED = frozenset({"DataCorruptError"})
#: The exceptions that report a damaged manifest, which says what columns and versions there are.
DAMAGED_MANIFEST = DAMAGED | {"InvalidRequestError", "NotFoundError"}


def damage_rows(table: Path, rows: Iterable[bytes]) -> None:
    """Flips one bit of each of these rows in every data file of the table that contains the bytes of the row."""
    rows = list(rows)
    for path in (table / "data").iterdir():
        stored = bytearray(path.read_bytes())
        for row in rows:
            at = stored.find(row)
            if at >= 0:
                stored[at + 100] ^= 1
        path.write_bytes(stored)


class Reader:
    """A process that reads tables, so that a crash or a hang fails one test only; it is restarted after a failure."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._start()

    def read(self, root: str) -> dict[str, Any]:
        """Returns the rows or errors of SQL and of a stream. Fails for crashes, hangs, and panics in Stoker's code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        place = self._errors.seek(0, 2)
        self._process.stdin.write(root + "\n")
        self._process.stdin.flush()
        answered = select.select([self._process.stdout], [], [], READ_SECS_MAX)[0]
        line = self._process.stdout.readline() if answered else ""
        if not line:
            self.stop()
            status = f"status {self._process.returncode}" if answered else f"no answer within {READ_SECS_MAX} s"
            self._start()
            raise AssertionError(f"the process that reads {root} ended: {status}\n{self._said(place)[-2000:]}")
        panics = re.findall(r"panicked at (?:crates|clients)/.*", self._said(place))
        assert not panics, panics
        return loads(line)

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fuzz_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def _said(self, place: int) -> str:
        self._errors.seek(place)
        return self._errors.read()


@dataclass(frozen=True)
class Intact:
    """An undamaged table."""

    root: Path
    #: The rows of the table, as :mod:`fuzz_worker` returns them.
    rows: list[list[Any]]
    #: The data files of the table with their columns, in the order of fragments.
    files: list[tuple[str, set[str]]]

    @classmethod
    def make(cls, root: Path, writer: str, reader: Reader) -> Intact:
        """Writes a table with one deleted row, and reads it.

        In a table of pylance, all columns of a fragment share a file, except for `y`, which is added afterwards.
        """
        ids = range(3 * FRAGMENT_ROWS)
        payload = [None if i % 7 == 3 else np.random.default_rng(900 + i).bytes(2_000 + i) for i in ids]
        table = plain(ids).append_column("payload", pa.array(payload, pa.large_binary()))
        if writer == "stoker":
            dataset = write(str(root), writer, table, rows_per_file=FRAGMENT_ROWS)
        else:
            dataset = write(str(root), writer, table.drop_columns(["y"]), rows_per_file=FRAGMENT_ROWS)
            dataset.add_columns(table.select(["y"]).to_reader(max_chunksize=FRAGMENT_ROWS))
        dataset.delete("id = 4")
        answers = reader.read(str(root))
        assert sorted(answers["sql"]["rows"]) == sorted(answers["stream"]["rows"])
        assert [row[1] for row in answers["sql"]["rows"]] == [i for i in ids if i != 4]
        names = {field.id(): field.name() for field in dataset.lance_schema.fields()}
        stored = [file for fragment in dataset.get_fragments() for file in fragment.metadata.files]
        files = [(file.path, {names[field] for field in file.fields}) for file in stored]
        return cls(root, answers["sql"]["rows"], files)

    def copy(self, folder: Path) -> Path:
        """Copies the table's folder, so that the copy can be damaged; returns its path."""
        target = folder / "t.lance"
        shutil.copytree(self.root / "t.lance", target)
        return target

    def data_files(self, column: str | None = None) -> list[str]:
        """Returns the names of the data files, or of those with a given column, in the order of fragments."""
        return [name for name, columns in self.files if column is None or column in columns]

    def check(
        self,
        answers: Mapping[str, Any],
        *,
        errors: Iterable[str] = DAMAGED,
        same_rows: bool = True,
    ) -> None:
        """Fails unless each answer has the table's values in each row, or is an error that names the table or a file.

        A row is identified by its address or by its id, because damage may have changed one of them. With `same_rows`
        an answer must have the addresses of all rows.
        """
        found = {way: self._fault(answer, errors, same_rows) for way, answer in answers.items()}
        assert not any(found.values()), found

    def _fault(self, answer: Mapping[str, Any], errors: Iterable[str], same_rows: bool) -> str | None:
        """Returns a description of the fault in an answer, or None."""
        if "rows" not in answer:
            said = f"{answer['error']}: {answer['message']}"
            if not answer["is_stoker"] or answer["error"] not in errors:
                return said
            names = ("t@", "table t", *self.data_files())
            is_named = any(name in answer["message"] for name in names)
            return None if is_named else f"neither table nor file is named: {said}"
        columns = list(enumerate(COLUMNS.split(", ")[1:], start=2))
        wrong = [(row[:2], name) for row in answer["rows"] for place, name in columns if not self._has(row, place)]
        if wrong:
            return f"{len(wrong)} wrong values (address, id and column): {wrong[:5]}"
        if same_rows and sorted(row[0] for row in answer["rows"]) != sorted(row[0] for row in self.rows):
            return f"{len(answer['rows'])} rows instead of {len(self.rows)}"
        return None

    def _has(self, row: list[Any], place: int) -> bool:
        mine = [mine for mine in self.rows if mine[0] == row[0] or mine[1] == row[1]]
        return any(mine[place] == row[place] for mine in mine)


def manifest_of(table: Path) -> Path:
    """Returns the path of the newest manifest: names of manifests count down, so it is the smallest."""
    return min((table / "_versions").iterdir())
