"""The doctor's findings about tables of pylance are true, and its lines of Python repair the tables."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from conftest import Server

import stoker

NUM_ROWS = 60
LENGTH = 3_000

#: The findings about any heavy column of another writer than Stoker, unless another finding says to rewrite the column.
OF_OTHERS = ["no_checksums", "shared_file"]


@dataclass(frozen=True)
class Case:
    """A table, and the expected verdict and findings about its column `x`."""

    name: str
    write: Callable[[str], object]
    verdict: str
    found: list[str]
    #: The verdict about heavy columns and the findings after the first example of a finding has been executed.
    mended: tuple[str, list[str]] | None = None


def numbers(num: int, seed: int = 0) -> np.ndarray:
    """Returns random bytes, which do not compress."""
    return np.random.default_rng(seed).integers(0, 256, num, dtype=np.uint8)


def lists(length: int = LENGTH, null_rows: tuple[int, ...] = (), null_items: tuple[int, ...] = ()) -> pa.Array:
    """Returns a fixed-size list of bytes for each row."""
    stored = numbers(NUM_ROWS * length)
    items = pa.array(stored, mask=np.isin(np.arange(len(stored)), null_items)) if null_items else pa.array(stored)
    mask = pa.array([row in null_rows for row in range(NUM_ROWS)]) if null_rows else None
    return pa.FixedSizeListArray.from_arrays(items, length, mask=mask)


def tensors(null_rows: tuple[int, ...]) -> pa.Array:
    """Returns the same lists as tensors of shape (3, 50, 20)."""
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.uint8(), (3, 50, 20)), lists(null_rows=null_rows))


def lists_of_lists() -> pa.Array:
    """Returns three inner lists for each row, each with a third of its bytes."""
    inner = pa.FixedSizeListArray.from_arrays(pa.array(numbers(NUM_ROWS * LENGTH)), LENGTH // 3)
    return pa.FixedSizeListArray.from_arrays(inner, 3)


def ragged(kind: pa.DataType) -> pa.Array:
    """Returns lists that all have the same length, in a type that does not fix the length."""
    return pa.array(numbers(NUM_ROWS * LENGTH).reshape(NUM_ROWS, LENGTH).tolist(), kind)


def booleans() -> pa.Array:
    """Returns a fixed-size list of booleans for each row."""
    return pa.FixedSizeListArray.from_arrays(pa.array(numbers(NUM_ROWS * LENGTH) > 99), LENGTH)


def fixed_size_binary() -> pa.Array:
    """Returns fixed-size binary values."""
    return pa.array([numbers(LENGTH, row).tobytes() for row in range(NUM_ROWS)], pa.binary(LENGTH))


def media() -> pa.Array:
    """Returns values of different lengths that begin like JPEG files."""
    return pa.array([b"\xff\xd8\xff" + numbers(40_000 + row, row).tobytes() for row in range(NUM_ROWS)])


def writes(
    make: Callable[[], pa.Array], metadata: dict[str, str] | None = None, **options: Any
) -> Callable[[str], object]:
    """Returns a function that writes the table `t` with the columns `id` and `x`, with 20 rows per fragment."""

    def write(root: str) -> object:
        x = make()
        schema = pa.schema([pa.field("id", pa.int64()), pa.field("x", x.type, metadata=metadata)])
        table = pa.table([pa.array(range(len(x))), x], schema=schema)
        return lance.write_dataset(table, f"{root}/t.lance", max_rows_per_file=20, **options)

    return write


def added_later(root: str) -> None:
    """Writes a table whose column `x` is missing in the first two of three fragments."""
    dataset = lance.write_dataset(pa.table({"id": range(40)}), f"{root}/t.lance", max_rows_per_file=20)
    dataset.add_columns(pa.field("x", pa.list_(pa.uint8(), LENGTH)))
    rows = pa.table({"id": range(NUM_ROWS), "x": lists()}).slice(40)
    lance.write_dataset(rows, f"{root}/t.lance", mode="append")


def pieces(root: str) -> None:
    """Writes a table in which small pages of two columns alternate in the file."""
    table = pa.table({"id": range(NUM_ROWS), "x": lists(12_000), "y": lists(12_000)})
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1))
    lance.write_dataset(reader, f"{root}/t.lance", data_cache_bytes=1_024)


def clone(root: str) -> None:
    """Writes a shallow clone, whose files are those of another table."""
    source = lance.write_dataset(pa.table({"id": range(NUM_ROWS), "x": lists()}), f"{root}/source.lance")
    source.shallow_clone(f"{root}/t.lance", 1)


CASES = [
    Case("plain", writes(lists), "dense", OF_OTHERS, ("dense", [])),
    Case("version 2.1", writes(lists, data_storage_version="2.1"), "dense", OF_OTHERS, ("dense", [])),
    Case("version 2.0", writes(lists, data_storage_version="2.0"), "decoder", ["old_file"], ("dense", [])),
    Case(
        "ignored compression", writes(lists, {"lance-encoding:compression": "zstd"}), "dense", OF_OTHERS, ("dense", [])
    ),
    Case("vectors", writes(lambda: lists(400)), "dense", []),
    Case("narrow", writes(lambda: lists(64)), "light", []),
    Case("null rows", writes(lambda: lists(null_rows=(3, 21))), "decoder", ["nulls"], ("dense", [])),
    Case("null tensors", writes(lambda: tensors(null_rows=(3,))), "decoder", ["nulls"], ("dense", [])),
    Case("only nulls", writes(lambda: lists(null_rows=(*range(60),))), "decoder", ["only_nulls"], ("dense", [])),
    Case("null items", writes(lambda: lists(null_items=(5,))), "decoder", ["null_items"], ("dense", [])),
    Case(
        "blocks",
        writes(lists, {"lance-encoding:structural-encoding": "miniblock"}),
        "decoder",
        ["not_row_by_row"],
        ("dense", []),
    ),
    Case("lists", writes(lambda: ragged(pa.list_(pa.int32()))), "light", ["lists"], ("dense", [])),
    Case("large lists", writes(lambda: ragged(pa.large_list(pa.float32()))), "light", ["lists"], ("dense", [])),
    Case("lists of lists", writes(lists_of_lists), "decoder", ["elements"], ("dense", [])),
    Case("booleans", writes(booleans), "decoder", ["elements"], ("dense", [])),
    Case("fixed-size binary", writes(fixed_size_binary), "decoder", ["fixed_size_binary"], ("dense", [])),
    Case(
        "structs",
        writes(lambda: pa.StructArray.from_arrays([lists(), pa.array(range(NUM_ROWS))], ["pixels", "n"])),
        "decoder",
        ["struct"],
        ("dense", []),
    ),
    Case(
        "media",
        writes(media),
        "decoder",
        ["variable_width", "media_compressed", *OF_OTHERS],
        ("decoder", ["variable_width"]),
    ),
    Case(
        "media as they are",
        writes(media, {"lance-encoding:compression": "none"}),
        "decoder",
        ["variable_width", *OF_OTHERS],
        ("decoder", ["variable_width"]),
    ),
    Case("added later", added_later, "decoder", ["missing_values"], ("dense", [])),
    Case("pieces", pieces, "dense", ["no_checksums", "small_pieces", "shared_file"], ("dense", [])),
    Case("clone", clone, "decoder", ["other_base"], ("dense", [])),
]


def bytes_read(lake: stoker.Lake) -> int:
    """Streams column `x`; returns the number of bytes that were read by offset, without a decoder."""
    stream = lake.sql("SELECT x FROM t").stream(batch_size=16, allow_nulls=True)
    assert sum(batch.num_valid for batch in stream) == NUM_ROWS
    return stream.stats().bytes_read


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_verdicts_are_true_and_remedies_work(case: Case, tmp_path: Path) -> None:
    case.write(str(tmp_path))
    lake = stoker.connect(str(tmp_path))
    table = lake.table("t")
    findings = [finding for finding in table.doctor() if finding.column == "x"]
    (layout,) = [layout for layout in table.describe() if layout.name == "x"]
    assert (layout.verdict, [finding.code for finding in findings]) == (case.verdict, case.found)
    assert all(finding.what and finding.cost and finding.remedy for finding in findings)
    if case.verdict == "dense":
        assert layout.bytes_per_row is not None
        assert bytes_read(lake) >= NUM_ROWS * layout.bytes_per_row
    else:
        assert bytes_read(lake) == 0
    examples = [finding.example for finding in findings if finding.example]
    assert bool(examples) == (case.mended is not None)
    if case.mended is not None:
        exec(examples[0].replace("LENGTH", str(LENGTH)), {"lake": lake})
        mended = lake.table("t")
        heavy = {layout.verdict for layout in mended.describe() if layout.heavy}
        assert (heavy, [finding.code for finding in mended.doctor()]) == ({case.mended[0]}, case.mended[1])
        assert mended.num_rows == NUM_ROWS


def test_nulls_become_zeros_that_are_marked(tmp_path: Path) -> None:
    writes(lambda: tensors(null_rows=(3, 40)))(str(tmp_path))
    lake = stoker.connect(str(tmp_path))
    (finding,) = [finding for finding in lake.table("t").doctor() if finding.column == "x"]
    assert finding.what == "a page holds nulls, so that every row has a control word (2 of 3 fragments, the first is 0)"
    assert finding.example is not None
    exec(finding.example, {"lake": lake})
    rows = lake.sql("SELECT * FROM t ORDER BY id").to_arrow()
    assert rows.schema.field("x").type == pa.fixed_shape_tensor(pa.uint8(), (3, 50, 20))
    values = rows["x"].combine_chunks().to_numpy_ndarray().reshape(NUM_ROWS, LENGTH)
    expected = numbers(NUM_ROWS * LENGTH).reshape(NUM_ROWS, LENGTH)
    expected[[3, 40]] = 0
    np.testing.assert_array_equal(values, expected)
    assert [row for row, valid in enumerate(rows["x_valid"].to_pylist()) if not valid] == [3, 40]


def test_small_fragments_and_deleted_rows(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    images = numbers(NUM_ROWS * LENGTH).reshape(NUM_ROWS, 3, 50, 20)
    table = lake.create_table("t", {"id": range(NUM_ROWS), "x": images}, rows_per_fragment=1)
    assert [(finding.column, finding.code) for finding in table.doctor()] == [(None, "small_fragments")]
    lance.dataset(f"{tmp_path}/t.lance").optimize.compact_files()
    compacted = lake.table("t")
    found = [(finding.column, finding.code) for finding in compacted.doctor()]
    assert found == [*(("x", code) for code in OF_OTHERS), (None, "unchecked_columns")]
    row_ids = lake.sql("SELECT row_id FROM row_ids(t) LIMIT 8").to_arrow()["row_id"].to_pylist()
    (deleted,) = [finding for finding in compacted.quarantine(row_ids).doctor() if finding.code == "deleted_rows"]
    assert (deleted.code, deleted.what) == ("deleted_rows", "8 of 60 rows are deleted (13 %)")
    assert str(deleted).startswith("table [deleted_rows]: 8 of 60 rows are deleted (13 %)\n  costs: ")
    assert deleted.remedy.startswith("compact the table: checksums stay and indexes follow")
    assert deleted.example == 'lake.table("t").compact()'
    exec(deleted.example, {"lake": lake})
    assert (lake.table("t").doctor(), lake.table("t").num_rows) == ([], 52)


def test_blobs_have_advice(tmp_path: Path) -> None:
    field = pa.field("x", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = pa.table([media().cast(pa.large_binary())], schema=pa.schema([field]))
    lance.write_dataset(table, f"{tmp_path}/t.lance")
    findings = [finding for finding in stoker.connect(str(tmp_path)).table("t").doctor() if finding.column == "x"]
    assert [finding.code for finding in findings] == ["blob", "no_checksums"]
    assert findings[0].example is None


def test_the_command_and_the_server_say_the_same(tmp_path: Path) -> None:
    writes(lambda: lists(null_rows=(3,)))(str(tmp_path))
    here = stoker.connect(str(tmp_path)).table("t")
    server = Server(str(tmp_path))
    try:
        there = stoker.connect(server.url).table("t")
        assert there.doctor() == here.doctor()
        for target in (["--lake", str(tmp_path)], ["--server", server.url]):
            command = [os.environ["STOKER_BIN"], "doctor", "t", *target]
            answer = json.loads(subprocess.run([*command, "--json"], check=True, capture_output=True, text=True).stdout)
            assert [(column["name"], column["verdict"]) for column in answer["columns"]] == [
                (layout.name, layout.verdict) for layout in here.describe()
            ]
            assert [stoker.Finding(**finding) for finding in answer["findings"]] == here.doctor()
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            assert said.startswith("t version 1, 60 rows\ncolumn  kind ")
            assert "\n".join(["", *(f"{finding}\n" for finding in here.doctor())]) in said
    finally:
        server.stop()
