"""Searches of texts beside pylance, by the same index, and of texts and vectors beside LanceDB."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
from lance.query import FullTextOperator, FullTextQuery, MatchQuery, PhraseQuery

from sql_parts.context import Context, Measure
from sql_parts.data import query_vectors, word
from sql_parts.line import Line, SkippedError, alternate, median_secs

__all__ = ["searches"]

_K = 10
_SEED = 11

_Words = list[str]


def _any(words: _Words) -> FullTextQuery:
    return MatchQuery(" ".join(words), "body", operator=FullTextOperator.OR)


def _all(words: _Words) -> FullTextQuery:
    return MatchQuery(" ".join(words), "body", operator=FullTextOperator.AND)


def _phrase(words: _Words) -> FullTextQuery:
    return PhraseQuery(" ".join(words), "body")


#: For each kind of query: its name, the number of words, the ranks that they have, the text for Stoker, and the query
#: of pylance. Words of pairs and phrases are more frequent, so that rows have them together.
_QUERIES: tuple[tuple[str, int, range, Callable[[_Words], str], Callable[[_Words], FullTextQuery]], ...] = (
    ("one word", 1, range(200, 5_000), " ".join, _any),
    ("three words", 3, range(200, 5_000), " ".join, _any),
    ("+a +b", 2, range(20, 200), lambda words: " ".join(f"+{one}" for one in words), _all),
    ("a phrase", 2, range(5, 50), lambda words: f'"{" ".join(words)}"', _phrase),
)


def searches() -> list[Measure]:
    """Searches of texts, and of texts and vectors."""
    found = [Measure(f"text_search, {query[0]}", partial(_searched, *query)) for query in _QUERIES]
    return [*found, Measure("hybrid_search", _hybrid)]


def _searched(
    name: str,
    count: int,
    ranks: range,
    text_of: Callable[[_Words], str],
    query_of: Callable[[_Words], FullTextQuery],
    context: Context,
) -> list[Line]:
    table = context.table("texts")
    dataset = context.dataset(table)
    asked = _words(count, ranks, context.num_queries)

    def ours(words: _Words) -> pa.Table:
        return context.sql(f"SELECT id, _score FROM text_search({table}, body, '{text_of(words)}', k => {_K})")

    def theirs(words: _Words) -> pa.Table:
        return dataset.to_table(columns=["id", "_score"], full_text_query=query_of(words), limit=_K)

    same = np.mean([_overlap(ours(words), theirs(words)) for words in asked])
    line = _turns(f"text_search, {name}", "pylance", context, ours, theirs, asked)
    line.remark = f"{same:.0%} of the rows are found by both"
    return [line]


def _hybrid(context: Context) -> list[Line]:
    if find_spec("lancedb") is None:
        raise SkippedError("skipped: lancedb is not installed in this environment")
    import lancedb
    from lancedb.rerankers import RRFReranker

    table = context.table("pairs")
    theirs_table = lancedb.connect(str(context.folder / "lake")).open_table(table)
    reranker = RRFReranker()
    vectors = query_vectors("clustered", context.num_queries)
    asked = list(zip(vectors, _words(3, range(200, 5_000), context.num_queries), strict=True))

    def ours(query: tuple[Any, _Words]) -> pa.Table:
        vector, words = query
        text = f"SELECT id FROM hybrid_search({table}, v, $1, body, '{' '.join(words)}', k => {_K})"
        return context.sql(text, [vector.tolist()])

    def theirs(query: tuple[Any, _Words]) -> pa.Table:
        vector, words = query
        search = theirs_table.search(query_type="hybrid", vector_column_name="v", fts_columns="body")
        search = search.vector(vector).text(" ".join(words)).rerank(reranker)
        return search.limit(_K).select(["id"]).to_arrow()

    same = np.mean([_overlap(ours(query), theirs(query)) for query in asked])
    line = _turns("hybrid_search", "LanceDB, RRF", context, ours, theirs, asked)
    line.remark = f"{same:.0%} of the rows are found by both; LanceDB has its defaults of recall"
    return [line]


def _turns(
    what: str,
    other: str,
    context: Context,
    ours: Callable[[Any], pa.Table],
    theirs: Callable[[Any], pa.Table],
    asked: list[Any],
) -> Line:
    def figure(search: Callable[[Any], pa.Table]) -> float:
        return median_secs([partial(search, query) for query in asked]) * 1e3

    return Line(what, 1.0, *alternate(context.repeat, partial(figure, ours), partial(figure, theirs)), other)


def _words(count: int, ranks: range, num_queries: int) -> list[_Words]:
    random = np.random.default_rng([_SEED, count, ranks.start])
    return [
        [word(int(rank)) for rank in random.choice(np.arange(ranks.start, ranks.stop), count, replace=False)]
        for _ in range(num_queries)
    ]


def _overlap(ours: pa.Table, theirs: pa.Table) -> float:
    """Returns the share of the rows of the larger result that are in both."""
    found, expected = set(ours["id"].to_pylist()), set(theirs["id"].to_pylist())
    larger = max(len(found), len(expected))
    return len(found & expected) / larger if larger else 1.0
