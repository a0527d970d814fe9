"""Index builds beside pylance, with the same parameters, of the same rows.

Stoker executes ``CREATE OR REPLACE INDEX``. For vectors that also estimates the recall of the index.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import lance

from sql_parts.context import Context, Measure
from sql_parts.data import SUB_VECTORS, TEXT_INDEX, num_partitions
from sql_parts.line import Line, alternate, secs

__all__ = ["builds"]


def builds() -> list[Measure]:
    """Builds of the indexes that searches and look-ups use; each build replaces the index."""
    return [
        Measure("build, ivf_pq", _ivf_pq),
        Measure("build, btree", _btree),
        Measure("build, inverted", _inverted),
    ]


def _ivf_pq(context: Context) -> list[Line]:
    table, partitions = context.table("clustered"), num_partitions(context.vector_rows)

    def ours() -> None:
        options = f"num_partitions = {partitions}, num_sub_vectors = {SUB_VECTORS}"
        context.lake.execute(f"CREATE OR REPLACE INDEX ON {table} USING ivf_pq (v) WITH ({options})")

    def theirs(dataset: lance.LanceDataset) -> None:
        dataset.create_index(
            "v", "IVF_PQ", metric="L2", replace=True, num_partitions=partitions, num_sub_vectors=SUB_VECTORS
        )

    remark = f"{partitions} partitions, {SUB_VECTORS} sub-vectors; Stoker also estimates the recall"
    return _built(context, table, f"build, ivf_pq, {context.vector_rows:,} rows", remark, ours, theirs)


def _btree(context: Context) -> list[Line]:
    table = context.table("light")

    def ours() -> None:
        context.lake.execute(f"CREATE OR REPLACE INDEX ON {table} USING btree (code)")

    def theirs(dataset: lance.LanceDataset) -> None:
        dataset.create_scalar_index("code", "BTREE", replace=True)

    return _built(context, table, f"build, btree, {context.light_rows:,} rows", "", ours, theirs)


def _inverted(context: Context) -> list[Line]:
    table = context.table("texts")

    def ours() -> None:
        context.lake.execute(f"CREATE OR REPLACE INDEX ON {table} USING inverted (body)")

    def theirs(dataset: lance.LanceDataset) -> None:
        dataset.create_scalar_index("body", "INVERTED", replace=True, **TEXT_INDEX)

    remark = "words as they are written, with positions"
    return _built(context, table, f"build, inverted, {context.text_rows:,} rows", remark, ours, theirs)


def _built(
    context: Context,
    table: str,
    what: str,
    remark: str,
    ours: Callable[[], None],
    theirs: Callable[[lance.LanceDataset], None],
) -> list[Line]:
    def tidy() -> None:
        """Removes the files of the indexes that were replaced."""
        context.open(table).cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)

    def their_secs() -> float:
        dataset = context.open(table)
        return secs(partial(theirs, dataset))

    try:
        found = alternate(context.build_repeat, lambda: secs(ours), their_secs, warm_up=False, after=tidy)
    finally:
        context.forget(table)
    return [Line(what, 1.2, *found, unit="s", remark=remark)]
