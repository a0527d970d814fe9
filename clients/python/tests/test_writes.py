"""Statements that change tables: methods of Python, streams of views, and drivers of Flight SQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import adbc_driver_flightsql.dbapi as flight_sql
import adbc_driver_manager
import lance
import numpy as np
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions
from adbc_driver_manager.dbapi import Connection, Cursor
from conftest import NUM_ROWS, SHAPE, TOKENS, Server, expected_image, make_columns, tokens_file

import stoker

WRITES = {"STOKER_ALLOW_WRITES": "true"}


@pytest.fixture(params=["in process", "through a server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[stoker.Lake]:
    """A lake with the table ``samples``, which may be changed."""
    lake = stoker.connect(str(tmp_path))
    lake.create_table("samples", make_columns(NUM_ROWS), rows_per_fragment=40)
    if request.param == "in process":
        yield lake
        return
    server = Server(str(tmp_path), WRITES)
    yield stoker.connect(server.url)
    server.stop()


def rows(lake: stoker.Lake, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in lake.sql(sql).to_arrow().to_pylist()]


def images(lake: stoker.Lake, sql: str) -> dict[int, np.ndarray]:
    """Returns the images of a stream by the id of their row."""
    stream = lake.sql(sql).stream(batch_size=16)
    return {
        int(row): image
        for batch in stream
        for row, image in zip(batch["id"][batch.valid], batch["image"][batch.valid], strict=True)
    }


def test_methods_change_rows(place: stoker.Lake, tmp_path: Path) -> None:
    table = place.table("samples")
    deleted = table.delete("label = $1 AND id < $2", [3, 50])
    assert (deleted.statement, deleted.table, deleted.num_rows, deleted.version) == ("DELETE", "samples", 5, 2)
    assert table.delete("label = ? AND id < ?", [3, 50]).version == 2, "nothing is left to delete"
    blank = np.zeros(SHAPE, np.uint8)
    updated = table.update({"image": blank, "name": "none"}, "id IN (7, ?)", [8], expressions={"label": "label + 100"})
    assert (updated.statement, updated.num_rows, updated.version) == ("UPDATE", 2, 3)
    updated = table.update({"emb": [1.5, 2, 3, 4]}, "label > $1", [100])
    assert updated.num_rows == 2
    assert rows(place, "SELECT id, label, name, emb FROM samples WHERE label > 100 ORDER BY id") == [
        (7, 107, "none", [1.5, 2, 3, 4]),
        (8, 108, "none", [1.5, 2, 3, 4]),
    ]
    merged = table.merge(make_columns(3, start=NUM_ROWS - 1), "id")
    assert (merged.num_rows, merged.message) == (3, "1 row updated, 0 deleted, 2 inserted")
    counts = pa.table({"id": [0, 1], "more": [5, 6]})
    more = {"label": "target.label + source.more"}
    merged = table.merge(counts, ["id"], when_matched=more, when_not_matched="ignore")
    assert merged.num_rows == 2
    assert rows(place, "SELECT id, label FROM samples WHERE id < 2 ORDER BY id") == [(0, 5), (1, 7)]
    removed = table.merge({"id": [0, 1, 5_000]}, "id", when_matched="delete", when_not_matched="ignore")
    assert removed.num_rows == 2
    found = images(place, "SELECT id, image FROM samples")
    assert set(found) == {*range(NUM_ROWS + 2)} - {0, 1} - {*range(3, 50, 10)}
    for row, image in found.items():
        np.testing.assert_array_equal(image, blank if row in (7, 8) else expected_image(row))
    # Versions and objects from before stay as they were.
    assert (table.version, table.num_rows) == (1, NUM_ROWS)
    assert rows(place, "SELECT count(*), max(label) FROM samples AT (VERSION => 1)") == [(NUM_ROWS, 9)]
    dataset = lance.dataset(str(tmp_path / "samples.lance"))
    dataset.validate()
    assert dataset.to_table(columns=["id", "image"]).num_rows == len(found)
    assert [finding.code for finding in place.table("samples").doctor() if finding.column is not None] == []
    truncated = table.truncate()
    assert (truncated.num_rows, place.table("samples").num_rows) == (len(found), 0)


def test_methods_change_columns(place: stoker.Lake) -> None:
    table = place.table("samples").add_column("double_label", "BIGINT", value="label * $1", params=[2])
    assert table.schema.field("double_label").type == pa.int64()
    table = table.add_column("note", "TEXT").add_column("thumb", "UINT8[1, 2, 2]", value="[[[id, 1], [2, 3]]]")
    sql = "SELECT double_label, note, CAST(thumb AS INT[]) AS thumb FROM samples WHERE id = 17"
    assert rows(place, sql) == [(14, None, [17, 1, 2, 3])]
    assert stoker.tensor_shape(table.schema.field("thumb")) == (1, 2, 2)
    table = table.rename_column("note", "remark").drop_column("double_label", "name")
    assert table.schema.names == ["id", "image", "label", "emb", "remark", "thumb"]
    assert (table.version, place.table("samples", version=1).schema.names) == (6, list(make_columns(1)))
    assert len(images(place, "SELECT id, image FROM samples")) == NUM_ROWS
    for call in (
        lambda: table.add_column("more"),
        lambda: table.add_column("remark", "TEXT"),
        lambda: table.add_column("more", "SMALLINT", value="id * 1000"),
        lambda: table.drop_column("nothing"),
        lambda: table.drop_column(),
        lambda: table.rename_column("remark", "id"),
    ):
        with pytest.raises(stoker.InvalidRequestError):
            call()
    assert place.table("samples").version == 6, "what is refused makes no version"


def test_streams_keep_the_query_of_a_view(place: stoker.Lake) -> None:
    place.create_view("low", "SELECT id, image FROM samples WHERE label < 3")
    views = "SELECT table_name FROM information_schema.tables WHERE table_type = 'VIEW' AND table_schema = 'public'"
    assert rows(place, views) == [("low",)]
    query = "SELECT * FROM low WHERE id >= 10"
    expected = [batch.row_ids.tolist() for batch in place.sql(query).stream(batch_size=4, seed=3)]
    stream = place.sql(query).stream(batch_size=4, seed=3)
    running = iter(stream)
    seen = [next(running).row_ids.tolist() for _ in range(2)]
    state = stream.state_dict()
    place.table("samples").delete("id = 12")
    place.create_view("low", "SELECT id, image FROM samples WHERE id < 2", replace=True)
    resumed = place.resume(state, batch_size=4)
    seen += [batch.row_ids.tolist() for batch in resumed]
    assert seen == expected, "the stream has the rows of its version and of its query"
    assert set(images(place, "SELECT * FROM low")) == {0, 1}
    with pytest.raises(stoker.AlreadyExistsError, match="view low exists already"):
        place.create_view("low", "SELECT 1 AS one")
    place.drop_view("low")
    with pytest.raises(stoker.NotFoundError, match="low"):
        place.sql("SELECT * FROM low")


def test_tables_are_created_from_queries_and_dropped(place: stoker.Lake) -> None:
    made = place.execute("CREATE TABLE odd AS SELECT * FROM samples WHERE id % 2 = $1", [1])
    assert (made.num_rows, made.version) == (NUM_ROWS // 2, 1)
    assert place.table("odd").schema == place.table("samples").schema
    assert set(images(place, "SELECT id, image FROM odd")) == {*range(1, NUM_ROWS, 2)}
    structs = pa.array([{"id": 5_000, "name": "given"}, {"id": 5_001, "name": None}])
    place.execute("CREATE TABLE given AS SELECT r.id, r.name FROM rows($1) AS r", [structs])
    assert rows(place, "SELECT * FROM given ORDER BY id") == [(5_000, "given"), (5_001, None)]
    with pytest.raises(stoker.AlreadyExistsError, match="table odd already exists"):
        place.execute("CREATE TABLE odd (a INT)")
    with pytest.raises(stoker.InvalidRequestError, match=r"streams read its versions 1 .*drop it with CASCADE"):
        place.drop_table("odd")
    place.drop_table("odd", cascade=True)
    place.drop_table("odd", if_exists=True)
    assert place.tables() == ["given", "samples"]
    with pytest.raises(stoker.NotFoundError, match="table odd"):
        place.drop_table("odd")


def test_wrong_arguments_are_refused(place: stoker.Lake) -> None:
    table = place.table("samples")
    for call, part in [
        (lambda: table.update(), "nothing to set"),
        (lambda: table.update({"label": "three"}), r"column label, the row whose row_id is \d+: 'three' does not fit"),
        (lambda: table.update({"label": 3_000_000_000}, "id = 4"), "row_id is 4: 3000000000 does not fit"),
        (lambda: table.update({"image": np.zeros((3, 3), np.uint8)}, "id = 4"), "column image"),
        (lambda: table.update({"nothing": 1}), "no column nothing"),
        (lambda: table.update({"label": 1}, "nothing = 1"), "nothing"),
        (lambda: table.update({"label": 1}, "id = $1"), "is missing; 0 parameters were given"),
        (lambda: table.update({"label": 1}, "id = ?"), "parameter"),
        (lambda: table.delete("id = 1; DROP TABLE samples"), "one statement at a time"),
        (lambda: table.delete(None), "truncate"),  # type: ignore[arg-type]
        (lambda: table.merge({"id": [1, 1], "label": [2, 3]}, "id"), "more than one source row"),
        (lambda: table.merge({"id": [5_000]}, "id"), "column image"),
        (lambda: table.merge({"id": [1]}, "label"), "the columns of the source are"),
        (lambda: table.merge({"id": [1]}, "id", when_matched="ignore", when_not_matched="ignore"), "nothing to do"),
        (lambda: place.execute("INSERT INTO samples (id) VALUES ($1)", "text"), "params is str"),
    ]:
        with pytest.raises(stoker.InvalidRequestError, match=part):
            call()
    assert place.table("samples").version == 1


def test_tables_do_not_hide_views(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    lake.create_table("t", pa.table({"id": [1, 2, 3]}))
    lake.create_view("v", "SELECT id FROM t WHERE id > 1")
    more = pa.table({"id": [4]})
    modes: list[Literal["create", "create_or_append", "overwrite"]] = ["create", "create_or_append", "overwrite"]
    for mode in modes:
        with pytest.raises(stoker.AlreadyExistsError, match=r"view v exists already.*drop the view first"):
            lake.create_table("v", more, mode=mode)
    assert lake.tables() == ["t"]
    assert rows(lake, "SELECT id FROM v ORDER BY id") == [(2,), (3,)]
    lake.drop_view("v")
    assert lake.create_table("v", more).version == 1


@contextmanager
def driver(lake: Path, environment: dict[str, str]) -> Iterator[Connection]:
    """A connection of the ADBC driver to a server over a lake."""
    server = Server(str(lake), environment)
    try:
        with flight_sql.connect(server.url.replace("grpc://", "grpc+tcp://")) as connection:
            yield connection
    finally:
        server.stop()


def outcome(cursor: Cursor, sql: str, params: list[object] | None = None) -> dict[str, object]:
    """Executes a statement that changes the lake, and returns the row that tells what it did."""
    cursor.execute(sql, params)
    (row,) = cursor.fetch_arrow_table().to_pylist()
    return dict(row)


def test_a_driver_executes_statements_with_parameters(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    with driver(tmp_path, WRITES) as connection, connection.cursor() as cursor:
        outcome(cursor, "CREATE TABLE t (id BIGINT NOT NULL, name TEXT, x DOUBLE)")
        cursor.executemany("INSERT INTO t VALUES (?, ?, ?)", [(i, f"row {i}", i / 2) for i in range(2_000)])
        assert cursor.rowcount == 2_000
        assert lake.table("t").version == 2, "all rows are one version"
        cursor.executemany("UPDATE t SET name = ? WHERE id = ?", [("seven", 7), ("eight", 8)])
        assert cursor.rowcount == 2
        assert outcome(cursor, "DELETE FROM t WHERE id > ?", [99])["num_rows"] == 1_900
        cursor.execute("SELECT id, name, x FROM t WHERE id BETWEEN 7 AND 9 ORDER BY id")
        assert cursor.fetchall() == [(7, "seven", 3.5), (8, "eight", 4.0), (9, "row 9", 4.5)]
        outcome(cursor, "CREATE VIEW small AS SELECT id FROM t WHERE id < 3")
        cursor.execute("SELECT count(*) FROM small")
        assert cursor.fetchone() == (3,)
        assert connection.adbc_get_table_schema("small").names == ["id"]
        (catalog,) = connection.adbc_get_objects(depth="tables", table_types_filter=["VIEW"]).read_all().to_pylist()
        (schema,) = catalog["catalog_db_schemas"]
        assert [table["table_name"] for table in schema["db_schema_tables"]] == ["small"]
    with driver(tmp_path, WRITES) as connection, connection.cursor() as cursor:
        version = lake.table("t").version
        wrong = [(1, "one", 1.0), (None, "none", 2.0)]
        with pytest.raises(adbc_driver_manager.Error, match="column id, row 2"):
            cursor.executemany("INSERT INTO t VALUES (?, ?, ?)", wrong)
        assert lake.table("t").version == version


def test_a_driver_inserts_in_bulk(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    data = pa.table({"id": pa.array(range(3_000)), "name": [f"row {i}" for i in range(3_000)]})
    with driver(tmp_path, WRITES) as connection, connection.cursor() as cursor:
        batches = pa.RecordBatchReader.from_batches(data.schema, data.to_batches(max_chunksize=100))
        assert cursor.adbc_ingest("t", batches) == 3_000
        assert (lake.table("t").version, lake.table("t").num_rows) == (1, 3_000)
        assert rows(lake, "SELECT sum(id), max(name) FROM t") == [(4_498_500, "row 999")]
        with pytest.raises(adbc_driver_manager.Error, match="table t already exists"):
            cursor.adbc_ingest("t", data)
        # Columns are matched by name, cast, and NULL where they are missing.
        more = pa.table({"id": pa.array([1, 2], pa.int32())})
        assert cursor.adbc_ingest("t", more, mode="append") == 2
        assert rows(lake, "SELECT id, name FROM t WHERE name IS NULL ORDER BY id") == [(1, None), (2, None)]
        with pytest.raises(adbc_driver_manager.Error, match="table nothing"):
            cursor.adbc_ingest("nothing", more, mode="append")
        with pytest.raises(adbc_driver_manager.Error, match=r"no column other.*its columns are: id, name"):
            cursor.adbc_ingest("t", pa.table({"other": [1]}), mode="append")
        with pytest.raises(adbc_driver_manager.Error, match="column id, row 2: 'two' does not fit"):
            cursor.adbc_ingest("t", pa.table({"id": ["1", "two"]}), mode="append")
        assert lake.table("t").version == 2, "a failed insert leaves nothing"
        assert cursor.adbc_ingest("t", pa.table({"a": [1.5, 2.5]}), mode="replace") == 2
        assert lake.table("t").schema.names == ["a"]
        assert lake.table("t", version=2).num_rows == 3_002
        for expected in (2, 4):
            assert cursor.adbc_ingest("both", pa.table({"a": [1, 2]}), mode="create_append") == 2
            assert lake.table("both").num_rows == expected
        lake.create_view("v", "SELECT a FROM t")
        with pytest.raises(adbc_driver_manager.Error, match="view v exists already"):
            cursor.adbc_ingest("v", pa.table({"a": [1]}), mode="create_append")
        with pytest.raises(adbc_driver_manager.Error, match="temporary tables are not supported"):
            cursor.adbc_ingest("other", more, temporary=True)
        with pytest.raises(adbc_driver_manager.Error, match="there is no catalog elsewhere"):
            cursor.adbc_ingest("other", more, catalog_name="elsewhere")
        assert cursor.adbc_ingest("other", more, catalog_name="lake", db_schema_name="public") == 2
        assert lake.tables() == ["both", "other", "t"]


def test_large_rows_are_inserted_in_bulk(tmp_path: Path) -> None:
    """Rows of many times the size of a message become one version, whose heavy column is stored as ingests store it."""
    lake = stoker.connect(str(tmp_path))
    num_batches, per_batch, size = 48, 4, 1 << 20

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(num_batches):
            ids = np.arange(number * per_batch, (number + 1) * per_batch)
            flat = pa.array(np.repeat(ids.astype(np.uint8), size))
            yield pa.record_batch({"id": pa.array(ids), "x": pa.FixedSizeListArray.from_arrays(flat, size)})

    schema = next(batches()).schema
    with driver(tmp_path, WRITES) as connection, connection.cursor() as cursor:
        reader = pa.RecordBatchReader.from_batches(schema, batches())
        assert cursor.adbc_ingest("large", reader) == num_batches * per_batch
    (layout,) = [layout for layout in lake.table("large").describe() if layout.name == "x"]
    assert (layout.verdict, layout.unchecked_fragments) == ("dense", 0)
    stream = lake.sql("SELECT id, x FROM large").stream(batch_size=8)
    assert all((batch["x"] == batch["id"][:, None].astype(np.uint8)).all() for batch in stream)


def test_writes_need_a_server_and_a_role_that_allow_them(tmp_path: Path) -> None:
    path = tmp_path / "lake"
    stoker.connect(str(path)).create_table("samples", make_columns(40))
    tokens = tokens_file(tmp_path)
    for environment, role, message in [
        (WRITES, "read", "needs the role write, and reader has the role read"),
        ({}, "write", "does not support writing: start it with --allow-writes"),
    ]:
        server = Server(str(path), {"STOKER_TOKENS_FILE": str(tokens), **environment})
        try:
            lake = stoker.connect(server.url, token=TOKENS[role])
            for call in (
                lambda lake=lake: lake.table("samples").delete("id = 1"),
                lambda lake=lake: lake.create_view("v", "SELECT id FROM samples"),
                lambda lake=lake: lake.drop_table("samples"),
                lambda lake=lake: lake.execute("VACUUM"),
            ):
                with pytest.raises(stoker.PermissionDeniedError, match=message):
                    call()
            options = {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {TOKENS[role]}"}
            uri = server.url.replace("grpc://", "grpc+tcp://")
            with flight_sql.connect(uri, db_kwargs=options) as connection, connection.cursor() as cursor:
                with pytest.raises(adbc_driver_manager.Error, match=message):
                    cursor.adbc_ingest("more", pa.table({"a": [1]}))
                with pytest.raises(adbc_driver_manager.Error, match=message):
                    cursor.executemany("INSERT INTO samples (id) VALUES (?)", [(1,), (2,)])
            assert lake.tables() == ["samples"]
        finally:
            server.stop()
