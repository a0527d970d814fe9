"""Compacts a table with pylance, as operators may beside Stoker: `soak_compaction.py URI ROWS_PER_FRAGMENT OPTIONS`."""

from __future__ import annotations

import json
import sys

import lance


def main() -> None:
    uri, num_rows, options = sys.argv[1:]
    dataset = lance.dataset(uri, storage_options=json.loads(options))
    metrics = dataset.optimize.compact_files(target_rows_per_fragment=int(num_rows), num_threads=1)
    print(f"{metrics.fragments_removed} fragments became {metrics.fragments_added}")


if __name__ == "__main__":
    main()
