"""Writes the data in one format, in a process of its own: ``python -m harness.prepare SYSTEM FOLDER KIND ROWS``."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.dataset import Dataset
from harness.rows import ROW_KINDS
from peers import SYSTEMS


def main() -> None:
    """Writes the flat files, or converts them to the format of a system."""
    system, root, kind, num_rows = SYSTEMS[sys.argv[1]], Path(sys.argv[2]), ROW_KINDS[sys.argv[3]], int(sys.argv[4])
    if system.data_format == "flat":
        Dataset.write(root / "flat", kind, num_rows)
    else:
        system.write(Dataset(root / "flat", kind, num_rows), root / system.data_format)


if __name__ == "__main__":
    main()
