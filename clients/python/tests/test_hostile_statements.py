"""A server refuses or limits statements made to exhaust its memory or processors, and concurrent streams go on."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
from conftest import Server, make_columns, stoker_bin

import stoker

pytestmark = pytest.mark.alone

POOL_BYTES = 256 << 20
# The most memory that a process may have in addition to the pool of its queries.
SLACK_BYTES = 512 << 20
NUM_WORDS = 20_000
QUERY_SECS = 2
PLANNING_SECS = 2

A, B = "lpad('a', 60000, 'a')", "lpad('b', 60000, 'b')"
ALL_TO_TEXT = "(SELECT id, replace(word, 'w', lpad('x', 2000, 'x')) AS word FROM words)"


def doubled(levels: int, what: str) -> str:
    """Returns a query that concatenates a text with itself `levels` times, which gives 2^levels times its length."""
    query = f"SELECT {what} AS x FROM words"
    for _ in range(levels):
        query = f"SELECT x || x AS x FROM ({query})"
    return f"SELECT x FROM ({query}) doubled"


def named_twice(levels: int) -> str:
    """Returns a query with common table expressions, each of which names the one before it twice."""
    parts = ["c0 AS (SELECT id FROM words)"]
    parts += [f"c{i} AS (SELECT a.id FROM c{i - 1} a JOIN c{i - 1} b ON a.id = b.id)" for i in range(1, levels)]
    return f"WITH {', '.join(parts)} SELECT count(*) FROM c{levels - 1}"


def nested_exists(levels: int) -> str:
    query = "SELECT 1 FROM words"
    for level in range(levels):
        query = f"SELECT 1 FROM words w{level} WHERE EXISTS ({query})"
    return query


RESULTS = {
    "replace of paddings": f"SELECT replace({A}, 'a', {B}) AS x",
    "replace of paddings for each row": f"SELECT length(replace(word || {A}, 'a', {B})) AS x FROM words",
    "nested replace": "SELECT length(" + "replace(" * 9 + "'aaaaaaaa'" + ", 'a', 'aaaaaaaaaaaaaaaa')" * 9 + ") AS x",
    "nested replace of a column": "SELECT max(length("
    + "replace(" * 6
    + "word"
    + ", 'w', 'wwwwwwwwwwwwwwww')" * 6
    + ")) FROM words",
    "regexp_replace everywhere": f"SELECT length(regexp_replace({A}, 'a', {B}, 'g')) AS x",
    "regexp_replace of a column": f"SELECT max(length(regexp_replace(word, '', {B}, 'g'))) FROM words",
    "string_agg over a cross join": f"SELECT length(string_agg(a.word, 'x')) FROM {ALL_TO_TEXT} a, words b",
    "array_agg over a cross join": f"SELECT cardinality(array_agg(a.word)) FROM {ALL_TO_TEXT} a, words b",
    "texts joined to themselves": f"SELECT max(length(x)) FROM ({doubled(30, 'word')})",
    "constants joined to themselves": f"SELECT max(length(x)) FROM ({doubled(20, A)})",
    "concat": f"SELECT {', '.join(f'concat({A}, word, {i}) AS c{i}' for i in range(400))} FROM words",
    "padding of each row": f"SELECT {', '.join(f'max(length(c{i})) AS c{i}' for i in range(50))} FROM "
    f"(SELECT {', '.join(f'lpad(word, {65_000 - i}) AS c{i}' for i in range(50))} FROM words)",
    "groups of a pattern": f"SELECT regexp_match({A} || word, '{'(' * 200}a+{')' * 200}') AS x FROM words",
    "translate": f"SELECT length(translate({A}, 'a', chr(128512))) AS x FROM words",
    "lists of characters": f"SELECT cardinality(string_to_array({A} || word, NULL)) FROM words",
    "lists as texts": f"SELECT length(array_to_string(string_to_array({A}, NULL), {B})) AS x",
    "formats": f"SELECT length(to_char(now(), '{'%c' * 20_000}')) AS x FROM words",
    "a window over a cross join": "SELECT max(n) FROM (SELECT sum(a.id) OVER () AS n FROM words a, words b)",
    "a window of wide rows": f"SELECT max(length(n)) FROM (SELECT max(word) OVER () AS n, word FROM {ALL_TO_TEXT} a,"
    " (SELECT id FROM words LIMIT 500) b)",
    "strings of a running window": "SELECT max(length(n)) FROM (SELECT string_agg(word, 'x') OVER (ORDER BY id) AS n"
    " FROM words)",
    "a sort of a wide cross join": f"SELECT a.word FROM {ALL_TO_TEXT} a, words b ORDER BY a.word || b.word LIMIT 5",
    "distinct over a cross join": "SELECT count(*) FROM (SELECT DISTINCT a.word || b.word FROM words a, words b)",
    "counting a cross join": "SELECT count(*) FROM words a, words b, words c, words d WHERE a.id + b.id > c.id + d.id",
    "edit distances": f"SELECT max(levenshtein({A} || word, {B} || word)) FROM words",
    "centroids": "SELECT approx_percentile_cont(id, 0.5, 1000000000000) FROM words",
    "elements in common": f"SELECT array_has_any(string_to_array({A} || word, NULL), string_to_array({B}, NULL))"
    " FROM words",
    "a pattern of many states": f"SELECT count(*) FROM words WHERE regexp_like({A} || word, '(a{{1,50}}){{1,50}}b')",
    "a huge limit of a sort": "SELECT id FROM words ORDER BY word LIMIT 1000000000000 OFFSET 999999999999",
    "a huge k": "SELECT id FROM vector_search(samples, emb, [1.0, 2.0, 3.0, 4.0], k => 1000000000000)",
    "unnested lists": f"SELECT count(*) FROM (SELECT unnest(string_to_array({A}, NULL)), word FROM words)",
    "many columns of conditions": "SELECT "
    + ", ".join(f"CASE WHEN id > {i} THEN word END AS c{i}" for i in range(1_000))
    + f" FROM {ALL_TO_TEXT}",
}

PLANS = {
    "a filter above doublings": doubled(30, "word") + " WHERE x = 'a'",
    "a join above doublings": f"SELECT a.x FROM ({doubled(30, 'word')}) a JOIN words b ON a.x = b.word",
    "24 common table expressions": named_twice(24),
    "12 common table expressions": named_twice(12),
    "120 nested EXISTS": nested_exists(120),
    "12 nested EXISTS": nested_exists(12),
    "1,200 UNION ALL": " UNION ALL ".join(["SELECT id FROM words"] * 1_200),
    "250 UNION ALL": " UNION ALL ".join(["SELECT id FROM words"] * 250),
    "60 joins": "SELECT count(*) FROM " + ", ".join(f"words w{i}" for i in range(60)),
    "a list of 5,000 values": f"SELECT count(*) FROM words WHERE id IN ({', '.join(map(str, range(4_900)))})",
    "deep calls": f"SELECT {'lower(' * 250}'A'{')' * 250} AS x",
    "a chain of conditions": f"SELECT count(*) FROM words WHERE {' OR '.join(['(id > 1 AND word < $$x$$)'] * 300)}",
}


class Canary:
    """A thread that reads a stream all the time, and records the times between batches."""

    def __init__(self, url: str) -> None:
        self.stopped = Event()
        self.gaps: list[float] = []
        self.failure: Exception | None = None
        self.thread = Thread(target=self.read, args=(url,))
        self.thread.start()

    def read(self, url: str) -> None:
        try:
            stream = stoker.connect(url).sql("SELECT id, image FROM samples").stream(batch_size=8)
            while not self.stopped.is_set():
                last = time.monotonic()
                for _ in stream:
                    now = time.monotonic()
                    self.gaps.append(now - last)
                    last = now
        except Exception as failure:
            self.failure = failure

    def stop(self) -> float:
        """Stops the thread; returns the 99th percentile of the times between batches, in seconds."""
        self.stopped.set()
        self.thread.join(timeout=60)
        assert self.failure is None, self.failure
        assert not self.thread.is_alive()
        return float(np.quantile(self.gaps, 0.99))


class Attacked:
    """A server with small limits for queries."""

    def __init__(self, lake_path: str) -> None:
        self.server = Server(
            lake_path,
            {
                "STOKER_QUERY_POOL_BYTES": str(POOL_BYTES),
                "STOKER_QUERY_SECS": str(QUERY_SECS),
                "STOKER_QUERY_PLANNING_SECS": str(PLANNING_SECS),
                "STOKER_QUERIES_AT_ONCE": "2",
                "STOKER_QUERIES_WAITING": "1",
            },
        )
        self.lake = stoker.connect(self.server.url)
        self.lake.sql("SELECT count(*) FROM words").to_arrow()
        self.idle_bytes = self.memory("VmRSS")

    def memory(self, name: str) -> int:
        status = Path(f"/proc/{self.server.process.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        assert found is not None, status
        return int(found[1]) * 1024

    def forget_peak(self) -> None:
        """Resets the peak of the server's resident memory to its current value."""
        Path(f"/proc/{self.server.process.pid}/clear_refs").write_text("5")

    def processor_secs(self) -> float:
        fields = Path(f"/proc/{self.server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def ticks_by_name(self) -> Counter[str]:
        """Returns the processor time of living threads by thread name, in hundredths of a second."""
        spent: Counter[str] = Counter()
        for thread in Path(f"/proc/{self.server.process.pid}/task").iterdir():
            with suppress(OSError):
                name, fields = (thread / "stat").read_text().split("(", 1)[1].rsplit(") ", 1)
                spent[name] += sum(map(int, fields.split()[11:13]))
        return spent

    def check(self) -> None:
        """Checks that the process is alive and answers, and that its peak of memory was within the limit."""
        assert self.server.process.poll() is None
        assert self.lake.sql("SELECT count(*) AS n FROM words").to_arrow()["n"][0].as_py() == NUM_WORDS
        peak = self.memory("VmHWM") - self.idle_bytes
        self.forget_peak()
        assert peak <= POOL_BYTES + SLACK_BYTES, f"{peak >> 20} MiB"

    def settles(self) -> None:
        """Waits until the server uses less than half of a processor."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            before, begun = self.processor_secs(), time.monotonic()
            Event().wait(0.2)
            if self.processor_secs() - before < 0.5 * (time.monotonic() - begun):
                return
        pytest.fail("the server computes on for nobody")


@pytest.fixture(scope="module")
def attacked_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("attacked"))
    lake = stoker.connect(path)
    lake.create_table("samples", make_columns(400))
    ids = np.arange(NUM_WORDS)
    lake.create_table("words", {"id": ids, "word": [f"wwww {i} words" for i in ids]})
    return path


@pytest.fixture(scope="module")
def attacked(attacked_path: str) -> Iterator[Attacked]:
    running = Attacked(attacked_path)
    yield running
    assert running.server.stop() == 0


def run(lake: stoker.Lake, sql: str) -> str:
    """Runs a statement; returns a text with the number of its rows, or with the error that refused it."""
    try:
        return f"{lake.sql(sql).to_arrow().num_rows} rows"
    except (stoker.ResourceExhaustedError, stoker.InvalidRequestError) as error:
        return f"{type(error).__name__}: {error}"


def check_bounded(attacked: Attacked, name: str, sql: str) -> None:
    """Runs a statement; checks that it ends within its time limits and that the server is healthy after it."""
    begun = time.monotonic()
    outcome = run(attacked.lake, sql)
    print(name, f"{time.monotonic() - begun:.1f} s", f"{attacked.memory('VmHWM') >> 20} MiB", outcome[:300])
    assert time.monotonic() - begun < QUERY_SECS + PLANNING_SECS + 10, outcome
    attacked.check()


@pytest.mark.parametrize("name", RESULTS)
def test_no_result_is_larger_than_its_limit(attacked: Attacked, name: str) -> None:
    check_bounded(attacked, name, RESULTS[name])


@pytest.mark.parametrize("name", PLANS)
def test_no_plan_takes_longer_than_its_limit(attacked: Attacked, name: str) -> None:
    check_bounded(attacked, name, PLANS[name])
    attacked.settles()
    attacked.check()


def test_errors_name_the_function_the_bytes_and_the_limit(attacked: Attacked) -> None:
    outcome = run(attacked.lake, RESULTS["replace of paddings"])
    assert re.match(r"ResourceExhaustedError: .*function replace needs up to 36\d{8} bytes .* limit is \d+", outcome)


def test_limits_hold_in_process(attacked_path: str) -> None:
    lake = stoker.connect(attacked_path)
    for name in ("replace of paddings", "nested replace", "regexp_replace everywhere", "centroids"):
        assert run(lake, RESULTS[name]).startswith(("ResourceExhaustedError", "InvalidRequestError")), name
    for name in ("24 common table expressions", "120 nested EXISTS", "1,200 UNION ALL"):
        assert run(lake, PLANS[name]).startswith("InvalidRequestError"), name


def test_functions_whose_results_are_bounded_work_on_long_columns(attacked: Attacked) -> None:
    sql = (
        "SELECT count(*) AS n, sum(length(replace(word, 'w', 'ww'))) AS l, count(DISTINCT lpad(word, 3000, 'x')) AS d, "
        "min(regexp_replace(word, '[w]+', 'v\\0', 'g') || '!') AS r FROM words"
    )
    row = attacked.lake.sql(sql).to_arrow().to_pylist()[0]
    words = [f"wwww {i} words" for i in range(NUM_WORDS)]
    assert row["n"] == row["d"] == NUM_WORDS
    assert row["l"] == sum(len(word) + word.count("w") for word in words)
    assert row["r"] == min(re.sub("w+", lambda found: "v" + found[0], word) + "!" for word in words)


def busy(lake: stoker.Lake, stopped: Event) -> None:
    """Sends statements one after the other that compute until the server cancels them."""
    while not stopped.is_set():
        run(lake, RESULTS["counting a cross join"])


def test_a_stream_goes_on_beside_queries_that_compute(attacked: Attacked) -> None:
    alone = Canary(attacked.server.url)
    Event().wait(2)
    gap_alone = alone.stop()
    beside, stopped = Canary(attacked.server.url), Event()
    others = [Thread(target=busy, args=(stoker.connect(attacked.server.url), stopped)) for _ in range(2)]
    for other in others:
        other.start()
    Event().wait(3)
    stopped.set()
    gap_beside = beside.stop()
    for other in others:
        other.join()
    print(f"gaps: {gap_alone * 1e3:.2f} ms alone, {gap_beside * 1e3:.2f} ms beside queries")
    # All cores compute, so gaps grow a little; the limit is far below the time of a query, so no batch waits for one.
    assert gap_beside < 0.5
    attacked.check()


def test_queries_compute_on_threads_of_their_own(attacked: Attacked) -> None:
    attacked.settles()
    before, stopped = attacked.ticks_by_name(), Event()
    others = [Thread(target=busy, args=(stoker.connect(attacked.server.url), stopped)) for _ in range(2)]
    for other in others:
        other.start()
    deadline = time.monotonic() + 30
    while (spent := attacked.ticks_by_name() - before).total() < 100 and time.monotonic() < deadline:
        Event().wait(0.1)
    stopped.set()
    for other in others:
        other.join()
    assert spent["stoker-query"] > 0.9 * spent.total() > 0, spent


def test_a_query_beyond_the_queue_is_refused_at_once(attacked: Attacked) -> None:
    stopped = Event()
    others = [Thread(target=busy, args=(stoker.connect(attacked.server.url), stopped)) for _ in range(3)]
    for other in others:
        other.start()
    deadline = time.monotonic() + 30
    refused = ""
    while "queue is full" not in refused and time.monotonic() < deadline:
        begun = time.monotonic()
        refused = run(attacked.lake, "SELECT count(*) FROM samples")
        took = time.monotonic() - begun
    stopped.set()
    for other in others:
        other.join()
    assert "queue is full" in refused
    assert took < 1


@pytest.mark.parametrize("sql", [RESULTS["counting a cross join"], RESULTS["edit distances"], nested_exists(11)])
def test_work_stops_when_its_client_is_killed(attacked: Attacked, sql: str) -> None:
    attacked.settles()
    before = attacked.processor_secs()
    client = subprocess.Popen(
        [stoker_bin(), "sql", sql, "--server", attacked.server.url],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 20
    while client.poll() is None and attacked.processor_secs() - before < 0.3 and time.monotonic() < deadline:
        Event().wait(0.02)
    client.kill()
    client.wait()
    killed = attacked.processor_secs()
    attacked.settles()
    # Two threads compute. Each may compute for about a second until it is cancelled, and `settles` takes some time to
    # see that they have ended.
    assert attacked.processor_secs() - killed < 4


def forged(stream: stoker.Stream, num_parts: int) -> dict[str, object]:
    """Returns a receipt with forged parts: nested ranges of positions, each from rank 0 of another world size."""
    receipt = stream.receipt()
    num_rows = 20_000
    part = {"epoch": 0, "origin": 0, "rank": 0, "sum": "0" * 32}
    receipt["parts"] = [
        part | {"world_size": 10_000 + i, "start": i % 9_000, "end": num_rows - i % 9_000} for i in range(num_parts)
    ]
    return receipt


def test_forged_receipts_are_checked_in_time(attacked: Attacked) -> None:
    stream = attacked.lake.sql("SELECT id, word FROM words").stream(batch_size=1_000)
    assert sum(batch.num_valid for batch in stream) == NUM_WORDS
    (sound,) = attacked.lake.verify([stream.receipt()])
    assert sound.is_exactly_once
    canary = Canary(attacked.server.url)
    begun = time.monotonic()
    for receipt in [forged(stream, 20_000)] * 2:
        # The check may also exceed the time limit of queries; the server then cancels it with this error.
        with suppress(stoker.ResourceExhaustedError):
            (verdict,) = attacked.lake.verify([receipt])
            assert not verdict.is_exactly_once
    assert time.monotonic() - begun < 2 * QUERY_SECS + 20
    assert canary.stop() < 0.5
    whole = stream.receipt()
    whole["parts"] = [{**whole["parts"][0], "end": NUM_WORDS}] * 1_000
    with pytest.raises(stoker.InvalidRequestError, match="the limit is"):
        attacked.lake.verify([whole])
    impossible = json.loads(json.dumps(stream.receipt()))
    impossible["parts"][0]["world_size"] = 0
    with pytest.raises(stoker.InvalidRequestError, match="impossible numbers"):
        attacked.lake.verify([impossible])
    attacked.check()
