"""Random streams of columns of all kinds: ranks and resumes get each row once, with the values that were written.

A seed draws the columns, the ranks, the batches, the order and the resume, and is the name of a test. The contracts of
`crates/stoker-server/src/tests/contracts` do the same in Rust, with many more cases; this is Python's edge.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from conftest import Server
from PIL import Image

import stoker

# Columns with nulls are handed out without masks.
pytestmark = pytest.mark.filterwarnings("ignore::stoker.NullsWarning")

SEEDS = range(40)
NUM_ROWS = 150
HEIGHT, WIDTH = 9, 7
#: The weights of rows, by `id % 3`.
WEIGHTS = (0, 1, 2)

Value = Callable[[int], Any]
#: Checks the value of a row of a batch: gets the batch, the name of the column, the index and the id of the row.
Check = Callable[[stoker.Batch, str, int, int], None]


@dataclass(frozen=True)
class Column:
    """A column of the table: what is written for a row, and how the value that comes is checked."""

    value: Value
    check: Check
    kind: pa.DataType | None = None
    codec: str | None = None
    decode: Any = None
    metadata: dict[str, str] = field(default_factory=dict)


def bits(value: Value) -> Check:
    """Returns the check that a value has the type, the shape and the bits of what `value` returns."""

    def check(batch: stoker.Batch, name: str, at: int, row: int) -> None:
        found, expected = np.asarray(batch[name][at]), np.asarray(value(row))
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()

    return check


def numbers(dtype: str, *shape: int, codec: str | None = None) -> Column:
    def value(row: int) -> np.ndarray[Any, Any]:
        made = (np.arange(np.prod(shape)) * 37 + row * 1_009).reshape(shape) % 30_011
        return made.astype(dtype) if dtype != "bool" else made % 3 == 0

    return Column(value, bits(value), codec=codec)


def rounded(codec: str, length: int) -> Column:
    """A lossy column: floats with 16 bits."""

    def value(row: int) -> np.ndarray[Any, Any]:
        return ((np.arange(length) * 37 + row * 1_009) % 3_001 / 7 - 200).astype(np.float32)

    def nearest(row: int) -> np.ndarray[Any, Any]:
        if codec == "float16":
            return value(row).astype(np.float16)
        return torch.from_numpy(value(row)).to(torch.bfloat16).view(torch.int16).numpy()

    def check(batch: stoker.Batch, name: str, at: int, row: int) -> None:
        found = np.asarray(batch[name][at])
        assert (found.dtype.itemsize, found.shape) == (2, (length,))
        assert found.tobytes() == nearest(row).tobytes()

    return Column(value, check, codec=codec)


def optional(kind: pa.DataType, value: Value) -> Column:
    """A column of numbers, texts or structs with nulls."""

    def check(batch: stoker.Batch, name: str, at: int, row: int) -> None:
        expected = value(row)
        assert batch.is_valid(name)[at] == (expected is not None)
        assert expected is None or batch[name][at] == expected

    return Column(value, check, kind)


def ragged(kind: pa.DataType, value: Value, codec: str | None = None) -> Column:
    def check(batch: stoker.Batch, name: str, at: int, row: int) -> None:
        assert np.asarray(batch[name][at]).tolist() == value(row)

    return Column(value, check, kind, codec)


def picture(number: int) -> np.ndarray[Any, Any]:
    return ((np.arange(HEIGHT * WIDTH * 3) * 11 + number * 17) % 256).astype(np.uint8).reshape(HEIGHT, WIDTH, 3)


def png(number: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture(number)).save(file, "PNG")
    return file.getvalue()


def image(kind: pa.DataType) -> Column:
    transform = stoker.ImageTransform(size=(HEIGHT, WIDTH))
    return Column(png, bits(lambda row: picture(row).transpose(2, 0, 1)), kind, decode=transform)


def views() -> Column:
    """Lists of up to three images, of which two are decoded."""

    def check(batch: stoker.Batch, name: str, at: int, row: int) -> None:
        num_views = min(row % 4, 2)
        assert batch[f"{name}_length"][at] == num_views
        for view in range(num_views):
            np.testing.assert_array_equal(batch[name][at, view], picture(row + view).transpose(2, 0, 1))
        assert not batch[name][at, num_views:].any()

    transform = stoker.ImageTransform(size=(HEIGHT, WIDTH), images=2)
    made = lambda row: [png(row + view) for view in range(row % 4)]  # noqa: E731
    return Column(made, check, pa.list_(pa.large_binary()), decode=transform)


def grids() -> Column:
    """Tensors of different heights."""
    kind = pa.struct([("data", pa.list_(pa.float32())), ("shape", pa.list_(pa.int32(), 2))])

    def grid(row: int) -> np.ndarray[Any, Any]:
        return (np.arange(row % 4 * 3) + row).astype(np.float32).reshape(row % 4, 3)

    metadata = {
        "ARROW:extension:name": "arrow.variable_shape_tensor",
        "ARROW:extension:metadata": json.dumps({"uniform_shape": [None, 3]}),
    }
    stored = lambda row: {"data": grid(row).reshape(-1).tolist(), "shape": [row % 4, 3]}  # noqa: E731
    return Column(stored, bits(grid), kind, metadata=metadata)


def words(row: int) -> str | None:
    return None if row % 7 == 3 else f"row {row} " * (400 if row % 50 == 9 else row % 5)


def tokens(row: int) -> list[int]:
    return [row * 100 + at for at in range(row * 7 % 23)]


def boxes(row: int) -> list[list[float]]:
    return [[row + at + side / 4 for side in range(4)] for at in range(row % 3)]


COLUMNS: dict[str, Column] = {
    "small_bytes": numbers("uint8", 2, 3),
    "large_shorts": numbers("int16", 3, 180),
    "small_doubles": numbers("float64", 2, 1),
    "large_longs": numbers("int64", 140),
    "flags": numbers("bool", 3),
    "vector": numbers("float32", 5),
    "large_vector": numbers("float32", 260),
    "whole": Column(lambda row: row * 3, bits(lambda row: np.int32(row * 3)), pa.int32()),
    "flag": Column(lambda row: row % 3 == 1, bits(lambda row: np.bool_(row % 3 == 1)), pa.bool_()),
    "whole_or_null": optional(pa.int64(), lambda row: None if row % 5 == 1 else row * 7),
    "real_or_null": optional(pa.float64(), lambda row: None if row % 4 == 1 else row / 8),
    "text": optional(pa.string(), words),
    "large_text": optional(pa.large_string(), words),
    "pair": optional(pa.struct([("a", pa.int32()), ("b", pa.string())]), lambda row: {"a": row, "b": words(row)}),
    "photo": image(pa.binary()),
    "large_photo": image(pa.large_binary()),
    "views": views(),
    "tokens": ragged(pa.list_(pa.int32()), tokens),
    "boxes": ragged(pa.list_(pa.list_(pa.float32(), 4)), boxes),
    "grid": grids(),
    "half": rounded("float16", 4),
    "large_half": rounded("float16", 540),
    "brain": rounded("bfloat16", 4),
    "large_brain": rounded("bfloat16", 540),
    "pco_small": numbers("int32", 4, codec="pco"),
    "pco_large": numbers("float32", 20, 15, codec="pco"),
    "zstd_small": numbers("uint8", 7, codec="zstd"),
    "zstd_large": numbers("int16", 540, codec="zstd:1"),
    "lz4_small": numbers("float32", 4, codec="lz4"),
    "lz4_large": numbers("uint8", 13, 100, codec="lz4"),
    "streams_small": numbers("float64", 3, codec="byte_stream_split"),
    "streams_large": numbers("int64", 300, codec="byte_stream_split"),
    "zstd_tokens": ragged(pa.list_(pa.int32()), tokens, "zstd"),
    "lz4_boxes": ragged(pa.list_(pa.list_(pa.float32(), 4)), boxes, "lz4"),
}


def written(column: Column) -> pa.Array:
    values = [column.value(row) for row in range(NUM_ROWS)]
    if column.kind is not None:
        return pa.array(values, column.kind)
    stacked = np.stack(values)
    storage = pa.FixedSizeListArray.from_arrays(pa.array(stacked.reshape(-1)), int(np.prod(stacked.shape[1:])))
    if stacked.ndim == 2:
        return storage
    tensor = pa.fixed_shape_tensor(storage.type.value_type, stacked.shape[1:])
    return pa.ExtensionArray.from_storage(tensor, storage)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    arrays = {name: written(column) for name, column in COLUMNS.items()}
    ids = np.arange(NUM_ROWS)
    arrays |= {"id": pa.array(ids), "weight": pa.array(np.array(WEIGHTS, np.float32)[ids % 3])}
    metadata = {name: column.metadata for name, column in COLUMNS.items()}
    schema = pa.schema([pa.field(name, array.type, metadata=metadata.get(name)) for name, array in arrays.items()])
    codecs = {name: column.codec for name, column in COLUMNS.items() if column.codec is not None}
    root = str(tmp_path_factory.mktemp("kinds"))
    table = pa.table(list(arrays.values()), schema=schema)
    stoker.connect(root).create_table("t", table, compression=codecs, rows_per_fragment=60)
    return root


@pytest.fixture(scope="module")
def url(path: str) -> Iterator[str]:
    running = Server(path)
    yield running.url
    running.stop()


@pytest.fixture(params=["in process", "through a server"])
def place(request: pytest.FixtureRequest, path: str, url: str) -> stoker.Lake:
    """The lake, in process and through a server."""
    return stoker.connect(path if request.param == "in process" else url)


@dataclass(frozen=True)
class Case:
    """A query, the options of its streams, and the jobs that read it: each takes so many batches on so many ranks."""

    names: tuple[str, ...]
    is_weighted: bool
    options: dict[str, Any]
    jobs: tuple[tuple[int, int, int], ...]

    @classmethod
    def draw(cls, seed: int) -> Case:
        random = Random(seed)
        names = tuple(random.sample(sorted(COLUMNS), random.randint(1, 8)))
        options = {"seed": random.randrange(1 << 32), "shuffle": random.choice([False, "block", "full"])}
        job = lambda: (random.randint(1, 3), random.randint(3, 60), random.randint(0, 5))  # noqa: E731
        return cls(names, random.random() < 0.3, options, tuple(job() for _ in range(random.randint(1, 3))))

    def times(self, row: int) -> int:
        """Returns how often a row comes."""
        return WEIGHTS[row % 3] if self.is_weighted else 1

    def streams(self, place: stoker.Lake, job: tuple[int, int, int]) -> list[stoker.Stream]:
        columns = ["id", *self.names, *(["weight"] if self.is_weighted else [])]
        query = place.sql(f"SELECT {', '.join(columns)} FROM t")
        decode = {name: COLUMNS[name].decode for name in self.names if COLUMNS[name].decode is not None}
        options = {**self.options, "decode": decode, "weight": "weight" if self.is_weighted else None}
        world_size, batch, _ = job
        return [
            query.stream(global_batch_size=max(batch, world_size), rank=rank, world_size=world_size, **options)
            for rank in range(world_size)
        ]


@pytest.mark.parametrize("seed", SEEDS)
def test_ranks_and_resumes_get_what_was_written(place: stoker.Lake, seed: int) -> None:
    case = Case.draw(seed)
    print(case)
    seen: Counter[int] = Counter()
    state, streams = None, []
    for number, job in enumerate(case.jobs):
        ranks = case.streams(place, job)
        is_last = number == len(case.jobs) - 1
        for stream in ranks:
            if state is not None:
                stream.load_state_dict(state)
            num_batches = stream.remaining if is_last else min(job[2], stream.remaining - 1)
            for _, batch in zip(range(num_batches), stream, strict=False):
                seen.update(checked(batch, case.names))
        (text,) = {json.dumps(stream.state_dict(), sort_keys=True) for stream in ranks}
        state = json.loads(text)
        streams += ranks
    assert seen == +Counter({row: case.times(row) for row in range(NUM_ROWS)})
    (verdict,) = place.verify([stream.receipt() for stream in streams])
    assert verdict.is_exactly_once


def checked(batch: stoker.Batch, names: tuple[str, ...]) -> list[int]:
    """Checks the values of a batch, padding included. Returns the ids of its rows without padding."""
    ids = batch["id"].tolist()
    for name in names:
        for at, row in enumerate(ids):
            try:
                COLUMNS[name].check(batch, name, at, row)
            except AssertionError as wrong:
                raise AssertionError(f"column {name}, row {row}: {wrong}") from wrong
    return batch["id"][batch.valid].tolist()
