"""The tables of the measurements. Each is written once, and both sides read the same files, but for ``plain_N``.

A name has the number of rows in it, so that tables of several sizes stay in one folder:

- ``clustered_N``, ``uniform_N``: vectors of 128 numbers, with columns to filter by; ``v`` has an IVF_PQ index and
  ``indexed`` a btree;
- ``texts_N``: 10 to 50 words of a vocabulary in which a few words are frequent, with a full-text index of pylance;
- ``pairs_N``: the same texts with clustered vectors, and both indexes;
- ``lists_N``: lists of 1 to 8 of 1,000 labels;
- ``results_N``: numbers, texts of 10 to 50 words and clustered vectors, 745 bytes a row, as the result of a query;
- ``light_N``: numbers and short texts, with btrees over ``code`` and ``indexed_part``; the same rows as a Parquet file
  that DuckDB wrote, with its defaults;
- ``plain_N``: the rows of ``light_N`` without indexes; the same rows as a table that pylance wrote, with its defaults.
  Changes are measured with copies of both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import stoker

__all__ = [
    "DIMENSIONS",
    "NUM_PARTS",
    "SUB_VECTORS",
    "TEXT_INDEX",
    "code_of",
    "num_graphs",
    "num_partitions",
    "parquet_file",
    "prepare",
    "pylance_file",
    "query_vectors",
    "table_file",
    "word",
]

Array = np.ndarray[Any, Any]

DIMENSIONS = 128
#: The parts of a vector in the IVF_PQ index.
SUB_VECTORS = 16
#: The parameters of the full-text index: words as they are written, with positions. Stoker builds the same.
TEXT_INDEX: dict[str, Any] = {"with_position": True, "stem": False, "remove_stop_words": False}
#: ``part`` and ``indexed_part`` of light rows are uniform below this number.
NUM_PARTS = 1_000_000

_SEED = 7
_NUM_CLUSTERS = 1_000
#: The standard deviation of a cluster; that of the centres is 1.
_SPREAD = 0.3
_NUM_WORDS = 50_000
#: The shortest and the longest text, in words.
_TEXT_WORDS = (10, 50)
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
_NUM_SMALL = 1_000
_NUM_NAMES = 20_000
_NUM_LABELS = 1_000
#: The most labels of a list; the fewest are one.
_LABELS_MAX = 8
#: The light rows of a batch, which have values of one seed.
_LIGHT_STEP = 262_144
#: Numbers that are part of a seed, so that no two kinds of values have the same one.
_CENTRES, _VECTORS, _QUERIES, _TEXTS, _LIGHT, _LISTS, _RESULTS = range(7)
_KINDS = {"clustered": 0, "uniform": 1}


def table_file(folder: Path, table: str) -> str:
    """Returns the folder of a table, as pylance opens it."""
    return str(folder / "lake" / f"{table}.lance")


def parquet_file(folder: Path, table: str) -> Path:
    """Returns the Parquet file with the rows of a light table."""
    return folder / f"{table}.parquet"


def pylance_file(folder: Path, table: str) -> str:
    """Returns the folder of the table that pylance wrote with the rows of a plain table."""
    return str(folder / "pylance" / f"{table}.lance")


def num_partitions(num_rows: int) -> int:
    """Returns the number of partitions of an IVF_PQ index: Stoker's default."""
    return min(max(num_rows // 4_096, 1), 65_536)


def num_graphs(num_rows: int) -> int:
    """Returns the number of partitions of an IVF_HNSW_SQ index: Stoker's default."""
    return max(num_rows // 1_048_576, 1)


def prepare(lake: stoker.Lake, folder: Path, table: str) -> None:
    """Writes a table and its indexes, unless an earlier run did."""
    done = folder / f"{table}.written"
    if done.exists():
        return
    print(f"writes {table}", file=sys.stderr)
    kind, _, rows = table.rpartition("_")
    _WRITERS[kind](lake, folder, table, int(rows))
    done.touch()


def query_vectors(kind: str, count: int) -> Array:
    """Returns vectors of the distribution of a table, which are not in it."""
    return _vectors(kind, count, np.random.default_rng([_SEED, _QUERIES, _KINDS[kind]]))


def code_of(row: int) -> int:
    """Returns the code of a light row: no order, and no two rows have the same one."""
    return row * 2_654_435_761 % 2**40


def word(rank: int) -> str:
    """Returns the word with this rank among the words by frequency, zero-based."""
    base = len(_SYLLABLES)
    return _SYLLABLES[rank % base] + _SYLLABLES[rank // base % base] + _SYLLABLES[rank // base**2]


def _vectors(kind: str, count: int, random: np.random.Generator) -> Array:
    if kind == "uniform":
        return random.random((count, DIMENSIONS), dtype=np.float32)
    centres = np.random.default_rng([_SEED, _CENTRES]).standard_normal((_NUM_CLUSTERS, DIMENSIONS), dtype=np.float32)
    around = random.standard_normal((count, DIMENSIONS), dtype=np.float32)
    return centres[random.integers(0, _NUM_CLUSTERS, count)] + np.float32(_SPREAD) * around


def _texts(count: int, random: np.random.Generator) -> pa.Array:
    """Returns texts whose words have frequencies as in Zipf's law."""
    weights = np.cumsum(1 / (np.arange(_NUM_WORDS) + 10.0))
    lengths = random.integers(_TEXT_WORDS[0], _TEXT_WORDS[1] + 1, count)
    ranks = np.searchsorted(weights, random.random(lengths.sum()) * weights[-1])
    vocabulary = pa.array([word(rank) for rank in range(_NUM_WORDS)])
    words = vocabulary.take(pa.array(np.minimum(ranks, _NUM_WORDS - 1)))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(offsets, words), " ")  # type: ignore[attr-defined]


def _lists(vectors: Array) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIMENSIONS)


def _vector_columns(kind: str) -> Callable[[Array], dict[str, Any]]:
    def columns(ids: Array) -> dict[str, Any]:
        random = np.random.default_rng([_SEED, _VECTORS, _KINDS[kind], ids[0]])
        found: dict[str, Any] = {"id": ids, "v": _lists(_vectors(kind, len(ids), random))}
        for name, below in (("tenth", 10), ("percent", 100), ("indexed", 100)):
            found[name] = random.integers(0, below, len(ids), dtype=np.int32)
        return found

    return columns


def _text_columns(ids: Array) -> dict[str, Any]:
    return {"id": ids, "body": _texts(len(ids), np.random.default_rng([_SEED, _TEXTS, ids[0]]))}


def _pair_columns(ids: Array) -> dict[str, Any]:
    return {**_text_columns(ids), "v": _vector_columns("clustered")(ids)["v"]}


def _light_columns(ids: Array) -> dict[str, Any]:
    random = np.random.default_rng([_SEED, _LIGHT, ids[0]])
    names = pa.array([f"name {number:05}" for number in range(_NUM_NAMES)])
    return {
        "id": ids,
        "code": ids * 2_654_435_761 % 2**40,
        "small": random.integers(0, _NUM_SMALL, len(ids), dtype=np.int32),
        "name": names.take(pa.array(random.integers(0, _NUM_NAMES, len(ids)))),
        "x": random.random(len(ids)),
        "part": random.integers(0, NUM_PARTS, len(ids), dtype=np.int32),
        "indexed_part": random.integers(0, NUM_PARTS, len(ids), dtype=np.int32),
    }


def _list_columns(ids: Array) -> dict[str, Any]:
    random = np.random.default_rng([_SEED, _LISTS, ids[0]])
    lengths = random.integers(1, _LABELS_MAX + 1, len(ids))
    labels = pa.array(random.integers(0, _NUM_LABELS, lengths.sum(), dtype=np.int32))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return {"id": ids, "labels": pa.ListArray.from_arrays(offsets, labels)}


def _result_columns(ids: Array) -> dict[str, Any]:
    random = np.random.default_rng([_SEED, _RESULTS, ids[0]])
    numbers = {"small": random.integers(0, _NUM_SMALL, len(ids), dtype=np.int32), "x": random.random(len(ids))}
    return {**_pair_columns(ids), **numbers}


def _reader(columns: Callable[[Array], dict[str, Any]], num_rows: int, step: int) -> pa.RecordBatchReader:
    """Returns the rows in batches of ``step`` rows, each of which has values of its own seed."""

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, num_rows, step):
            yield pa.record_batch(columns(np.arange(start, min(start + step, num_rows), dtype=np.int64)))

    return pa.RecordBatchReader.from_batches(pa.record_batch(columns(np.arange(1, dtype=np.int64))).schema, batches())


def _write_vectors(lake: stoker.Lake, _: Path, table: str, num_rows: int) -> None:
    reader = _reader(_vector_columns(table.split("_")[0]), num_rows, 32_768)
    written = lake.create_table(table, reader, mode="overwrite")
    written.create_index("v", kind="ivf_pq", num_partitions=num_partitions(num_rows), num_sub_vectors=SUB_VECTORS)
    written.create_index("indexed", kind="btree")


def _write_texts(lake: stoker.Lake, folder: Path, table: str, num_rows: int) -> None:
    lake.create_table(table, _reader(_text_columns, num_rows, 16_384), mode="overwrite")
    lance.dataset(table_file(folder, table)).create_scalar_index("body", "INVERTED", **TEXT_INDEX)


def _write_pairs(lake: stoker.Lake, folder: Path, table: str, num_rows: int) -> None:
    written = lake.create_table(table, _reader(_pair_columns, num_rows, 16_384), mode="overwrite")
    written.create_index("v", kind="ivf_pq", num_partitions=num_partitions(num_rows), num_sub_vectors=SUB_VECTORS)
    lance.dataset(table_file(folder, table)).create_scalar_index("body", "INVERTED", **TEXT_INDEX)


def _write_light(lake: stoker.Lake, folder: Path, table: str, num_rows: int) -> None:
    written = lake.create_table(table, _reader(_light_columns, num_rows, _LIGHT_STEP), mode="overwrite")
    written.create_index("code", kind="btree")
    written.create_index("indexed_part", kind="btree")
    with duckdb.connect() as duck:
        duck.from_arrow(_reader(_light_columns, num_rows, _LIGHT_STEP)).write_parquet(str(parquet_file(folder, table)))


def _write_plain(lake: stoker.Lake, folder: Path, table: str, num_rows: int) -> None:
    lake.create_table(table, _reader(_light_columns, num_rows, _LIGHT_STEP), mode="overwrite")
    file = Path(pylance_file(folder, table))
    file.parent.mkdir(exist_ok=True)
    lance.write_dataset(_reader(_light_columns, num_rows, _LIGHT_STEP), file, mode="overwrite")


def _write_lists(lake: stoker.Lake, _: Path, table: str, num_rows: int) -> None:
    lake.create_table(table, _reader(_list_columns, num_rows, _LIGHT_STEP), mode="overwrite")


def _write_results(lake: stoker.Lake, _: Path, table: str, num_rows: int) -> None:
    lake.create_table(table, _reader(_result_columns, num_rows, 16_384), mode="overwrite")


_WRITERS: dict[str, Callable[[stoker.Lake, Path, str, int], None]] = {
    "clustered": _write_vectors,
    "uniform": _write_vectors,
    "texts": _write_texts,
    "pairs": _write_pairs,
    "lists": _write_lists,
    "results": _write_results,
    "light": _write_light,
    "plain": _write_plain,
}
