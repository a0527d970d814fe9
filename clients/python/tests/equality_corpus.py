"""A corpus of Lance tables: both writers, all file versions, and the layouts that updates and compactions leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.arrow import BFloat16Type
from table_data import PYLANCE, WRITERS, lists, numbers, plain, rows, write

import stoker

#: Types of the elements of fixed-size lists that are stored as plain bytes.
ELEMENTS = {
    **{f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "time32": pa.time32("ms"),
    "time64": pa.time64("us"),
    "timestamp": pa.timestamp("ns", "UTC"),
    "duration": pa.duration("us"),
    "decimal128": pa.decimal128(20, 3),
    "decimal256": pa.decimal256(50, 3),
}

#: Approximate bytes per row: `narrow` is packed in chunks, `small` is plain in a light column, the others are plain in
#: heavy columns.
WIDTHS = {"narrow": 48, "small": 600, "kib": 1_500, "wide": 8_500, "huge": 66_000}


@dataclass(frozen=True)
class Case:
    """A table of the corpus."""

    name: str
    #: Writes the table `t` into a lake; takes the root and the writer.
    build: Callable[[str, str], None]
    #: The columns that must be read as plain bytes; all others must not.
    dense: frozenset[str]
    writers: tuple[str, ...]


#: Tables with one element type each.
ELEMENT_CASES: list[Case] = []
#: All other tables.
CASES: list[Case] = []


def case(dense: str = "", writers: tuple[str, ...] = WRITERS) -> Callable[[Any], Any]:
    """Returns a decorator that adds a builder to the corpus, under the name of the function."""

    def add(build: Callable[[str, str], None]) -> Callable[[str, str], None]:
        CASES.append(Case(build.__name__, build, frozenset(dense.split()), writers))
        return build

    return add


def _of_element(kind: pa.DataType, widths: Iterable[str]) -> Callable[[str, str], None]:
    def build(root: str, writer: str) -> None:
        write(root, writer, rows(range(12), **{name: lists(kind, WIDTHS[name], range(12)) for name in widths}))

    return build


for _name, _kind in ELEMENTS.items():
    _dense = frozenset(WIDTHS) - {"narrow"}
    ELEMENT_CASES.append(Case(_name, _of_element(_kind, WIDTHS), _dense, WRITERS))
# A boolean takes one bit, and Lance refuses to store wider rows of booleans.
ELEMENT_CASES.append(Case("bool", _of_element(pa.bool_(), ["narrow", "small", "kib"]), frozenset(), WRITERS))


@case("w256 w257 w1023 w1025 w8191 w8193 w65537")
def widths_at_borders(root: str, writer: str) -> None:
    widths = (1, 127, 129, 255, 256, 257, 1023, 1025, 8191, 8193, 65537)
    arrays = {f"w{width}": pa.FixedSizeListArray.from_arrays(numbers(pa.uint8(), 7 * width), width) for width in widths}
    write(root, writer, rows(range(7), **arrays))


@case(writers=("2.0", "2.3"))
def files_of_versions_without_plain_pages(root: str, writer: str) -> None:
    write(root, writer, plain(range(20)))


@case("x y z")
def several_fragments(root: str, writer: str) -> None:
    write(root, writer, plain(range(40)))


@case("x y z", writers=PYLANCE)
def many_small_pages(root: str, writer: str) -> None:
    write(root, writer, plain(range(60)), rows_per_file=100, data_cache_bytes=1_024)


@case("x")
def pages_of_8_mib(root: str, writer: str) -> None:
    write(root, writer, rows(range(6), x=lists(pa.uint16(), 2_000_000, range(6))))


@case("x")
def rows_of_more_than_a_page(root: str, writer: str) -> None:
    write(root, writer, rows(range(2), x=lists(pa.float64(), 8_500_000, range(2))))


@case("y z", writers=PYLANCE)
def null_rows_in_one_fragment(root: str, writer: str) -> None:
    with_null = lists(pa.uint8(), 3_000, range(20), null_rows=(12,))
    write(root, writer, plain(range(20)).set_column(1, "x", with_null))


@case("beside", writers=PYLANCE)
def null_rows_and_null_items(root: str, writer: str) -> None:
    ids = range(20)
    mask = np.random.default_rng(2).integers(0, 7, 20 * 701) == 0
    items = lists(pa.float16(), 1_402, ids).flatten().take(pa.array(np.arange(20 * 701), mask=mask))
    columns = {
        "x": lists(pa.float32(), 1_500, ids, null_rows=(0, 3, 19)),
        "tiny": lists(pa.int8(), 9, ids, null_rows=(5,)),
        "never": lists(pa.int16(), 1_500, ids, null_rows=ids),
        "items": pa.FixedSizeListArray.from_arrays(items, 701),
        "beside": lists(pa.float32(), 1_500, ids),
    }
    write(root, writer, rows(ids, **columns))


@case("x y z")
def deleted_rows(root: str, writer: str) -> None:
    dataset = write(root, writer, plain(range(40)))
    dataset.delete("id % 3 = 1")
    dataset.delete("id >= 9 AND id < 18")


@case("x y z", writers=("stoker",))
def quarantined_rows(root: str, writer: str) -> None:
    write(root, writer, plain(range(20)))
    stoker.connect(root).table("t").quarantine([0, 8, 1 << 32])


@case("x y z")
def all_rows_deleted(root: str, writer: str) -> None:
    write(root, writer, plain(range(10))).delete("id >= 0")


@case("x y z")
def rows_of_both_writers(root: str, writer: str) -> None:
    write(root, writer, plain(range(12)))
    write(root, "stoker" if writer in PYLANCE else "2.2", plain(range(12, 30)), mode="append")


@case("y z", writers=PYLANCE)
def rows_without_a_column(root: str, writer: str) -> None:
    write(root, writer, plain(range(12)))
    write(root, writer, plain(range(12, 20)).drop_columns(["x"]), mode="append")


@case("x y z added light")
def added_columns(root: str, writer: str) -> None:
    dataset = write(root, writer, plain(range(30)))
    dataset.delete("id = 7")
    added = pa.table({"added": lists(pa.int32(), 5_000, range(29)), "light": lists(pa.float64(), 500, range(29))})
    dataset.add_columns(added.to_reader(max_chunksize=4))
    dataset.add_columns({"twice": "id * 2"})


@case("x y z")
def added_column_of_nulls(root: str, writer: str) -> None:
    write(root, writer, plain(range(20))).add_columns(pa.field("nothing", pa.list_(pa.float32(), 500)))


@case("x y cast")
def dropped_renamed_and_cast_columns(root: str, writer: str) -> None:
    dataset = write(root, writer, plain(range(20)).append_column("cast", lists(pa.float32(), 1_500, range(20))))
    dataset.drop_columns(["x"])
    dataset.alter_columns({"path": "y", "name": "x"}, {"path": "z", "name": "y"})
    dataset.alter_columns({"path": "cast", "data_type": pa.list_(pa.float64(), 375)})


@case("x y z")
def updated_rows(root: str, writer: str) -> None:
    write(root, writer, plain(range(30))).update({"name": "'changed'"}, where="id % 4 = 1")


@case("x y z")
def merged_rows(root: str, writer: str) -> None:
    dataset = write(root, writer, plain(range(30)))
    changed = rows(range(25, 35), **{name: plain(range(50, 60))[name].combine_chunks() for name in "xyz"})
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(changed)


@case("x y z")
def merged_columns(root: str, writer: str) -> None:
    dataset = write(root, writer, plain(range(30)))
    changed = pa.table({"id": pa.array(range(30)), "y": lists(pa.uint8(), 3_000, range(300, 330))})
    dataset.merge_insert("id").when_matched_update_all().execute(changed)


@case("x y z")
def compacted(root: str, writer: str) -> None:
    dataset = write(root, writer, plain(range(40)), rows_per_file=4)
    dataset.delete("id % 4 = 2")
    dataset.optimize.compact_files(target_rows_per_fragment=16)


@case("x y z", writers=PYLANCE)
def compacted_by_copying(root: str, writer: str) -> None:
    dataset = write(root, writer, plain(range(40)), rows_per_file=4)
    dataset.optimize.compact_files(target_rows_per_fragment=16, compaction_mode="force_binary_copy")


@case("x y z", writers=PYLANCE)
def stable_row_ids(root: str, writer: str) -> None:
    dataset = write(root, writer, plain(range(30)), enable_stable_row_ids=True)
    dataset.delete("id % 5 = 0")
    dataset.update({"name": "'changed'"}, where="id = 12")
    dataset.optimize.compact_files(target_rows_per_fragment=20)


@case("x y z")
def restored_version(root: str, writer: str) -> None:
    write(root, writer, plain(range(20))).delete("id < 5")
    write(root, writer, plain(range(20, 30)), mode="append")
    lance.dataset(f"{root}/t.lance", version=2).restore()


@case()
def shallow_clone(root: str, writer: str) -> None:
    write(f"{root}/other", writer, plain(range(20))).shallow_clone(f"{root}/t.lance", 1)


@case("zstd lz4 zipped")
def compression_that_is_asked_for(root: str, writer: str) -> None:
    keys = {"zstd": "compression", "lz4": "compression", "fullzip": "structural-encoding"}
    table = rows(range(20))
    for name, value in (("zstd", "zstd"), ("lz4", "lz4"), ("zipped", "fullzip"), ("packed", "zstd")):
        values = lists(pa.float32(), 40 if name == "packed" else 2_000, [1] * 20)
        field = pa.field(name, values.type, metadata={f"lance-encoding:{keys[value]}": value})
        table = table.append_column(field, values)
    write(root, writer, table)


@case("tensor brain")
def tensors(root: str, writer: str) -> None:
    lengths = {"tensor": 3 * 20 * 20, "brain": 700, "theirs": 700}
    flat = {"tensor": numbers(pa.float32(), 11 * 1200), "brain": numbers(pa.uint16(), 11 * 700)}
    flat["theirs"] = pa.ExtensionArray.from_storage(BFloat16Type(), numbers(pa.binary(2), 11 * 700))
    arrays = {name: pa.FixedSizeListArray.from_arrays(values, lengths[name]) for name, values in flat.items()}
    table = rows(range(11), theirs=arrays["theirs"])
    tensor = pa.fixed_shape_tensor(pa.float32(), (3, 20, 20))
    table = table.append_column("tensor", pa.ExtensionArray.from_storage(tensor, arrays["tensor"]))
    brain = pa.field("brain", arrays["brain"].type, metadata={"stoker.dtype": "bfloat16"})
    write(root, writer, table.append_column(brain, arrays["brain"]))


@case("beside")
def nested_types(root: str, writer: str) -> None:
    lengths = np.random.default_rng(1).integers(0, 6, 20)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    squares = pa.FixedSizeListArray.from_arrays(numbers(pa.float32(), 20 * 8 * 64), 64)
    little = pa.FixedSizeListArray.from_arrays(numbers(pa.int8(), 120), 3)
    deep = [[[j] * (j % 3) for j in range(i % 4)] if i % 6 else None for i in range(20)]
    pair = [numbers(pa.float64(), 20), lists(pa.uint8(), 2_000, range(20))]
    columns = {
        "squares": pa.FixedSizeListArray.from_arrays(squares, 8),
        "little": pa.FixedSizeListArray.from_arrays(little, 2),
        "ragged": pa.ListArray.from_arrays(offsets, numbers(pa.float32(), int(lengths.sum()))),
        "deep": pa.array(deep, pa.list_(pa.list_(pa.int64()))),
        "lists": pa.array([[b"x" * i, None] for i in range(20)], pa.list_(pa.binary())),
        "tensors": pa.ListArray.from_arrays(pa.array(range(21), pa.int32()), lists(pa.uint8(), 2_000, range(20))),
        "struct": pa.StructArray.from_arrays(pair, ["number", "list"]),
        "beside": lists(pa.int32(), 2_000, range(20)),
    }
    write(root, writer, rows(range(20), **columns))


@case("beside")
def binary_values_and_text(root: str, writer: str) -> None:
    sizes = np.random.default_rng(5).integers(0, 3_000, 25)
    values = [None if i % 7 == 3 else np.random.default_rng(i).bytes(int(size)) for i, size in enumerate(sizes)]
    columns = {
        "small": pa.array(values, pa.binary()),
        "large": pa.array([np.random.default_rng(i).bytes(40_000 + i) for i in range(25)], pa.large_binary()),
        "fixed": numbers(pa.binary(2_000), 25),
        "tag": numbers(pa.binary(16), 25),
        "text": pa.array(["ß" * int(size) for size in sizes], pa.large_string()),
        "flag": pa.array([[None, True, False][i % 3] for i in range(25)]),
        "beside": lists(pa.int32(), 2_000, range(25)),
    }
    write(root, writer, rows(range(25), **columns))
