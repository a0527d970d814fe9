"""Streams the training rows of the table `digits` once, and prints what arrived as digests, and how fast."""

from __future__ import annotations

import argparse
import hashlib
import time
from typing import Any

import numpy as np

import stoker

QUERY = "SELECT image, label FROM digits WHERE split = 'train'"


def row_digests(batch: Any) -> list[bytes]:
    """A digest of each row's image and label."""
    images = np.ascontiguousarray(batch["image"])
    labels = np.asarray(batch["label"]).astype("<i8")
    rows = zip(images, labels, strict=True)
    return [hashlib.sha256(image.tobytes() + label.tobytes()).digest() for image, label in rows]


def main() -> None:
    """Streams one epoch and prints its digests and rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lake", required=True, help="a lake or a server that stoker.connect understands")
    parser.add_argument("--name", required=True, help="what the figures are called")
    args = parser.parse_args()
    stream = (
        stoker.connect(args.lake).sql(QUERY).stream(batch_size=64, seed=7, last_batch="uneven", rank=0, world_size=1)
    )
    batches: list[Any] = []
    first_batch_secs = 0.0
    begun = time.perf_counter()
    for batch in stream:
        first_batch_secs = first_batch_secs or time.perf_counter() - begun
        batches.append(batch)
    elapsed = time.perf_counter() - begun
    rows = [digest for batch in batches for digest in row_digests(batch)]
    print(f"digest of batches: {hashlib.sha256(b''.join(rows)).hexdigest()}")
    print(f"digest of rows: {hashlib.sha256(b''.join(sorted(rows))).hexdigest()}")
    rate = f"{len(rows) / elapsed:,.0f} samples/s, first batch after {1000 * first_batch_secs:.0f} ms"
    print(f"figure stream of {len(rows)} rows, {args.name}: {rate}")


if __name__ == "__main__":
    main()
