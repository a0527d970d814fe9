"""The first batch of a training set whose rows a search of texts and vectors finds, from an S3-compatible store.

Each turn has another search, so that its rows are not known from an earlier turn or run. The table has both indexes,
and each side has searched it once before, in the same process. The time is that from the text of the query to the first
batch: search, row set, plan of the stream, and rows. The other side is what a user of pylance would write: both
searches at once, their fusion, and the rows of a batch in random order. It has nothing to go on with after this batch.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import lance
import numpy as np
from lance.query import MatchQuery

import stoker
from harness.store import serve
from sql_parts.context import Context, Measure
from sql_parts.data import query_vectors, word
from sql_parts.line import Line, alternate, secs

__all__ = ["streams"]

_LATENCY_MS = 20
#: The folder that the object server serves as a bucket.
_BUCKET = "sql"
#: The rows of the training set, and of a batch.
_K = 1_000
_BATCH_ROWS = 256
_RRF_K = 60
#: The words of a search, and the ranks by frequency that they have.
_NUM_WORDS, _RANKS = 3, range(200, 5_000)

#: A vector and words.
_Asked = tuple[Any, str]


def streams() -> list[Measure]:
    """One stream of the rows that a search finds."""
    return [Measure("first batch of a hybrid sample", _first)]


def _first(context: Context) -> list[Line]:
    table = context.table("pairs")
    buckets = _buckets(context.folder)
    with serve(context.needed_binary(), buckets, _LATENCY_MS) as endpoint, ThreadPoolExecutor(2) as pool:
        options = {
            "aws_endpoint": endpoint,
            "aws_region": "us-east-1",
            "aws_access_key_id": "stoker",
            "aws_secret_access_key": "stoker-bench",
            "allow_http": "true",
        }
        lake = stoker.connect(f"s3://{_BUCKET}/lake", storage_options=options, hold_days=0)
        dataset = lance.dataset(f"s3://{_BUCKET}/lake/{table}.lance", storage_options=options)
        # Both sides are asked the same, also before the first turn.
        asked = _asked(context.repeat + 1)
        own, other = iter(asked), iter(asked)
        found = alternate(
            context.repeat,
            lambda: _ours(lake, table, next(own)),
            lambda: secs(lambda: _theirs(dataset, pool, next(other))),
        )
    what = f"first batch of a hybrid sample of {context.text_rows:,} rows in S3"
    remark = (
        f"the store answers after {_LATENCY_MS} ms; k {_K:,}, batches of {_BATCH_ROWS}; Stoker also plans the epoch and"
        " looks for a newer version"
    )
    return [Line(what, 2.0, *found, "pylance, by hand", "s", judged="value", remark=remark)]


def _ours(lake: stoker.Lake, table: str, asked: _Asked) -> float:
    vector, words = asked
    search = f"hybrid_search({table}, v, $1, body, '{words}', k => {_K}, rrf_k => {_RRF_K})"
    began = perf_counter()
    query = lake.sql(f"SELECT id, v FROM {search}", [vector.tolist()])
    with query.stream(batch_size=_BATCH_ROWS, seed=1, rank=0, world_size=1, allow_nulls=True) as stream:
        batch = next(iter(stream))
        num_rows = len(batch["v"][: batch.num_valid])
        took = perf_counter() - began
        _check(num_rows, stream.num_rows)
    return took


def _theirs(dataset: lance.LanceDataset, pool: ThreadPoolExecutor, asked: _Asked) -> None:
    vector, words = asked
    nearest = {"column": "v", "q": vector, "k": _K}
    text = MatchQuery(words, "body")
    by_vector = pool.submit(dataset.to_table, columns=["id", "_distance"], nearest=nearest)
    by_text = pool.submit(dataset.to_table, columns=["id", "_score"], full_text_query=text, limit=_K)
    worth: defaultdict[int, float] = defaultdict(float)
    for found in (by_vector.result(), by_text.result()):
        for rank, row in enumerate(found["id"].to_pylist(), 1):
            worth[row] += 1 / (_RRF_K + rank)
    best = sorted(worth, key=lambda row: -worth[row])[:_K]
    chosen = np.random.default_rng(1).permutation(best)[:_BATCH_ROWS]
    # The ids of the table are the positions of its rows.
    batch = dataset.take(chosen.tolist(), columns=["id", "v"])
    if batch["id"].to_pylist() != chosen.tolist():
        raise RuntimeError("the ids of the table are not the positions of its rows")
    _check(batch.num_rows, len(best))


def _check(num_rows: int, num_found: int) -> None:
    expected = min(_BATCH_ROWS, num_found)
    if num_found == 0 or num_rows != expected:
        raise RuntimeError(f"the first batch has {num_rows} of the {num_found} rows found, not {expected}")


def _asked(count: int) -> list[_Asked]:
    """Returns searches for words that no earlier run had together."""
    random = secrets.SystemRandom()
    words = [" ".join(word(rank) for rank in random.sample(_RANKS, _NUM_WORDS)) for _ in range(count)]
    return list(zip(query_vectors("clustered", count), words, strict=True))


def _buckets(folder: Path) -> Path:
    """Returns a folder with one bucket, in which the lake is."""
    buckets = folder / "store"
    link = buckets / _BUCKET / "lake"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(Path("..", "..", "lake"), target_is_directory=True)
    return buckets
