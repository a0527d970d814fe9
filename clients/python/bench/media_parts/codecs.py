"""Compressed tensors where the bandwidth of storage is the limit, beside plain ones and GETs of the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import stoker
from harness.getter import Getter
from harness.store import storage_options
from harness.turns import Figure, Pair, Unit, timed

__all__ = ["pairs"]

_UNIT = Unit("MB/s of tensors", "CPU s/GB", digits=0)
_CODECS = ("pco", "byte_stream_split", "zstd")
_SHAPE = (64, 64)
_BATCH_ROWS = 64
_ROWS_AT_ONCE = 2_048
#: The share of its compression ratio by which a compressed column should be faster.
_SHARE = 0.8
#: The bytes of a range that a GET of the ceiling reads, and the number of GETs at once.
_RANGE_BYTES, _GETS = 4 << 20, 8


def pairs(folder: Path, bucket: str, endpoint: Callable[[], str], divisor: int) -> Iterator[Pair]:
    """Yields the pairs: each reads all tensors through the server of ``folder``, which has a limit, by a new lake."""
    num_rows = max(65_536 // divisor, 64)
    lake = stoker.connect(str(folder / bucket / "lake"))

    def pair(codec: str | None, beside: str, other: Callable[[], Figure], bar: Any) -> Pair:
        name = f"limited storage, {codec or 'plain'}, beside {beside}"
        return Pair(name, lambda: epoch(codec), beside, other, _UNIT, bar)

    def epoch(codec: str | None) -> Figure:
        table = _write(lake, codec, num_rows)
        remote = stoker.connect(f"s3://{bucket}/lake", storage_options=storage_options(endpoint()))
        query = remote.sql(f"SELECT x FROM {table}")

        def megabytes() -> float:
            with query.stream(batch_size=_BATCH_ROWS, shuffle=False, evaluation=True) as batches:
                return sum(batch["x"].nbytes for batch in batches) / 1e6

        return timed(megabytes, per_unit=1e3)

    def gets(codec: str | None) -> Figure:
        """The ceiling: GETs of the data files of the table, in MB of the tensors that they hold."""
        files = _files(folder / bucket, _write(lake, codec, num_rows))
        tensors = num_rows * 4 * _SHAPE[0] * _SHAPE[1] / 1e6

        def get(part: tuple[Getter, int, int]) -> None:
            getter, start, length = part
            getter.get(start, np.empty(length, np.uint8))

        def megabytes() -> float:
            with ThreadPoolExecutor(_GETS) as pool:
                for _ in pool.map(get, _ranges(f"{endpoint()}/{bucket}", folder / bucket, files)):
                    pass
            return tensors

        return timed(megabytes, per_unit=1e3)

    def ratio(codec: str) -> float:
        plain, small = (sum(file.stat().st_size for file in files_of(name)) for name in (None, codec))
        return plain / small

    def files_of(codec: str | None) -> list[Path]:
        return _files(folder / bucket, _write(lake, codec, num_rows))

    yield pair(None, "GETs of the same bytes", lambda: gets(None), None)
    for codec in _CODECS:
        yield pair(codec, "the plain column", lambda: epoch(None), lambda codec=codec: _SHARE * ratio(codec))
        yield pair(codec, "GETs of the same bytes", lambda codec=codec: gets(codec), None)


def _write(lake: stoker.Lake, codec: str | None, num_rows: int) -> str:
    """Writes the table of a codec unless it is there; returns its name."""
    name = f"tensors_{codec or 'plain'}"
    try:
        if name in lake.tables():
            return name
    except stoker.NotFoundError:
        pass  # the first table makes the lake
    table = None
    for start in range(0, num_rows, _ROWS_AT_ONCE):
        columns = {"x": _tensors(start, min(_ROWS_AT_ONCE, num_rows - start))}
        compression = None if codec is None else {"x": codec}
        table = lake.create_table(name, columns, compression=compression) if table is None else table.append(columns)
    return name


def _tensors(start: int, num_rows: int) -> np.ndarray[Any, Any]:
    """Returns depth maps: smooth surfaces in millimetres, as a sensor with a step of 1/8 mm measures them."""
    rows = np.arange(start, start + num_rows, dtype=np.float32)[:, None, None]
    y, x = np.mgrid[0 : _SHAPE[0], 0 : _SHAPE[1]].astype(np.float32)
    surface = 900 + 250 * np.sin(x / 17 + rows) + 180 * np.cos(y / 23 - rows / 3) + x * 2
    noise = np.random.default_rng(start).integers(-4, 5, surface.shape)
    return ((np.round(surface * 8) + noise) / 8).astype(np.float32)


def _files(folder: Path, table: str) -> list[Path]:
    return sorted((folder / "lake" / f"{table}.lance" / "data").glob("*.lance"))


def _ranges(url: str, folder: Path, files: list[Path]) -> Iterator[tuple[Getter, int, int]]:
    for file in files:
        getter, size = Getter(f"{url}/{file.relative_to(folder)}"), file.stat().st_size
        for start in range(0, size, _RANGE_BYTES):
            yield getter, start, min(_RANGE_BYTES, size - start)
