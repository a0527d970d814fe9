"""Searches of texts and vectors at once beside LanceDB, by the same indexes of the same table.

Both sides merge a search for vectors and one for words, each for the same number of rows, by reciprocal rank fusion
with the same constant. LanceDB has an engine of its own, which opens the files that Stoker and pylance wrote.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa

from sql_parts.context import Context, Measure
from sql_parts.data import query_vectors
from sql_parts.line import Line, alternate, median_secs
from sql_parts.texts import overlap, random_words

__all__ = ["searches"]

_K = 10
#: The constant of reciprocal rank fusion: a row is worth 1 / (constant + rank) on each side that finds it.
_RRF_K = 60
#: The words of a search, and the ranks by frequency that they have.
_NUM_WORDS, _RANKS = 3, range(200, 5_000)

#: A vector and words.
_Asked = tuple[Any, list[str]]
_Search = Callable[[_Asked], pa.Table]


def searches() -> list[Measure]:
    """One kind of search."""
    return [Measure("hybrid_search", _searched)]


def _searched(context: Context) -> list[Line]:
    table = context.table("pairs")
    vectors = query_vectors("clustered", context.num_queries)
    asked = list(zip(vectors, random_words(_NUM_WORDS, _RANKS, context.num_queries), strict=True))
    what = f"hybrid_search, {context.text_rows:,} rows"

    def ours(query: _Asked) -> pa.Table:
        vector, words = query
        options = f"k => {_K}, rrf_k => {_RRF_K}"
        text = f"SELECT id FROM hybrid_search({table}, v, $1, body, '{' '.join(words)}', {options})"
        return context.sql(text, [vector.tolist()])

    def figure(search: _Search) -> float:
        return median_secs([partial(search, query) for query in asked]) * 1e3

    if find_spec("lancedb") is None:
        figure(ours)
        alone = [figure(ours) for _ in range(context.repeat)]
        return [Line(what, 1.0, alone, remark="Stoker alone: lancedb is not installed in this environment")]
    theirs, version = _lancedb(context, table)
    same = np.mean([overlap(ours(query), theirs(query)) for query in asked])
    found = alternate(context.repeat, partial(figure, ours), partial(figure, theirs))
    remark = f"{same:.0%} of the rows are found by both; LanceDB has its default effort and stays at one version"
    return [Line(what, 1.0, *found, f"LanceDB {version}, RRF", remark=remark)]


def _lancedb(context: Context, table: str) -> tuple[_Search, str]:
    """Returns LanceDB's search of a table, and its version."""
    # Each search warns that it returns the columns of distances and scores, too.
    os.environ.setdefault("LANCEDB_LOG", "error")
    import lancedb
    from lancedb.rerankers import RRFReranker

    opened = lancedb.connect(str(context.folder / "lake")).open_table(table)
    reranker = RRFReranker(K=_RRF_K)

    def search(query: _Asked) -> pa.Table:
        vector, words = query
        asked = opened.search(query_type="hybrid", vector_column_name="v", fts_columns="body")
        asked = asked.vector(vector).text(" ".join(words)).rerank(reranker)
        return asked.limit(_K).select(["id"]).to_arrow()

    return search, lancedb.__version__
