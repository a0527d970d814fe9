"""Searches of vectors beside pylance, and exact ones, also beside the bandwidth of memory.

Approximate searches of both sides are of the same table by the same IVF_PQ index. Stoker has its defaults. pylance has
the fastest of many settings of ``nprobes`` and ``refine_factor`` whose recall@10 is at least 0.95, or at least that of
Stoker if that is lower; a filter is applied before the search on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import sqrt
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from sql_parts.context import Context, Measure, num_processors
from sql_parts.data import DIMENSIONS, Array, num_partitions, query_vectors
from sql_parts.line import Line, alternate, secs

__all__ = ["distances", "searches"]

_K = 10
_RECALL = 0.95
#: The values of ``refine_factor`` that are tried, the fastest first.
_REFINE = (None, 2, 5, 10, 20, 40, 100, 200, 400, 800)
#: A gain of recall that is none.
_GAIN = 0.001
#: The shares of the partitions that are tried as ``nprobes``.
_PROBES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
#: The rows that are kept of each block by distances in 32 bits, before distances in 64 bits decide.
_KEPT = 32
#: The most queries of a turn that compare all vectors.
_EXACT_QUERIES = 10
#: The least recall of an exact search: two rows that are equally near may change places, as distances have 32 bits.
_EXACT_RECALL = 0.99
_BLOCK_ROWS = 65_536
#: The bytes of the array whose sum is the ceiling, more than any processor cache holds.
_CEILING_BYTES = 512 << 20

_Search = Callable[[Array], Any]


@dataclass(frozen=True)
class _Filter:
    """A condition on the rows that may be found."""

    name: str
    column: str | None = None
    value: int = 3

    @property
    def text(self) -> str | None:
        """The condition in SQL."""
        return None if self.column is None else f"{self.column} = {self.value}"


_FILTERS = (_Filter("no filter"), _Filter("10 % filter", "tenth"), _Filter("1 % filter", "percent"))
_INDEXED = _Filter("1 % filter, btree", "indexed")


@dataclass(frozen=True)
class _Nearest:
    """The rows that are nearest to each query, and the squares of their distances, nearest first."""

    ids: list[Array]
    squares: list[Array]


@dataclass(frozen=True)
class _Setting:
    """Options of pylance's search, and what they gave."""

    options: dict[str, Any]
    secs: float
    recall: float

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.options.items()) or "defaults"


def searches() -> list[Measure]:
    """Searches of both kinds of vectors, with and without filters."""
    found = []
    for kind in ("clustered", "uniform"):
        for condition in _FILTERS:
            found.append(Measure(f"ANN, {kind}, {condition.name}", partial(_approximate, kind, condition)))
        found.append(Measure(f"ANN, {kind}, {_INDEXED.name}", partial(_indexed, kind)))
    return found


def distances() -> list[Measure]:
    """Distances to all vectors."""
    return [
        Measure("exact WHERE l2_distance(v, $1) < r", _exact),
        Measure("exact ORDER BY v <-> $1 LIMIT 10", _ordered),
    ]


def _approximate(kind: str, condition: _Filter, context: Context) -> list[Line]:
    queries = query_vectors(kind, context.num_queries)
    truth = _truth(context, kind, condition, queries)
    ours = _ours(context, kind, condition)
    recall = _measured(ours, queries, truth)[1]
    setting = _tuned(context, kind, condition, queries, truth, min(_RECALL, recall))
    line = _turns(context, kind, condition, queries, setting)
    line.remark = f"recall@10 {recall:.3f} and {setting.recall:.3f}; pylance: {setting}"
    name = f"ANN, {kind}, {condition.name}: recall@10 of Stoker's defaults"
    judged = Line(name, _RECALL, [recall], [setting.recall], unit="", judged="value", at_least=True)
    return [line, judged]


def _indexed(kind: str, context: Context) -> list[Line]:
    queries = query_vectors(kind, context.num_queries)
    truth = _truth(context, kind, _INDEXED, queries)
    recall = _measured(_ours(context, kind, _INDEXED), queries, truth)[1]
    by_index = _tuned(context, kind, _INDEXED, queries, truth, min(_RECALL, recall))
    options = {"use_index": False}
    exact = _Setting(options, *_measured(_theirs(context, kind, _INDEXED, options), queries, truth))
    better = min((by_index, exact), key=lambda setting: setting.secs)
    line = _turns(context, kind, _INDEXED, queries, better)
    line.other = "pylance, the better of ANN and exact"
    line.remark = (
        f"recall@10 {recall:.3f} and {better.recall:.3f}; pylance: {better}; while tuning, ANN"
        f" {by_index.secs * 1e3:.2f} ms, exact {exact.secs * 1e3:.2f} ms"
    )
    return [line]


def _exact(context: Context) -> list[Line]:
    kind = "clustered"
    table = context.table(kind)
    (query,) = query_vectors(kind, 1)
    squares = _truth(context, kind, _FILTERS[0], query[None]).squares[0]
    radius = (sqrt(squares[_K - 1]) + sqrt(squares[_K])) / 2
    text = f"SELECT id FROM {table} WHERE l2_distance(v, $1) < $2"
    num_bytes = context.vector_rows * DIMENSIONS * 4
    values = np.ones(_CEILING_BYTES // 8, np.int64)
    parts = np.array_split(values, num_processors())

    def ours() -> float:
        began = perf_counter()
        found = context.sql(text, [query.tolist(), radius]).num_rows
        took = perf_counter() - began
        if abs(found - _K) > 1:  # the engine may round a distance otherwise
            raise RuntimeError(f"{found} rows are within the distance, not {_K}")
        return num_bytes / took / 1e9

    with ThreadPoolExecutor(len(parts)) as pool:
        own, ceiling = alternate(
            context.repeat, ours, lambda: values.nbytes / secs(lambda: list(pool.map(np.sum, parts))) / 1e9
        )
    name = f"exact WHERE l2_distance(v, $1) < r, {num_bytes / 1e6:,.0f} MB of vectors"
    other = f"sum of int64 by NumPy, {len(parts)} threads"
    return [Line(name, 0.5, own, ceiling, other, "GB/s", at_least=True)]


def _ordered(context: Context) -> list[Line]:
    kind = "clustered"
    table = context.table(kind)
    queries = query_vectors(kind, min(context.num_queries, _EXACT_QUERIES))
    truth = _truth(context, kind, _FILTERS[0], queries)
    text = f"SELECT id FROM {table} ORDER BY v <-> $1 LIMIT {_K}"
    theirs = _theirs(context, kind, _FILTERS[0], {"use_index": False})

    def ours(query: Array) -> Any:
        return context.sql(text, [query.tolist()])

    recalls = [_measured(search, queries, truth)[1] for search in (ours, theirs)]
    if recalls[0] < _EXACT_RECALL:
        raise RuntimeError(f"the search is not exact: {recalls[0]:.3f} of the nearest {_K} rows were found")

    found = _alternated(context, queries, ours, theirs)
    remark = f"recall@10 {recalls[0]:.3f} and {recalls[1]:.3f}; pylance: use_index False; {len(queries)} queries"
    name = f"exact ORDER BY v <-> $1 LIMIT {_K}, {context.vector_rows:,} rows"
    return [Line(name, 1.0, *found, "pylance, exact", remark=remark)]


def _turns(context: Context, kind: str, condition: _Filter, queries: Array, setting: _Setting) -> Line:
    ours, theirs = _ours(context, kind, condition), _theirs(context, kind, condition, setting.options)
    return Line(f"ANN, {kind}, {condition.name}", 1.0, *_alternated(context, queries, ours, theirs))


def _alternated(context: Context, queries: Array, ours: _Search, theirs: _Search) -> tuple[list[float], list[float]]:
    """Measures both sides in turns: the median time of a query, in milliseconds."""

    def figure(search: _Search) -> float:
        return median(secs(partial(search, query)) for query in queries) * 1e3

    return alternate(context.repeat, partial(figure, ours), partial(figure, theirs))


def _ours(context: Context, kind: str, condition: _Filter) -> _Search:
    where = "" if condition.text is None else f" WHERE {condition.text}"
    text = f"SELECT id, _distance FROM vector_search({context.table(kind)}, v, $1, k => {_K}){where}"
    return lambda query: context.sql(text, [query.tolist()])


def _theirs(context: Context, kind: str, condition: _Filter, options: dict[str, Any]) -> _Search:
    dataset = context.dataset(context.table(kind))
    return lambda query: dataset.to_table(
        columns=["id", "_distance"],
        filter=condition.text,
        prefilter=True,
        nearest={"column": "v", "q": query, "k": _K, **options},
    )


def _measured(search: _Search, queries: Array, truth: _Nearest) -> tuple[float, float]:
    """Returns the median seconds of a query, and the mean recall@10."""
    search(queries[0])
    took, recalls = [], []
    for query, wanted in zip(queries, truth.ids, strict=True):
        began = perf_counter()
        found = search(query)
        took.append(perf_counter() - began)
        best = wanted[:_K]
        recalls.append(len(np.intersect1d(found["id"].to_numpy(), best)) / len(best) if len(best) else 1.0)
    return median(took), float(np.mean(recalls))


def _tuned(context: Context, kind: str, condition: _Filter, queries: Array, truth: _Nearest, target: float) -> _Setting:
    """Returns the fastest setting of pylance with the recall, or, if none has it, the one with the highest."""

    def measured(options: dict[str, Any]) -> _Setting:
        return _Setting(options, *_measured(_theirs(context, kind, condition, options), queries, truth))

    partitions = num_partitions(context.vector_rows)
    probes = sorted({max(1, round(partitions * share)) for share in _PROBES})
    tried: list[_Setting] = []
    best: _Setting | None = None
    for nprobes in (None, *probes):
        before = -1.0
        for refine in _REFINE:
            asked = {"nprobes": nprobes, "refine_factor": refine}
            setting = measured({name: value for name, value in asked.items() if value is not None})
            tried.append(setting)
            if setting.recall >= target:
                best = setting if best is None else min(best, setting, key=lambda one: one.secs)
                break
            is_slower = best is not None and setting.secs > best.secs
            if is_slower or setting.recall <= before + _GAIN:
                break  # comparing more rows of these partitions would only take longer
            before = setting.recall
    if best is None:
        return max(tried, key=lambda one: one.recall)
    parallel = measured({**best.options, "query_parallelism": -1})
    return parallel if parallel.recall >= target and parallel.secs < best.secs else best


def _truth(context: Context, kind: str, condition: _Filter, queries: Array) -> _Nearest:
    """Returns the rows that are nearest to each query, by distances in 64 bits."""
    columns = ["id", "v"] if condition.column is None else ["id", "v", condition.column]
    rows = context.dataset(context.table(kind)).to_table(columns=columns)
    ids = rows["id"].to_numpy()
    vectors = rows["v"].combine_chunks().flatten().to_numpy(zero_copy_only=True).reshape(-1, DIMENSIONS)
    if condition.column is not None:
        allowed = np.flatnonzero(rows[condition.column].to_numpy() == condition.value)
    else:
        allowed = np.arange(len(ids))
    kept: list[list[Array]] = [[] for _ in queries]
    for start in range(0, len(allowed), _BLOCK_ROWS):
        block = allowed[start : start + _BLOCK_ROWS]
        among = vectors[block]
        squares = np.einsum("ij,ij->i", among, among)[None] - 2 * (queries @ among.T)
        count = min(_KEPT, len(block))
        nearest = np.argpartition(squares, count - 1, axis=1)[:, :count]
        for index, chosen in enumerate(nearest):
            kept[index].append(block[chosen])
    found = _Nearest([], [])
    for query, parts in zip(queries, kept, strict=True):
        candidates = np.concatenate(parts) if parts else allowed
        exact = np.square(vectors[candidates].astype(np.float64) - query.astype(np.float64)).sum(axis=1)
        order = np.argsort(exact, kind="stable")[:_KEPT]
        found.ids.append(ids[candidates[order]])
        found.squares.append(exact[order])
    return found
