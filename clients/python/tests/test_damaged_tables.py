"""A table with one damaged structure gives an error that names the table or file, or the same values as before."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from damage import DAMAGED, FRAGMENT_ROWS, Intact, Reader, manifest_of
from lance_files import FOOTER, Fields, Page, fields_of, message, pages_of, with_fragment, with_pages
from table_data import WRITERS

#: Field numbers of a fragment and of a data file in the manifest.
FRAGMENT_ID, FILES, NUM_ROWS = 1, 2, 4
FILE_PATH, FILE_BYTES = 1, 6

#: Bytes of a row of `x`, and of all rows of a fragment.
ROW = 3_001
ALL_ROWS = ROW * FRAGMENT_ROWS


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    reader.stop()


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, reader: Reader) -> dict[str, Intact]:
    """An undamaged table of each writer."""
    return {writer: Intact.make(tmp_path_factory.mktemp("intact"), writer, reader) for writer in WRITERS}


def overlapping(pages: list[Page]) -> None:
    """Splits the first page in two; the second one begins a few bytes before the end of the first."""
    page = pages[0]
    half = page.num_rows // 2
    second = page.offsets[0] + half * ROW // 64 * 64
    pages[:] = [Page([at], [half * ROW], half, page.encoding, 0) for at in (page.offsets[0], second)]


def at(offset: int) -> Callable[[list[Page]], None]:
    """Returns a change that moves the first page to this offset."""

    def change(pages: list[Page]) -> None:
        pages[0].offsets[0] = offset

    return change


def later(num_bytes: int) -> Callable[[list[Page]], None]:
    """Returns a change that moves the first page by this many bytes."""
    return lambda pages: at(pages[0].offsets[0] + num_bytes)(pages)


def num_rows(rows: int) -> Callable[[list[Page]], None]:
    """Returns a change that gives the first page another number of rows, and the size that they take."""

    def change(pages: list[Page]) -> None:
        pages[0].num_rows, pages[0].sizes[0] = rows, rows * ROW

    return change


def twice(pages: list[Page]) -> None:
    overlapping(pages)
    pages[1].offsets[0] = pages[0].offsets[0]


def backwards(pages: list[Page]) -> None:
    overlapping(pages)
    pages[0].offsets, pages[1].offsets = pages[1].offsets, pages[0].offsets


def rows_beyond_64_bits(pages: list[Page]) -> None:
    """Replaces the pages by ones with 2^64 more rows in total, while the size of each page fits 64 bits."""
    page, most = pages[0], (2**64 - 1) // ROW
    num, rest = divmod(2**64 + page.num_rows, most)
    pages[:] = [Page(page.offsets, [rows * ROW], rows, page.encoding, 0) for rows in [*[most] * num, rest]]


def empty_ones_too(pages: list[Page]) -> None:
    page = pages[0]
    empty = Page([page.offsets[0]], [0], 0, page.encoding, 0)
    pages[:] = [empty, page, Page([page.offsets[0]], [0], 0, page.encoding, page.num_rows)]


def no_buffer(pages: list[Page]) -> None:
    pages[0].offsets, pages[0].sizes = [], []


#: Changes to the page table of a heavy column in one fragment. In the first five, pages begin at offsets that are
#: possible for a page.
PAGE_TABLES: dict[str, Callable[[list[Page]], None]] = {
    "a page begins 64 bytes later": later(64),
    "a page begins a page later": later((ALL_ROWS + 63) // 64 * 64),
    "two pages begin at one place": twice,
    "two pages begin in each other": overlapping,
    "pages are backwards": backwards,
    "a page begins a byte later": later(1),
    "a page begins a row later": later(ROW),
    "a page begins far beyond the end": at(2**40),
    "a page ends at 2^63": at(2**63 - 64 * (ALL_ROWS // 64 + 1)),
    "a page begins at 2^63": at(2**63),
    "a page ends beyond 2^64": at(2**64 - 64),
    "a page has a row less": num_rows(FRAGMENT_ROWS - 1),
    "a page has a row more": num_rows(FRAGMENT_ROWS + 1),
    "a page has 2^62 rows": num_rows(2**62),
    "all rows together are beyond 2^64": rows_beyond_64_bits,
    "a page has no buffer": no_buffer,
    "there are empty pages": empty_ones_too,
    "there is no page": list.clear,
    "a page comes once more": lambda pages: pages.append(pages[0]),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("change", [pytest.param(change, id=name) for name, change in PAGE_TABLES.items()])
def test_page_tables(
    tables: dict[str, Intact], reader: Reader, writer: str, change: Callable[[list[Page]], None], tmp_path: Path
) -> None:
    intact = tables[writer]
    table = intact.copy(tmp_path)
    # This column is the first one in its file, and heavy.
    column = "x" if writer == "stoker" else "y"
    name = intact.data_files(column)[1]
    path = table / "data" / name
    path.write_bytes(with_pages(path.read_bytes(), change))
    size = path.stat().st_size
    change_manifest(table, 1, lambda fields: each_file(fields, lambda file: {**file, FILE_BYTES: size}, name))
    intact.check(reader.read(str(tmp_path)))
    shutil.rmtree(tmp_path)


#: Changes to one field of a data file's footer: its index in :data:`lance_files.FOOTER`, and its new value.
FOOTERS: dict[str, tuple[int, int]] = {
    "page tables begin at 0": (0, 0),
    "page tables begin beyond the end": (0, 2**40),
    "the column table begins at 0": (1, 0),
    "the column table begins beyond the end": (1, 2**40),
    "the buffer table begins at 0": (2, 0),
    "the buffer table begins at 2^63": (2, 2**63),
    "there is no buffer": (3, 0),
    "there are 2^29 buffers": (3, 2**29),
    "there is no column": (4, 0),
    "there are 2^32 columns": (4, 2**32 - 1),
    "the version is 2.0": (6, 0),
    "the version is 2.99": (6, 99),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("change", [pytest.param(change, id=name) for name, change in FOOTERS.items()])
def test_footers(
    tables: dict[str, Intact], reader: Reader, writer: str, change: tuple[int, int], tmp_path: Path
) -> None:
    intact = tables[writer]
    path = intact.copy(tmp_path) / "data" / intact.data_files("y")[1]
    stored = path.read_bytes()
    numbers = list(FOOTER.unpack(stored[-FOOTER.size :]))
    numbers[change[0]] = change[1]
    path.write_bytes(stored[: -FOOTER.size] + FOOTER.pack(*numbers))
    intact.check(reader.read(str(tmp_path)))
    shutil.rmtree(tmp_path)


def change_manifest(table: Path, fragment: int, change: Callable[[Fields], Fields]) -> None:
    path = manifest_of(table)
    path.write_bytes(with_fragment(path.read_bytes(), fragment, change))


def each_file(fields: Fields, change: Callable[[dict[int, Any]], dict[int, Any]], name: str | None = None) -> Fields:
    """Changes all data files of a fragment, or the one with this name."""
    changed: Fields = []
    for number, value in fields:
        file = dict(fields_of(value)) if number == FILES else {}
        if file and name in (None, file[FILE_PATH].decode()):
            value = message(list(change(file).items()))
        changed.append((number, value))
    return changed


def replaced(number: int, value: int) -> Callable[[Fields], Fields]:
    """Returns a change that gives a field of a fragment another value."""
    return lambda fields: [(number, value), *(field for field in fields if field[0] != number)]


MANIFESTS: dict[str, tuple[int, Callable[[Fields], Fields]]] = {
    "two fragments have the id 1": (2, replaced(FRAGMENT_ID, 1)),
    "two fragments have the id 0": (1, replaced(FRAGMENT_ID, 0)),
    "ids are equal in 32 bits": (1, replaced(FRAGMENT_ID, 2**32)),
    "an id is the largest of 32 bits": (1, replaced(FRAGMENT_ID, 2**32 - 1)),
    "a fragment has a row less": (1, replaced(NUM_ROWS, FRAGMENT_ROWS - 1)),
    "a fragment has a row more": (1, replaced(NUM_ROWS, FRAGMENT_ROWS + 1)),
    "a fragment has 2^32 rows more": (1, replaced(NUM_ROWS, 2**32 + FRAGMENT_ROWS)),
    "a fragment has 2^63 rows": (1, replaced(NUM_ROWS, 2**63)),
    "files have a byte more": (1, lambda fields: each_file(fields, lambda f: {**f, FILE_BYTES: f[FILE_BYTES] + 1})),
    "files have 2^63 bytes": (1, lambda fields: each_file(fields, lambda f: {**f, FILE_BYTES: 2**63})),
    "files have other names": (1, lambda fields: each_file(fields, lambda f: {**f, FILE_PATH: b"x.lance"})),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("change", [pytest.param(change, id=name) for name, change in MANIFESTS.items()])
def test_manifests(
    tables: dict[str, Intact],
    reader: Reader,
    writer: str,
    change: tuple[int, Callable[[Fields], Fields]],
    tmp_path: Path,
) -> None:
    change_manifest(tables[writer].copy(tmp_path), *change)
    tables[writer].check(reader.read(str(tmp_path)), same_rows=False)
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("place", range(0, 640, 32))
@pytest.mark.parametrize("value", [0x00, 0xFF])
def test_deletion_files(tables: dict[str, Intact], reader: Reader, place: int, value: int, tmp_path: Path) -> None:
    """A deletion file in which eight bytes are overwritten gives an error, or changes only which rows are there.

    Deletion files are small Arrow files, and both writers write the same ones.
    """
    (path,) = (tables["stoker"].copy(tmp_path) / "_deletions").iterdir()
    stored = path.read_bytes()
    path.write_bytes(stored[:place] + bytes([value] * 8) + stored[place + 8 :])
    tables["stoker"].check(reader.read(str(tmp_path)), same_rows=False)
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize(
    "others", [("x", 0, "x", 1), ("x", 0, "y", 0), ("payload", 1, "payload", 2), ("x", 1, "payload", 1)]
)
def test_swapped_files(
    tables: dict[str, Intact], reader: Reader, others: tuple[str, int, str, int], tmp_path: Path
) -> None:
    """Two swapped data files of a table of Stoker give an error.

    In tables of other writers, Lance cannot distinguish files of the same size and schema.
    """
    intact = tables["stoker"]
    table = intact.copy(tmp_path)
    one, other = (table / "data" / intact.data_files(others[at])[others[at + 1]] for at in (0, 2))
    stored = one.read_bytes(), other.read_bytes()
    one.write_bytes(stored[1])
    other.write_bytes(stored[0])
    answers = reader.read(str(tmp_path))
    assert all(answer.get("error") in DAMAGED for answer in answers.values()), "nobody noticed"
    intact.check(answers)
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("column", ["x", "y", "payload"])
@pytest.mark.parametrize("seed", range(12))
def test_flipped_bits_of_values(
    tables: dict[str, Intact], reader: Reader, column: str, seed: int, tmp_path: Path
) -> None:
    """A flipped bit in a value of a table of Stoker gives an error; in other tables it cannot, without checksums."""
    answers = flipped(tables["stoker"], reader, tmp_path, column, seed, buffer=0)
    is_reported = all(answer.get("error") in DAMAGED for answer in answers.values())
    # A page of binary values also has bytes around the values, which a reader may ignore. All bytes of a plain page are
    # values.
    assert is_reported or column == "payload"


@pytest.mark.parametrize("seed", [0, 1, 2, 4, 9])
def test_flipped_bits_of_the_index_of_binary_values(
    tables: dict[str, Intact], reader: Reader, seed: int, tmp_path: Path
) -> None:
    """A flipped bit in the index of a page, which has the offset of each value, gives an error or the same values.

    With the last of these seeds, a value begins after the next one.
    """
    flipped(tables["stoker"], reader, tmp_path, "payload", seed, buffer=1)


def flipped(intact: Intact, reader: Reader, root: Path, column: str, seed: int, *, buffer: int) -> dict[str, Any]:
    """Flips a bit in a buffer of a page, reads the table, and checks and returns the answers."""
    random = Random(seed)
    # The first fragment is left out: it has a deleted row, whose bytes are not read.
    path = intact.copy(root) / "data" / random.choice(intact.data_files(column)[1:])
    stored = bytearray(path.read_bytes())
    (page,) = pages_of(bytes(stored))
    place = page.offsets[buffer] + random.randrange(page.sizes[buffer])
    bit = random.randrange(8)
    stored[place] ^= 1 << bit
    path.write_bytes(stored)
    print(f"{path}: bit {bit} of byte {place}, in a buffer from {page.offsets[buffer]} on")
    answers = reader.read(str(root))
    intact.check(answers)
    shutil.rmtree(root)
    return answers
