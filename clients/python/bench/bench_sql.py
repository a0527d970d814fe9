"""Measures SQL and search beside pylance, DuckDB and LanceDB, and beside the bandwidth of memory and C++ Flight.

    python clients/python/bench/bench_sql.py --stoker target/release/stoker --dir /data/bench-sql

``cargo xtask bench sql`` builds what it needs and runs it. Both sides read the same rows: the same Lance tables, which
Stoker wrote, and for DuckDB a Parquet file of them; each side changes a table that it wrote itself. They take turns in
one process, ``--repeat`` times, and the side that begins changes with each turn. Before, each side runs once. Figures
are medians of the turns, a figure of a turn is the median of ``--queries`` queries where single queries are measured,
and the ratio is the median of the ratios within each turn.

Parts:

- ``builds``: ``CREATE INDEX`` of each kind beside pylance with the same parameters, over copies of the same table,
  ``--build-repeat`` times; for vectors Stoker's time includes the estimate of the recall. At most 200,000 rows for
  ``ivf_hnsw_sq`` and ``ngram``;
- ``vectors``: approximate searches (IVF_PQ) of clustered and of uniform vectors, without a filter and with filters that
  10 % and 1 % of the rows pass. Stoker has its defaults. pylance has the fastest of its settings with a recall@10 of
  0.95, or with Stoker's recall if that is lower. With a btree over the column of the filter: beside the better of its
  ANN and exact search;
- ``distances``: ``WHERE l2_distance(v, $1) < r`` beside the sum of an array by NumPy, a thread for each processor, and
  ``ORDER BY v <-> $1 LIMIT 10`` without an index, of at most 10 queries, beside pylance's exact search;
- ``texts``: ``text_search`` beside pylance's full-text search by the same index;
- ``hybrid``: ``hybrid_search`` beside LanceDB's hybrid search, by the same indexes and with the same reciprocal rank
  fusion; without LanceDB, Stoker alone (``requirements-peers.txt`` has a version that reads these tables);
- ``light``: count, filter, GROUP BY and top 10 beside DuckDB with a thread for each processor;
- ``lookups``: a row by its code (btree) beside pylance;
- ``select1``: ``SELECT 1`` in process, and through ``stoker serve``;
- ``adbc``: a result of 1 GB, with numbers, a text and a vector, through ADBC's Flight SQL driver and ``stoker serve``,
  beside ready record batches of Arrow's C++ Flight server through the same driver;
- ``row_sets``: the time to plan a stream of 5 % of the rows, which are other rows in each turn;
- ``first-batch``: the first batch of a training set whose rows ``hybrid_search`` finds, from ``stoker bench
  object-server``, which waits 20 ms before each response, beside the same by hand with pylance. Both sides have opened
  the table and its indexes; each turn has another search;
- ``writes``: UPDATE and DELETE of 1 % of the rows, which are scattered over the table, beside pylance. Each has a fresh
  copy of the table, and the time of copying does not count.

What fails, or needs a package that is not installed, has a line that says why, and the rest is measured. A bar is one
of the default numbers of rows; with ``--quick`` it says less. The data takes 8 GB of disk by default.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sql_parts.line import Line, Row, SkippedError, table

from harness.folder import data_folder

if TYPE_CHECKING:
    from sql_parts.context import Context, Measure

_PARTS = (
    "builds",
    "vectors",
    "distances",
    "texts",
    "hybrid",
    "light",
    "lookups",
    "select1",
    "adbc",
    "row_sets",
    "first-batch",
    "writes",
)
_QUICK_ROWS = 100_000
#: The default numbers of rows.
_ROWS = {"vector_rows": 1_000_000, "light_rows": 10_000_000, "text_rows": 1_000_000, "result_rows": 1_350_000}
_PACKAGES = ("pylance", "duckdb", "lancedb", "adbc-driver-flightsql", "numpy", "pyarrow")


def main() -> int:
    """Measures and prints one table; returns the exit status, which is 1 if a measurement failed."""
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    import stoker  # before pylance: it sets how many threads Lance has on small machines, for both sides

    rows: dict[str, int] = {}
    for name, most in _ROWS.items():
        rows[name] = getattr(arguments, name) or (_QUICK_ROWS if arguments.quick else most)
    from sql_parts.context import Context, num_processors

    with data_folder(arguments.dir, "stoker-sql-") as folder:
        context = Context(folder, arguments.stoker, arguments.repeat, arguments.build_repeat, arguments.queries, **rows)
        lines, status = _run(context, _measures(arguments.parts))
    print(
        f"{rows['vector_rows']:,} vectors of 128 float32, {rows['text_rows']:,} texts,"
        f" {rows['light_rows']:,} light rows, {rows['result_rows']:,} rows of a result;"
        f" medians of {arguments.repeat} turns, of builds {arguments.build_repeat};"
        f" {num_processors()} processors\n"
    )
    print(table(lines))
    if arguments.json is not None:
        versions = {"stoker": stoker.__version__, **{name: _version(name) for name in _PACKAGES}}
        report = {"rows": rows, "versions": versions, "lines": [_to_json(line) for line in lines]}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return status


def _run(context: Context, measures: list[Measure]) -> tuple[list[Row], int]:
    """Returns the lines and the exit status. After SIGINT or SIGTERM, these are what was measured."""
    lines: list[Row] = []
    status = 0
    for number, measure in enumerate(measures, 1):
        print(f"{number} of {len(measures)}: {measure.name}", file=sys.stderr)
        try:
            found: list[Row] = [*measure.run(context)]
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return lines, 128 + signal.SIGINT
        except SkippedError as skipped:
            found = [(measure.name, str(skipped))]
        except Exception as failed:  # the libraries have errors of many kinds, and the rest can be measured
            status = 1
            found = [(measure.name, f"failed: {type(failed).__name__}: {failed}")]
        print(table(found).partition("\n")[2].partition("\n")[2], file=sys.stderr)
        lines += found
    return lines, status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure SQL and search beside other engines, on the same rows.")
    add = parser.add_argument
    add("--parts", nargs="*", choices=_PARTS, default=_PARTS, metavar="PART", help=f"of {', '.join(_PARTS)} (all)")
    add("--quick", action="store_true", help=f"{_QUICK_ROWS:,} rows of each table, for a quick look")
    for name, most in _ROWS.items():
        add(f"--{name.replace('_', '-')}", type=int, metavar="N", help=f"default {most:,}")
    add("--repeat", type=int, default=5, help="turns (default %(default)s)")
    add("--build-repeat", type=int, default=3, help="turns of index builds (default %(default)s)")
    add("--queries", type=int, default=50, help="queries of a turn (default %(default)s)")
    add("--dir", type=Path, help="where the data is written, and kept for the next run; default: a temporary folder")
    add("--stoker", default=os.environ.get("STOKER_BIN"), help="the stoker binary; default: STOKER_BIN")
    add("--json", type=Path, help="write all figures to this file")
    return parser


def _measures(parts: list[str]) -> list[Measure]:
    """Returns the measurements of the parts, in the order of the table."""
    from sql_parts import adbc, builds, first_batch, hybrid, light, service, texts, vectors, writes

    measures = {
        "builds": builds.builds,
        "vectors": vectors.searches,
        "distances": vectors.distances,
        "texts": texts.searches,
        "hybrid": hybrid.searches,
        "light": light.queries,
        "lookups": light.lookups,
        "select1": service.smallest,
        "adbc": adbc.results,
        "row_sets": light.row_sets,
        "first-batch": first_batch.streams,
        "writes": writes.writes,
    }
    return [measure for part in _PARTS if part in parts for measure in measures[part]()]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _to_json(line: Row) -> dict[str, Any]:
    if isinstance(line, Line):
        return line.to_json()
    return {"what": line[0], "not_measured": line[1]}


if __name__ == "__main__":
    sys.exit(main())
