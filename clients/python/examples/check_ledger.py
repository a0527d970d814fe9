"""Checks the ledgers that train_digits.py wrote: every row exactly once in every epoch, over all ranks and runs.

A run that was resumed counts up to the checkpoint from which the next one went on: what it did after that was lost with
its process, and the next run did it again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import stoker

Position = tuple[int, int]


@dataclass
class Run:
    """What the ranks of one run wrote."""

    resumed_at: Position = (0, 0)
    num_ranks: int = 0
    batches: list[tuple[Position, list[int]]] = field(default_factory=list)

    def read(self, path: Path) -> None:
        """Adds the ledger of one rank; a line that a kill cut off is the last one and does not count."""
        self.num_ranks += 1
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                break
            if "resumed_at" in line:
                self.resumed_at = (line["resumed_at"][0], line["resumed_at"][1])
            else:
                self.batches.append(((line["epoch"], line["position"]), line["rows"]))


def read_runs(folder: Path) -> list[Run]:
    """Gives the runs in the order of their names."""
    runs: defaultdict[str, Run] = defaultdict(Run)
    for path in sorted(folder.glob("*-rank*.jsonl")):
        runs[path.name.rpartition("-rank")[0]].read(path)
    return [runs[name] for name in sorted(runs)]


def count_rows(runs: list[Run]) -> tuple[dict[int, Counter[int]], int]:
    """Gives, for each epoch, how often each row counts, and the number of rows that were done again after a resume."""
    seen: defaultdict[int, Counter[int]] = defaultdict(Counter)
    num_again = 0
    for index, run in enumerate(runs):
        end = runs[index + 1].resumed_at if index + 1 < len(runs) else (sys.maxsize, 0)
        for (epoch, position), rows in run.batches:
            if (epoch, position) > end:
                num_again += len(rows)
            else:
                seen[epoch].update(rows)
    return seen, num_again


def main() -> int:
    """Prints what the ledgers say; the exit status is 1 when rows are lost or repeated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ledger", type=Path, help="the folder of the ledgers")
    parser.add_argument("--lake", required=True, help="a lake or a server that stoker.connect understands")
    parser.add_argument("--query", required=True, help="a query whose only value is the number of rows of an epoch")
    args = parser.parse_args()
    expected = stoker.connect(args.lake).sql(args.query).to_arrow().column(0)[0].as_py()
    runs = read_runs(args.ledger)
    seen, num_again = count_rows(runs)
    for index, run in enumerate(runs):
        print(f"run {index}: {run.num_ranks} ranks, from epoch {run.resumed_at[0]}, position {run.resumed_at[1]}")
    num_wrong = 0
    for epoch, rows in sorted(seen.items()):
        num_lost = expected - len(rows)
        num_repeated = rows.total() - len(rows)
        num_wrong += num_lost + num_repeated
        print(f"epoch {epoch}: {len(rows)} of {expected} rows, {num_lost} lost, {num_repeated} repeated")
    print(f"{num_again} rows of a killed run were trained on after its last checkpoint and delivered again")
    ranks = " then ".join(str(run.num_ranks) for run in runs)
    print(f"figure rows lost / repeated in {len(seen)} epochs of {expected}, on {ranks} ranks: {num_wrong}")
    return 0 if num_wrong == 0 and seen else 1


if __name__ == "__main__":
    sys.exit(main())
