"""Reads and changes the parts of Lance's files that tests damage, as in Lance's `file2.proto` and `table.proto`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: The footer of a data file: the offsets of the column metadata, of the column table and of the buffer table; the
#: numbers of buffers and of columns; the version (major, minor); the magic bytes.
FOOTER = struct.Struct("<QQQIIHH4s")
#: The footer of a manifest: the offset of its message; the version (major, minor); the magic bytes.
MANIFEST_FOOTER = struct.Struct("<QHH4s")

#: The fields of a Protocol Buffers message in order, as (field number, bytes or integer).
Fields = list[tuple[int, "int | bytes"]]

#: Wire types of Protocol Buffers.
_VARINT, _BYTES = 0, 2


@dataclass(frozen=True)
class DataFile:
    """The byte ranges of the parts of a data file, each as (start, end)."""

    #: The page table of each column.
    columns: list[tuple[int, int]]
    column_table: tuple[int, int]
    #: The global buffers; the first one is the schema.
    buffers: list[tuple[int, int]]
    buffer_table: tuple[int, int]
    footer: tuple[int, int]

    @classmethod
    def of(cls, stored: bytes) -> DataFile:
        """Returns the parts of an undamaged file."""
        footer = len(stored) - FOOTER.size
        _, columns, buffers, num_buffers, num_columns, _, _, magic = FOOTER.unpack_from(stored, footer)
        assert magic == b"LANC"
        return cls(
            columns=_parts(stored, columns, num_columns),
            column_table=(columns, columns + 16 * num_columns),
            buffers=_parts(stored, buffers, num_buffers),
            buffer_table=(buffers, buffers + 16 * num_buffers),
            footer=(footer, len(stored)),
        )

    @property
    def metadata(self) -> dict[str, list[tuple[int, int]]]:
        """All parts that are not data pages, by kind."""
        kinds = {
            "page tables": self.columns,
            "column table": [self.column_table],
            "schema": self.buffers[:1],
            "buffers": self.buffers[1:],
            "buffer table": [self.buffer_table],
            "footer": [self.footer],
        }
        return {kind: parts for kind, parts in kinds.items() if parts}


@dataclass
class Page:
    """An entry of a page table: the offsets and sizes of a page's buffers, and its rows."""

    offsets: list[int]
    sizes: list[int]
    num_rows: int
    encoding: bytes
    first_row: int


def pages_of(stored: bytes) -> list[Page]:
    """Returns the page table of a data file's first column."""
    start, end = DataFile.of(stored).columns[0]
    return [_page(value) for number, value in fields_of(stored[start:end]) if number == 2]


def with_pages(stored: bytes, change: Callable[[list[Page]], None]) -> bytes:
    """Returns the data file with a changed page table of its first column; the size of the file may change."""
    file, pages = DataFile.of(stored), pages_of(stored)
    change(pages)
    columns = [stored[start:end] for start, end in file.columns]
    others = [(number, value) for number, value in fields_of(columns[0]) if number != 2]
    columns[0] = message([*others, *((2, _stored_page(page)) for page in pages)])
    first = file.columns[0][0]
    starts = [first + sum(map(len, columns[:index])) for index in range(len(columns) + 1)]
    parts = zip(starts, columns, strict=False)
    column_table = b"".join(struct.pack("<QQ", start, len(column)) for start, column in parts)
    numbers = FOOTER.unpack_from(stored, file.footer[0])
    footer = FOOTER.pack(first, starts[-1], starts[-1] + len(column_table), *numbers[3:])
    return stored[:first] + b"".join(columns) + column_table + stored[slice(*file.buffer_table)] + footer


def with_fragment(stored: bytes, index: int, change: Callable[[Fields], Fields]) -> bytes:
    """Returns the manifest with one fragment changed.

    Field 1 of a fragment is its id, each field 2 is a data file, and field 4 is the number of its rows.
    """
    footer = len(stored) - MANIFEST_FOOTER.size
    start = MANIFEST_FOOTER.unpack_from(stored, footer)[0]
    (length,) = struct.unpack_from("<I", stored, start)
    fields = fields_of(stored[start + 4 : start + 4 + length])
    place = [place for place, (number, _) in enumerate(fields) if number == 2][index]
    fields[place] = (2, message(change(fields_of(fields[place][1]))))
    changed = message(fields)
    return stored[:start] + struct.pack("<I", len(changed)) + changed + stored[footer:]


def written_earlier(stored: bytes, secs: int) -> bytes:
    """Returns the manifest with its time, which is field 7, set back by `secs` seconds."""
    footer = len(stored) - MANIFEST_FOOTER.size
    start = MANIFEST_FOOTER.unpack_from(stored, footer)[0]
    (length,) = struct.unpack_from("<I", stored, start)
    fields = fields_of(stored[start + 4 : start + 4 + length])
    (place,) = [place for place, (number, _) in enumerate(fields) if number == 7]
    time = [(number, int(value) - secs if number == 1 else value) for number, value in fields_of(fields[place][1])]
    fields[place] = (7, message(time))
    changed = message(fields)
    return stored[:start] + struct.pack("<I", len(changed)) + changed + stored[footer:]


def fields_of(stored: int | bytes) -> Fields:
    """Decodes a Protocol Buffers message into its fields."""
    assert isinstance(stored, bytes)
    fields: Fields = []
    at = 0
    while at < len(stored):
        key, at = _read_varint(stored, at)
        value, at = _read_varint(stored, at)
        if key % 8 == _VARINT:
            fields.append((key // 8, value))
        else:
            assert key % 8 == _BYTES
            fields.append((key // 8, stored[at : at + value]))
            at += value
    return fields


def message(fields: Fields) -> bytes:
    """Encodes fields as a Protocol Buffers message."""
    stored = b""
    for number, value in fields:
        if isinstance(value, int):
            stored += _varint(number * 8 + _VARINT) + _varint(value)
        else:
            stored += _varint(number * 8 + _BYTES) + _varint(len(value)) + value
    return stored


def _parts(stored: bytes, table: int, num: int) -> list[tuple[int, int]]:
    parts = [struct.unpack_from("<QQ", stored, table + 16 * index) for index in range(num)]
    return [(start, start + size) for start, size in parts]


def _page(stored: int | bytes) -> Page:
    fields = dict(fields_of(stored))
    offsets, sizes = (list(_varints(fields.get(number, b""))) for number in (1, 2))
    return Page(offsets, sizes, fields.get(3, 0), fields.get(4, b""), fields.get(5, 0))


def _stored_page(page: Page) -> bytes:
    offsets, sizes = (b"".join(map(_varint, values)) for values in (page.offsets, page.sizes))
    return message([(1, offsets), (2, sizes), (3, page.num_rows), (4, page.encoding), (5, page.first_row)])


def _varints(stored: bytes) -> Iterator[int]:
    at = 0
    while at < len(stored):
        value, at = _read_varint(stored, at)
        yield value


def _read_varint(stored: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (stored[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if stored[at - 1] < 0x80:
            return value, at


def _varint(value: int) -> bytes:
    stored = b""
    while value >= 0x80:
        stored += bytes([value & 0x7F | 0x80])
        value >>= 7
    return stored + bytes([value])
