"""Searches of texts beside pylance, by the same index."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
from lance.query import FullTextOperator, FullTextQuery, MatchQuery, PhraseQuery

from sql_parts.context import Context, Measure
from sql_parts.data import word
from sql_parts.line import Line, alternate, median_secs

__all__ = ["overlap", "random_words", "searches"]

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
    """Searches of texts."""
    return [Measure(f"text_search, {query[0]}", partial(_searched, *query)) for query in _QUERIES]


def random_words(count: int, ranks: range, num_queries: int) -> list[_Words]:
    """Returns words for each query: ``count`` different ones with these ranks by frequency."""
    random = np.random.default_rng([_SEED, count, ranks.start])
    return [
        [word(int(rank)) for rank in random.choice(np.arange(ranks.start, ranks.stop), count, replace=False)]
        for _ in range(num_queries)
    ]


def overlap(ours: pa.Table, theirs: pa.Table) -> float:
    """Returns the share of the rows of the larger result that are in both."""
    found, expected = set(ours["id"].to_pylist()), set(theirs["id"].to_pylist())
    larger = max(len(found), len(expected))
    return len(found & expected) / larger if larger else 1.0


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
    asked = random_words(count, ranks, context.num_queries)

    def ours(words: _Words) -> pa.Table:
        return context.sql(f"SELECT id, _score FROM text_search({table}, body, '{text_of(words)}', k => {_K})")

    def theirs(words: _Words) -> pa.Table:
        return dataset.to_table(columns=["id", "_score"], full_text_query=query_of(words), limit=_K)

    def figure(search: Callable[[_Words], pa.Table]) -> float:
        return median_secs([partial(search, words) for words in asked]) * 1e3

    same = np.mean([overlap(ours(words), theirs(words)) for words in asked])
    found = alternate(context.repeat, partial(figure, ours), partial(figure, theirs))
    return [Line(f"text_search, {name}", 1.0, *found, remark=f"{same:.0%} of the rows are found by both")]
