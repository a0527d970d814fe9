"""A table with embeddings, and a sample query that filters, searches by vector and streams what it found.

`create` writes the table `digits_emb` from Python: image, label, split and a vector of 64 numbers per image. `search`
streams the neighbours of one image among the training rows, and compares them with a search by brute force.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.datasets import load_digits

import stoker

NUM_NEIGHBOURS = 50
DIMENSION = 64
TEST_EVERY = 5
QUERY = """
    SELECT id, image, label, _distance
    FROM vector_search(digits_emb, embedding, $1, k => 50)
    WHERE split = 'train'
"""


def embeddings() -> np.ndarray[Any, Any]:
    """The images in the coordinates of their principal components: float32 of shape (images, 64)."""
    pixels = load_digits().data.astype(np.float64) / 16.0
    centred = pixels - pixels.mean(axis=0)
    _, _, components = np.linalg.svd(centred, full_matrices=False)
    return np.asarray(centred @ components.T, dtype=np.float32)


def splits(num_rows: int) -> np.ndarray[Any, Any]:
    """Every fifth image is for testing."""
    return np.where(np.arange(num_rows) % TEST_EVERY == 0, "test", "train")


def table() -> pa.Table:
    """The table `digits_emb`."""
    digits = load_digits()
    images = np.ascontiguousarray(digits.images.astype(np.uint8))
    vectors = embeddings()
    return pa.table(
        {
            "id": pa.array(np.arange(len(images), dtype=np.int64)),
            "image": pa.FixedShapeTensorArray.from_numpy_ndarray(images),
            "label": pa.array(digits.target.astype(np.int64)),
            "split": pa.array(splits(len(images))),
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIMENSION),
        }
    )


def create(lake: str) -> None:
    """Writes the table."""
    data = table()
    stoker.connect(lake).create_table("digits_emb", data)
    print(f"digits_emb: {data.num_rows} rows, columns {', '.join(data.column_names)}")


def search(lake: str) -> bool:
    """Streams the neighbours of the first image, and says whether they are those that brute force finds."""
    vectors = embeddings()
    query = stoker.connect(lake).sql(QUERY, params=[vectors[0].tolist()])
    found: dict[int, float] = {}
    labels: list[int] = []
    for batch in query.stream(batch_size=16, seed=7, last_batch="uneven", rank=0, world_size=1):
        found |= dict(zip(batch["id"].tolist(), batch["_distance"].tolist(), strict=True))
        labels += batch["label"].tolist()
    distances = ((vectors - vectors[0]) ** 2).sum(axis=1)
    candidates = np.flatnonzero(splits(len(vectors)) == "train")
    nearest = candidates[np.argsort(distances[candidates])][:NUM_NEIGHBOURS]
    agrees = len(labels) == NUM_NEIGHBOURS and found.keys() == set(nearest.tolist())
    agrees = agrees and np.allclose([found[int(row)] for row in nearest], distances[nearest], rtol=1e-3, atol=1e-4)
    num_right = len(found.keys() & set(nearest.tolist()))
    label = load_digits().target[0]
    print(f"{len(labels)} rows streamed, {labels.count(label)} of them a {label} like the image that was searched for")
    print(f"figure hybrid query, rows that brute force finds too: {num_right} of {NUM_NEIGHBOURS}")
    return bool(agrees)


def main() -> int:
    """Creates or searches; the exit status is 1 when the search differs from brute force."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["create", "search"])
    parser.add_argument("--lake", required=True, help="a lake or, for the search, a server")
    args = parser.parse_args()
    if args.action == "create":
        create(args.lake)
        return 0
    return 0 if search(args.lake) else 1


if __name__ == "__main__":
    sys.exit(main())
