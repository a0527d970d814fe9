"""Reading plain bytes gives the same values as Lance's decoder, byte for byte, over a corpus of tables."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from equality_corpus import CASES, ELEMENT_CASES, Case
from same_bytes import STREAMS, assert_same, by_pylance, by_sql, by_stream
from table_data import lists, numbers, plain, rows, write

import stoker

TABLES = [
    pytest.param(case, writer, id=f"{case.name}-{writer}")
    for case in (*ELEMENT_CASES, *CASES)
    for writer in case.writers
]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[str]:
    """A folder for a lake, which is deleted after each test because all tables together are large."""
    yield str(tmp_path)
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize(("case", "writer"), TABLES)
def test_sql_and_streams_give_what_pylance_gives(case: Case, writer: str, root: str) -> None:
    case.build(root, writer)
    expected = by_pylance(root)
    lake = stoker.connect(root)
    assert_same(by_sql(lake), expected, "sql")
    bytes_read = {}
    for name, options in STREAMS.items():
        delivered, stats = by_stream(lake, options)
        assert_same(delivered, expected, name)
        bytes_read[name] = stats.bytes_read
    # `bytes_read` counts reads of byte ranges, which only the columns of `case.dense` may and must use.
    row_bytes = {layout.name: layout.bytes_per_row or 0 for layout in lake.table("t").describe()}
    plain_bytes = sum(row_bytes[name] for name in case.dense) * expected.num_rows
    assert plain_bytes <= bytes_read["sequential"] <= plain_bytes * 1.1, case.dense


def test_verification_covers_all_that_stoker_wrote(root: str) -> None:
    write(root, "stoker", plain(range(30)))
    heavy_bytes, light_bytes = 30 * 2 * 3_001, 30 * 300
    for name, options in STREAMS.items():
        rows, stats = by_stream(stoker.connect(root), options)
        assert stats.verified_bytes == heavy_bytes + light_bytes, name
        assert rows.num_rows == 30


def test_rows_without_checksums_are_read_unchecked(root: str) -> None:
    write(root, "2.1", plain(range(30)))
    for name, options in STREAMS.items():
        rows, stats = by_stream(stoker.connect(root), options)
        assert stats.verified_bytes == 0, name
        assert_same(rows, by_pylance(root), name)


def test_describe_tells_which_columns_are_read_as_plain_bytes(root: str) -> None:
    inner = pa.FixedSizeListArray.from_arrays(numbers(pa.float32(), 9 * 8 * 64), 64)
    columns = {
        "plain": lists(pa.float32(), 2_000, range(9)),
        "nested": pa.FixedSizeListArray.from_arrays(inner, 8),
        "fixed": numbers(pa.binary(2_000), 9),
        "halves": pa.FixedSizeListArray.from_arrays(numbers(pa.binary(2), 9 * 700), 700),
    }
    write(root, "2.2", rows(range(9), **columns))
    lake = stoker.connect(root)
    lake.create_table("empty", rows([], plain=columns["plain"].slice(0, 0)))
    dense = {
        table: [column.name for column in lake.table(table).describe() if column.dense] for table in ("t", "empty")
    }
    _, stats = by_stream(lake, STREAMS["sequential"])
    assert stats.bytes_read == 9 * 2_004
    assert dense == {"t": ["plain"], "empty": ["plain"]}
