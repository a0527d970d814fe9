"""A server can query a table to which other processes append all the time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from test_service import serving

import stoker

NUM_WRITERS, NUM_QUERIES = 3, 40
NUM_ROWS = 10


def test_a_query_finds_a_version_to_read(tmp_path: Path) -> None:
    path, over = str(tmp_path / "lake"), threading.Event()
    stoker.connect(path).create_table("hot", {"id": list(range(NUM_ROWS))})

    def append() -> int:
        num_appended = 0
        while not over.is_set():
            stoker.connect(path).table("hot").append({"id": list(range(NUM_ROWS))})
            num_appended += 1
        return num_appended

    with serving("--lake", path, "--listen", "127.0.0.1:0") as url, ThreadPoolExecutor(NUM_WRITERS) as pool:
        writers = [pool.submit(append) for _ in range(NUM_WRITERS)]
        try:
            lake, counts = stoker.connect(url), [0]
            for _ in range(NUM_QUERIES):
                (count,) = lake.sql("SELECT count(*) AS n FROM hot").to_arrow()["n"].to_pylist()
                counts.append(count)
        finally:
            over.set()
        assert counts == sorted(counts)
        assert all(count % NUM_ROWS == 0 for count in counts)
        assert min(writer.result() for writer in writers) > 0
