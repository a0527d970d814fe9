"""After damage at random offsets of a table's metadata, the values read are right, or an error says what is damaged.

The guarantee depends on the writer of the files, because Lance itself has no checksums:

- Values that Stoker wrote are right, or the damage is reported: checksums cover them. For damage in the pages of light
  columns, see :mod:`test_light_damage`.
- Values of other writers are wrong without an error if the damage is in a page, or moves a page in the page table to
  an offset that is possible for a page. So these tests damage no pages; for pages with checksums, see
  :mod:`test_damaged_tables`.
- A damaged manifest or deletion file may remove rows or bring back deleted ones. The values within a row still belong
  together.
- Damage never causes a panic, a crash or a hang, and never an error for which a retry is advised.

A seed chooses the same file and offset in each run. Manifests contain times and random names, so their bytes differ
from run to run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from damage import DAMAGED, DAMAGED_MANIFEST, Intact, Reader, manifest_of
from lance_files import DataFile
from table_data import WRITERS

SEEDS = range(150)


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    reader.stop()


@pytest.fixture(scope="module", params=WRITERS)
def intact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, reader: Reader) -> Intact:
    return Intact.make(tmp_path_factory.mktemp("intact"), request.param, reader)


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_metadata_is_reported_or_harmless(intact: Intact, reader: Reader, seed: int, tmp_path: Path) -> None:
    table = intact.copy(tmp_path)
    random = Random(seed)
    place = random.choices(["metadata", "manifest", "deletions", "length"], [100, 25, 10, 15])[0]
    manifest, deletions = manifest_of(table), next((table / "_deletions").iterdir())
    files = [table / "data" / name for name in intact.data_files()]
    path = {"metadata": random.choice(files), "manifest": manifest, "deletions": deletions}.get(place)
    if path is None:
        path = random.choice([*files, manifest, deletions])
        what = cut_or_extend(path, random)
    else:
        what = overwrite(path, random, whole=place != "metadata")
    print(f"{path}: {what}")
    is_data = path in files
    errors = DAMAGED_MANIFEST if path == manifest else DAMAGED
    intact.check(reader.read(str(tmp_path)), errors=errors, same_rows=is_data)
    shutil.rmtree(tmp_path)


def cut_or_extend(path: Path, random: Random) -> str:
    """Truncates a file or appends bytes to it; returns a description."""
    stored = path.read_bytes()
    if random.random() < 0.5:
        length = random.randrange(len(stored))
        path.write_bytes(stored[:length])
        return f"cut from {len(stored)} bytes to {length}"
    more = random.choice([1, 8, 64, 1_000])
    path.write_bytes(stored + random.randbytes(more))
    return f"{more} bytes added"


def overwrite(path: Path, random: Random, *, whole: bool) -> str:
    """Changes some bytes of a file; returns a description.

    With `whole`, the bytes are anywhere in the file, else in one kind of metadata of a data file.
    """
    stored = bytearray(path.read_bytes())
    kind, (start, end) = "file", (0, len(stored))
    if not whole:
        metadata = DataFile.of(stored).metadata
        kind = random.choice(list(metadata))
        start, end = random.choice(metadata[kind])
    at = random.randrange(start, end)
    length = min(random.choice([1, 2, 4, 8, 16]), end - at)
    how = random.choice(["bit", "bits", "zeros", "ones", "bytes", "varint"])
    if how in ("bit", "bits"):
        for place in [at] if how == "bit" else random.choices(range(start, end), k=3):
            stored[place] ^= 1 << random.randrange(8)
    else:
        high = [0x80 | random.randrange(128) for _ in range(length - 1)]
        new = {"zeros": bytes(length), "ones": b"\xff" * length, "bytes": random.randbytes(length)}
        stored[at : at + length] = new.get(how, bytes([*high, random.randrange(128)]))
    path.write_bytes(stored)
    return f"{how} at {at} (length {length}) in {kind} ({start}..{end})"
