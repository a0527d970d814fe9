"""Writes the data in one format, in a process of its own: ``python -m harness.prepare SYSTEM FOLDER ROWS``."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.dataset import Dataset
from peers import SYSTEMS


def main() -> None:
    """Writes the flat files, or converts them to the format of a system."""
    root, num_rows = Path(sys.argv[2]), int(sys.argv[3])
    system = SYSTEMS[sys.argv[1]]
    if system.data_format == "flat":
        Dataset.write(root / "flat", num_rows)
    else:
        system.write(Dataset(root / "flat", num_rows), root / system.data_format)


if __name__ == "__main__":
    main()
