"""SQL tools connect over Flight SQL: ADBC's DB-API, pandas and Polars, against a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import adbc_driver_flightsql.dbapi as flight_sql
import adbc_driver_manager
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions
from adbc_driver_manager.dbapi import Connection
from conftest import NUM_ROWS, Server, make_columns

import stoker


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    """A connection of the driver to the server."""
    with flight_sql.connect(server.url.replace("grpc://", "grpc+tcp://")) as connection:
        yield connection


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT id, name, label FROM samples WHERE label = 3 ORDER BY id", []),
        ("SELECT id FROM samples WHERE id BETWEEN ? AND ? ORDER BY id", [5, 9]),
        ("SELECT id FROM samples WHERE name = $1 OR name = $2 ORDER BY id", ["row 4", "row 40"]),
        ("SELECT label, count(*) AS n FROM samples GROUP BY label ORDER BY label", []),
        ("SELECT id, _distance FROM vector_search(samples, emb, $1, k => 3) ORDER BY _distance", [[5.0, 25.0, 1.0, -5.0]]),
        ("SELECT count(*) AS n FROM samples AT (TAG => $1)", ["v1"]),
        ("SELECT id, emb FROM samples WHERE id < $1 ORDER BY id", [3]),
        ("SELECT id FROM samples WHERE id < 0", []),
        ("SELECT $1 AS a, $2 AS b, $3 AS c, $4 AS d", [1, 0.5, "x", None]),
    ],
)
def test_a_driver_gets_what_the_engine_gives(
    lake: stoker.Lake, connection: Connection, sql: str, parameters: list[object]
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters or None)
        found = cursor.fetch_arrow_table()
    expected = lake.sql(sql, params=parameters).to_arrow()
    assert found.schema.names == expected.schema.names
    assert found.to_pylist() == expected.to_pylist()


def test_rows_of_parameters_give_their_results_one_after_the_other(connection: Connection) -> None:
    with connection.cursor() as cursor:
        cursor.adbc_prepare("SELECT id FROM samples WHERE id = ?")
        cursor.execute("SELECT id FROM samples WHERE id = ?", pa.record_batch({"1": [7, 3, 50]}))
        assert cursor.fetch_arrow_table()["id"].to_pylist() == [7, 3, 50]


def test_parameters_and_columns_are_known_before_execution(connection: Connection) -> None:
    with connection.cursor() as cursor:
        parameters = cursor.adbc_prepare("SELECT id FROM samples WHERE label < ? AND name = ?")
        assert parameters is not None
        assert parameters.types == [pa.int32(), pa.string()]
        assert cursor.adbc_execute_schema("SELECT id, name FROM samples").names == ["id", "name"]


def test_metadata_describes_the_lake(connection: Connection) -> None:
    info = connection.adbc_get_info()
    assert info["vendor_name"] == "Stoker"
    assert info["driver_name"] == "ADBC Flight SQL Driver - Go"
    assert connection.adbc_get_table_types() == ["TABLE"]
    assert connection.adbc_current_catalog == "lake"
    assert connection.adbc_current_db_schema == "public"
    (catalog,) = connection.adbc_get_objects(depth="all").read_all().to_pylist()
    assert catalog["catalog_name"] == "lake"
    (schema,) = catalog["catalog_db_schemas"]
    assert schema["db_schema_name"] == "public"
    tables = {table["table_name"]: table for table in schema["db_schema_tables"]}
    columns = [column["column_name"] for column in tables["samples"]["table_columns"]]
    assert columns == ["id", "image", "label", "name", "emb"]
    assert connection.adbc_get_table_schema("samples").names == columns
    assert connection.adbc_get_objects(table_name_filter="none%").read_all().to_pylist()[0]["catalog_db_schemas"] is not None


def test_pandas_and_polars_read_queries(lake: stoker.Lake, connection: Connection) -> None:
    sql = "SELECT id, label, name FROM samples WHERE label < 4 ORDER BY id"
    expected = lake.sql(sql).to_pandas()
    frame = pd.read_sql(sql, connection)
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False)
    assert pl.read_database(sql, connection).rows() == list(expected.itertuples(index=False, name=None))
    assert "samples" in pd.io.sql.pandasSQL_builder(connection).con.adbc_get_objects(depth="tables").read_all().to_pandas().to_string()


def test_errors_name_what_is_wrong(connection: Connection) -> None:
    for sql, kind, part in [
        ("SELECT nothing FROM samples", adbc_driver_manager.ProgrammingError, "nothing"),
        ("SELEC 1", adbc_driver_manager.ProgrammingError, "SELEC"),
        ("SELECT * FROM missing", adbc_driver_manager.Error, "missing"),
        ("DELETE FROM samples", adbc_driver_manager.Error, "not allowed"),
    ]:
        with connection.cursor() as cursor, pytest.raises(kind, match=part):
            cursor.execute(sql)
    with connection.cursor() as cursor, pytest.raises(adbc_driver_manager.Error, match="parameters were given"):
        cursor.execute("SELECT id FROM samples WHERE id = ? AND label = ?", [1])
    with connection.cursor() as cursor, pytest.raises(adbc_driver_manager.Error, match="does not support writing"):
        cursor.adbc_ingest("more", pa.table({"a": [1]}))


def test_a_result_can_be_cancelled(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    table = lake.create_table("t", {"x": np.zeros((4_000, 20_000), dtype=np.uint8), "id": np.arange(4_000)})
    assert table.num_rows == 4_000
    server = Server(str(tmp_path))
    try:
        with (
            flight_sql.connect(server.url.replace("grpc://", "grpc+tcp://")) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT x, id FROM t")
            reader = cursor.fetch_record_batch()
            reader.read_next_batch()
            threading.Timer(0, cursor.adbc_cancel).start()
            with pytest.raises((adbc_driver_manager.Error, OSError, pa.ArrowCancelled, pa.ArrowInvalid), match="(?i)cancel"):
                for _ in reader:
                    pass
            # The connection still serves other queries.
            with connection.cursor() as other:
                other.execute("SELECT count(*) FROM t")
                assert other.fetchone() == (4_000,)
    finally:
        server.stop()


def test_a_user_and_a_token_as_password(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    lake.create_table("samples", make_columns(NUM_ROWS))
    token = "a-token-of-enough-bytes"
    server = Server(str(tmp_path), {"STOKER_TOKEN": token})
    uri = server.url.replace("grpc://", "grpc+tcp://")
    try:
        for options in [
            {"username": "anna", "password": token},
            {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}"},
        ]:
            with flight_sql.connect(uri, db_kwargs=options) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM samples")
                assert cursor.fetchone() == (NUM_ROWS,)
        with pytest.raises(adbc_driver_manager.Error, match="not valid"):
            flight_sql.connect(uri, db_kwargs={"username": "anna", "password": "another"}).cursor().execute("SELECT 1")
    finally:
        server.stop()
