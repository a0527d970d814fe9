"""A search among few rows compares their stored vectors, and gives what NumPy gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stoker

NUM_ROWS, DIMENSIONS, K = 20_000, 64, 10
#: The predicates, with the rows that pass them: at most one in 16.
PREDICATES = {
    "part = 7": lambda ids: ids % 100 == 7,
    "id < 300": lambda ids: ids < 300,
    "id = 5": lambda ids: ids == 5,
    "part IN (1, 2) AND id > 10000": lambda ids: np.isin(ids % 100, (1, 2)) & (ids > 10_000),
    "id IN (SELECT id FROM points WHERE part = 3)": lambda ids: ids % 100 == 3,
    "id < 0": lambda ids: ids < 0,
}


def rows_of(ids: np.ndarray, vectors: np.ndarray) -> dict[str, object]:
    return {"id": ids, "part": ids % 100, "emb": vectors}


def distances(vectors: np.ndarray, query: np.ndarray, metric: str) -> np.ndarray:
    """Computes what a search calls ``_distance``."""
    exact, query = vectors.astype(np.float64), query.astype(np.float64)
    if metric == "l2":
        return ((exact - query) ** 2).sum(axis=1)
    dots = exact @ query
    return 1 - (dots if metric == "dot" else dots / np.linalg.norm(exact, axis=1) / np.linalg.norm(query))


@pytest.mark.parametrize("has_index", [False, True], ids=["no index", "index"])
def test_searches_among_few_rows_agree_with_numpy(tmp_path: Path, has_index: bool) -> None:
    random = np.random.default_rng(5)
    ids, vectors = np.arange(NUM_ROWS), random.normal(size=(NUM_ROWS, DIMENSIONS)).astype(np.float32)
    # Rows of the same distance are ordered by address.
    vectors[4_007:4_407:100] = vectors[7]
    lake = stoker.connect(str(tmp_path / "lake"))
    table = lake.create_table("points", rows_of(ids, vectors), rows_per_fragment=6_000)
    if has_index:
        table.create_index("emb", kind="ivf_pq", num_partitions=8, num_sub_vectors=16)
        lake.execute("CREATE INDEX by_part ON points USING bitmap (part)")

    def check() -> None:
        for metric in ("l2", "cosine", "dot"):
            for predicate, passes in PREDICATES.items():
                query = vectors[7] if metric == "l2" else random.normal(size=DIMENSIONS).astype(np.float32)
                sql = (
                    f"SELECT id, _distance FROM vector_search(points, emb, $1, k => {K}, metric => '{metric}')"
                    f" WHERE {predicate}"
                )
                found = lake.sql(sql, params=[query.tolist()]).to_arrow().to_pydict()
                passed = ids[passes(ids)]
                exact = distances(vectors[passes(ids)], query, metric)
                best = np.lexsort((passed, np.round(exact, 9)))[:K]
                assert found["id"] == passed[best].tolist(), (metric, predicate)
                np.testing.assert_allclose(found["_distance"], exact[best], rtol=1e-4, atol=1e-4)

    check()
    lake.execute("DELETE FROM points WHERE id % 3 = 1")
    kept = ids % 3 != 1
    more = np.arange(NUM_ROWS, NUM_ROWS + 500)
    ids = np.concatenate([ids[kept], more])
    vectors = np.concatenate([vectors[kept], random.normal(size=(500, DIMENSIONS)).astype(np.float32)])
    table.append(rows_of(more, vectors[-500:]))
    check()
