"""Indexes: statements in Python and through servers, what is told of them, and builds that end early."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import TOKENS, Server, make_columns, stoker_bin, tokens_file

import stoker

#: Rows and elements of vectors whose index takes seconds to build.
NUM_MANY, DIMENSION = 30_000, 128
SLOW = "CREATE INDEX slow ON many USING ivf_pq (emb) WITH (num_partitions = 256, num_sub_vectors = 64)"

WRITES = {"STOKER_ALLOW_WRITES": "true"}


def vectors(num_rows: int, dimension: int) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(num_rows, dimension)).astype(np.float32)


def indexes(lake: stoker.Lake, table: str) -> dict[str, tuple[str, int]]:
    """Returns the kind of each index, and the number of rows that it does not cover."""
    rows = lake.sql(f"SELECT * FROM indexes({table})").to_arrow().to_pylist()
    return {row["index_name"]: (row["index_type"], row["num_rows_not_covered"]) for row in rows}


@pytest.fixture(params=["in process", "through a server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[stoker.Lake]:
    """A lake that may be changed: 600 rows with vectors, texts and lists."""
    lake = stoker.connect(str(tmp_path))
    lake.create_table(
        "samples",
        {
            "id": np.arange(600),
            "emb": vectors(600, 8),
            "words": [f"the words of row {row}" for row in range(600)],
            "tags": [[f"t{row % 7}", "all"] for row in range(600)],
        },
    )
    if request.param == "in process":
        yield lake
        return
    server = Server(str(tmp_path), WRITES)
    yield stoker.connect(server.url)
    server.stop()


def test_statements_and_methods_build_the_same_indexes(place: stoker.Lake) -> None:
    outcome = place.execute("CREATE INDEX v ON samples USING ivf_pq (emb) WITH (metric = 'cosine')")
    assert (outcome.statement, outcome.table, outcome.version, outcome.num_rows) == ("CREATE INDEX", "samples", 2, 600)
    assert str(outcome) == f"CREATE INDEX of table samples: {outcome.message}; version 2"
    by_statement = place.sql("SELECT parameters, recall FROM indexes(samples)").to_arrow().to_pylist()
    table = place.table("samples").create_index("emb", kind="ivf_pq", metric="cosine", name="v")
    assert (table.version, table.num_rows) == (3, 600)
    by_method = place.sql("SELECT parameters, recall FROM indexes(samples)").to_arrow().to_pylist()
    assert [row["parameters"] for row in by_method] == [row["parameters"] for row in by_statement]
    assert all(0.5 < row["recall"] <= 1 for row in by_statement + by_method)
    for column, kind in [("id", "btree"), ("tags", "label_list"), ("words", "ngram"), ("emb", "ivf_hnsw_sq")]:
        place.table("samples").create_index(column, kind=kind)  # type: ignore[arg-type]
    kinds = {name: kind for name, (kind, _) in indexes(place, "samples").items()}
    assert set(kinds) == {"v", "id_idx", "tags_idx", "words_idx", "emb_idx"}
    assert (kinds["tags_idx"], kinds["words_idx"]) == ("LabelList", "NGram")
    for predicate, expected in [("array_has(tags, 't3')", 86), ("contains(words, 'row 59')", 11)]:
        counted = place.sql(f"SELECT count(*) AS n FROM samples WHERE {predicate}").to_arrow()
        assert counted.to_pylist() == [{"n": expected}]
    table = place.table("samples").drop_index("emb_idx").drop_index("v")
    assert set(indexes(place, "samples")) == {"id_idx", "tags_idx", "words_idx"}
    with pytest.raises(stoker.NotFoundError, match=r"index v of table samples.*indexes: id_idx, tags_idx, words_idx"):
        table.drop_index("v")
    with pytest.raises(stoker.AlreadyExistsError, match="index id_idx of table samples already exists"):
        place.execute("CREATE INDEX ON samples (id)")


def test_optimised_indexes_cover_new_rows(place: stoker.Lake, tmp_path: Path) -> None:
    place.execute("CREATE INDEX v ON samples USING ivf_flat (emb)")
    place.execute("CREATE INDEX ON samples (id)")
    more = {"id": np.arange(600, 650), "emb": vectors(50, 8), "words": ["x"] * 50, "tags": [["x"]] * 50}
    stoker.connect(str(tmp_path)).table("samples").append(more)
    assert {rows for _, rows in indexes(place, "samples").values()} == {50}
    table = place.table("samples").optimize_indexes("id_idx")
    assert indexes(place, "samples") == {"v": ("IVF_FLAT", 50), "id_idx": ("BTree", 0)}
    assert table.optimize_indexes().version == table.version + 1
    assert {rows for _, rows in indexes(place, "samples").values()} == {0}
    assert table.optimize_indexes().version == table.version + 1
    found = place.sql("SELECT id FROM samples WHERE id >= 645 ORDER BY id").to_arrow()["id"].to_pylist()
    assert found == list(range(645, 650))


def test_plans_name_the_indexes_that_were_used_and_what_was_read(place: stoker.Lake) -> None:
    place.execute("CREATE INDEX v ON samples USING ivf_flat (emb) WITH (num_partitions = 4)")
    place.execute("CREATE INDEX ON samples (id)")
    for query, index in [
        ("SELECT words FROM samples WHERE id = 77", "index=id_idx"),
        ("SELECT id FROM vector_search(samples, emb, [1, 0, 0, 0, 0, 0, 0, 0], k => 3, use_index => true)", "index=v"),
    ]:
        plan = "\n".join(place.sql(f"EXPLAIN ANALYZE {query}").to_arrow()["plan"].to_pylist())
        (line,) = [line for line in plan.splitlines() if "ScanExec" in line or "SearchExec" in line]
        assert index in line, plan
        for figure in ("bytes_read=", "requests=", "output_rows="):
            assert figure in line, plan
    plan = "\n".join(place.sql("EXPLAIN ANALYZE SELECT id FROM samples").to_arrow()["plan"].to_pylist())
    assert "index=none" in plan


def test_queries_and_changes_are_told_apart(place: stoker.Lake) -> None:
    with pytest.raises(stoker.InvalidRequestError, match=r"execute it with lake\.execute"):
        place.sql("CREATE INDEX ON samples (id)")
    with pytest.raises(stoker.InvalidRequestError, match=r"changes nothing.*lake\.sql"):
        place.execute("SELECT 1")
    with pytest.raises(stoker.InvalidRequestError, match="progress is a int"):
        place.execute("DROP INDEX a ON samples", progress=3)  # type: ignore[arg-type]
    assert place.table("samples").version == 1


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake with a table whose index takes seconds to build."""
    path = tmp_path_factory.mktemp("many")
    stoker.connect(str(path)).create_table("many", {"emb": vectors(NUM_MANY, DIMENSION)})
    return str(path)


def unchanged(path: str) -> bool:
    lake = stoker.connect(path)
    return lake.table("many").version == 1 and not indexes(lake, "many")


class StoppedError(Exception):
    """A callback stops a statement."""


def test_a_callback_that_raises_stops_a_build(many: str) -> None:
    told: list[stoker.StatementProgress] = []

    def stop(progress: stoker.StatementProgress) -> None:
        told.append(progress)
        raise StoppedError

    server = Server(many, WRITES)
    try:
        for lake in (stoker.connect(many), stoker.connect(server.url)):
            with pytest.raises(StoppedError):
                lake.execute(SLOW, progress=stop)
            assert unchanged(many)
    finally:
        server.stop()
    assert len(told) == 2
    assert all(progress.phase and str(progress).startswith(progress.phase) for progress in told)


def test_a_server_that_is_killed_during_a_build_leaves_the_old_version(many: str) -> None:
    server = Server(many, WRITES)
    begun: list[str] = []

    def kill(progress: stoker.StatementProgress) -> None:
        if not begun:
            server.process.kill()
        begun.append(progress.phase)

    message = "CREATE INDEX: the outcome is unknown.*look with SHOW INDEXES FROM many before you repeat it"
    with pytest.raises(stoker.UnavailableError, match=message):
        stoker.connect(server.url).execute(SLOW, progress=kill)
    assert server.process.wait(timeout=30) == -signal.SIGKILL
    assert begun
    assert unchanged(many)


def test_clients_build_indexes_at_the_same_time(place: stoker.Lake) -> None:
    errors: list[BaseException] = []

    def build(sql: str) -> None:
        try:
            place.execute(sql)
        except BaseException as error:
            errors.append(error)

    statements = [
        "CREATE INDEX a ON samples USING ivf_flat (emb)",
        "CREATE INDEX b ON samples (id)",
        "CREATE INDEX same ON samples USING bitmap (id)",
        "CREATE INDEX same ON samples USING bitmap (id)",
    ]
    threads = [threading.Thread(target=build, args=(sql,)) for sql in statements]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(error) for error in errors] == [stoker.AlreadyExistsError], errors
    assert set(indexes(place, "samples")) == {"a", "b", "same"}
    assert place.table("samples").version == 4


def test_a_reader_and_a_server_without_writes_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lake"
    stoker.connect(str(path)).create_table("samples", make_columns(40))
    tokens = tokens_file(tmp_path)
    sql = "CREATE INDEX ON samples (label)"
    refused = "action execute needs the role write, and reader has the role read"
    for environment, role, message in [
        (WRITES, "read", refused),
        ({}, "read", refused),
        ({}, "write", "this server does not support writing: start it with --allow-writes"),
        (WRITES, "write", None),
    ]:
        server = Server(str(path), {"STOKER_TOKENS_FILE": str(tokens), **environment})
        try:
            lake = stoker.connect(server.url, token=TOKENS[role])
            if message is None:
                assert lake.execute(sql).version == 2
            else:
                with pytest.raises(stoker.PermissionDeniedError, match=message):
                    lake.execute(sql)
                with pytest.raises(stoker.PermissionDeniedError, match=message):
                    lake.table("samples").create_index("label", kind="btree")
                assert lake.table("samples").version == 1
        finally:
            server.stop()


def test_a_configuration_file_allows_writes(tmp_path: Path) -> None:
    path, config = tmp_path / "lake", tmp_path / "stoker.toml"
    stoker.connect(str(path)).create_table("samples", make_columns(40))
    config.write_text("allow_writes = true\n")
    server = Server(str(path), {"STOKER_CONFIG": str(config)})
    try:
        command = [stoker_bin(), "sql", "CREATE INDEX ON samples (id)", "--format", "json", "--server", server.url]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        assert json.loads(done.stdout)["version"] == 2
    finally:
        server.stop()
