"""SQL tools connect over Flight SQL: ADBC's DB-API, pandas and Polars, against a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
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
from pyarrow import flight

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
        ("SELECT id, _distance FROM vector_search(samples, emb, $1, k => $2) ORDER BY 2", [[5.0, 25.0, 1.0, -5.0], 3]),
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


def test_a_statement_is_planned_within_its_first_poll(connection: Connection) -> None:
    sql = "SELECT id FROM samples WHERE id < 5 ORDER BY id"
    incremental, progress = (adbc_driver_manager.StatementOptions[name].value for name in ("INCREMENTAL", "PROGRESS"))
    with connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{incremental: "true"})
        for _ in range(2):
            partitions, schema = cursor.adbc_execute_partitions(sql)
            assert (len(partitions), schema.names) == (1, ["id"])
            assert cursor.adbc_statement.get_option_float(progress) == 1.0
            # An answer without partitions is the end.
            assert cursor.adbc_execute_partitions(sql)[0] == []
    with connection.cursor() as cursor:
        cursor.adbc_read_partition(partitions[0])
        assert cursor.fetch_arrow_table()["id"].to_pylist() == [0, 1, 2, 3, 4]


def test_metadata_describes_the_lake(connection: Connection) -> None:
    info = connection.adbc_get_info()
    assert info["vendor_name"] == "Stoker"
    assert info["driver_name"] == "ADBC Flight SQL Driver - Go"
    assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]
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
    (catalog,) = connection.adbc_get_objects(depth="tables", table_name_filter="none%").read_all().to_pylist()
    assert catalog["catalog_db_schemas"][0]["db_schema_tables"] == []


def test_pandas_and_polars_read_queries(lake: stoker.Lake, connection: Connection) -> None:
    sql = "SELECT id, label, name FROM samples WHERE label < 4 ORDER BY id"
    expected = lake.sql(sql).to_pandas()
    frame = pd.read_sql(sql, connection)
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False)
    assert pl.read_database(sql, connection).rows() == list(expected.itertuples(index=False, name=None))


def test_errors_name_what_is_wrong(connection: Connection) -> None:
    for sql, kind, part in [
        ("SELECT nothing FROM samples", adbc_driver_manager.ProgrammingError, "nothing"),
        ("SELEC 1", adbc_driver_manager.ProgrammingError, "SELEC"),
        ("SELECT * FROM missing", adbc_driver_manager.Error, "missing"),
        ("DELETE FROM samples", adbc_driver_manager.Error, "does not support writing: start it with --allow-writes"),
    ]:
        with connection.cursor() as cursor, pytest.raises(kind, match=part):
            cursor.execute(sql)
    with connection.cursor() as cursor, pytest.raises(adbc_driver_manager.Error, match="parameters were given"):
        cursor.execute("SELECT id FROM samples WHERE id = ? AND label = ?", [1])
    with connection.cursor() as cursor, pytest.raises(adbc_driver_manager.Error, match="does not support writing"):
        cursor.adbc_ingest("more", pa.table({"a": [1]}))


def test_a_driver_changes_a_lake_whose_server_allows_it(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    lake.create_table("samples", make_columns(NUM_ROWS))
    server = Server(str(tmp_path), {"STOKER_ALLOW_WRITES": "true"})
    try:
        with flight_sql.connect(server.url.replace("grpc://", "grpc+tcp://")) as connection:
            with connection.cursor() as cursor:
                # The driver asks for rows, and gets one that tells the outcome.
                cursor.execute("CREATE INDEX ON samples (label)")
                outcome = cursor.fetch_arrow_table().to_pylist()
                assert [(row["statement"], row["table_name"], row["num_rows"]) for row in outcome] == [
                    ("CREATE INDEX", "samples", NUM_ROWS)
                ]
                cursor.execute("SHOW INDEXES FROM samples")
                assert cursor.fetch_arrow_table()["index_name"].to_pylist() == ["label_idx"]
            with connection.cursor() as cursor:
                # An update, as tools send it that know what they execute.
                cursor.adbc_statement.set_sql_query("DROP INDEX label_idx ON samples")
                assert cursor.adbc_statement.execute_update() == -1
            with connection.cursor() as cursor:
                cursor.adbc_prepare("CREATE INDEX ON samples USING bitmap (label)")
                cursor.adbc_statement.execute_update()
            missing = pytest.raises(adbc_driver_manager.Error, match="index nothing of table")
            with connection.cursor() as cursor, missing:
                cursor.execute("DROP INDEX nothing ON samples")
        found = lake.sql("SELECT index_name, index_type, num_rows_covered FROM indexes(samples)").to_arrow()
        assert found.to_pylist() == [{"index_name": "label_idx", "index_type": "Bitmap", "num_rows_covered": NUM_ROWS}]
        assert lake.table("samples").version == 4
    finally:
        server.stop()


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
            with pytest.raises((adbc_driver_manager.Error, OSError, pa.ArrowException), match=r"(?i)cancel"):
                reader.read_all()
            # The connection still serves other queries.
            with connection.cursor() as other:
                other.execute("SELECT count(*) FROM t")
                assert other.fetchone() == (4_000,)
    finally:
        server.stop()


def field(tag: int, content: bytes) -> bytes:
    """Encodes a protobuf field of bytes or text."""
    length = len(content)
    varint = b""
    while length >= 0x80:
        varint += bytes([length & 0x7F | 0x80])
        length >>= 7
    return bytes([tag << 3 | 2]) + varint + bytes([length]) + content


def fields(message: bytes) -> dict[int, bytes]:
    """Decodes a protobuf message that has only fields of bytes and text."""
    found, at = {}, 0
    while at < len(message):
        tag, length, shift = message[at] >> 3, 0, 0
        assert message[at] & 7 == 2
        while True:
            at += 1
            length |= (message[at] & 0x7F) << shift
            shift += 7
            if message[at] < 0x80:
                break
        found[tag] = message[at + 1 : at + 1 + length]
        at += 1 + length
    return found


def packed(name: str, message: bytes) -> bytes:
    """Packs a message of Flight SQL as `google.protobuf.Any`."""
    return field(1, b"type.googleapis.com/arrow.flight.protocol.sql." + name.encode()) + field(2, message)


def test_the_calls_of_the_jdbc_driver(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    lake.create_table("samples", make_columns(NUM_ROWS))
    token = "a-token-of-enough-bytes"
    server = Server(str(tmp_path), {"STOKER_TOKEN": token})
    try:
        with flight.connect(server.url.replace("grpc://", "grpc+tcp://")) as client:
            options = flight.FlightCallOptions(headers=[client.authenticate_basic_token("anna", token)])

            def rows(command: bytes) -> list[dict[str, object]]:
                info = client.get_flight_info(flight.FlightDescriptor.for_command(command), options)
                tables = [client.do_get(endpoint.ticket, options).read_all() for endpoint in info.endpoints]
                return pa.concat_tables(tables).to_pylist()

            (name,) = rows(packed("CommandGetSqlInfo", bytes([1 << 3 | 2, 1, 0])))
            assert name == {"info_name": 0, "value": "Stoker"}
            request = field(1, b"SELECT id, name FROM samples WHERE id > ? AND name <> ? ORDER BY id LIMIT 2")
            action = flight.Action("CreatePreparedStatement", packed("ActionCreatePreparedStatementRequest", request))
            (result,) = client.do_action(action, options)
            prepared = fields(fields(result.body.to_pybytes())[2])
            # A statement without columns would be an update.
            assert pa.ipc.read_schema(pa.py_buffer(prepared[2])).names == ["id", "name"]
            assert pa.ipc.read_schema(pa.py_buffer(prepared[3])).types == [pa.int64(), pa.string()]
            command = packed("CommandPreparedStatementQuery", field(1, prepared[1]))
            parameters = pa.record_batch({"1": pa.array([3], pa.int64()), "2": ["row 5"]})
            writer, reader = client.do_put(flight.FlightDescriptor.for_command(command), parameters.schema, options)
            bound = put(writer, reader, [parameters])
            assert bound is not None
            command = packed("CommandPreparedStatementQuery", field(1, bound))
            assert rows(command) == [{"id": 4, "name": "row 4"}, {"id": 6, "name": "row 6"}]
            close = flight.Action(
                "ClosePreparedStatement", packed("ActionClosePreparedStatementRequest", field(1, prepared[1]))
            )
            assert list(client.do_action(close, options)) == []
    finally:
        server.stop()


def put(
    writer: flight.FlightStreamWriter, reader: flight.FlightMetadataReader, batches: list[pa.RecordBatch]
) -> bytes | None:
    """Sends parameters; returns the handle of the statement with them."""
    try:
        for batch in batches:
            writer.write_batch(batch)
        writer.done_writing()
        return fields(reader.read().to_pybytes()).get(1)
    finally:
        with suppress(pa.ArrowException, flight.FlightError):
            writer.close()


def test_parameters_and_handles_have_limits(connection: Connection, server: Server) -> None:
    with connection.cursor() as cursor, pytest.raises(adbc_driver_manager.Error, match="rows"):
        cursor.execute("SELECT id FROM samples WHERE id = ?", pa.record_batch({"1": list(range(100_000))}))
    # Wide parameters within the limits are stored beside the tables.
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM samples WHERE name = ANY(?)", [[f"row {id}" for id in range(10_000)]])
        assert cursor.fetchone() == (NUM_ROWS,)
    with flight.connect(server.url.replace("grpc://", "grpc+tcp://")) as client:
        for handle, part in [(b"", "no longer valid"), (b"forged", "not a ticket"), (b"\x0a\x00" * 50_000, "key")]:
            command = packed("CommandPreparedStatementQuery", field(1, handle))
            with pytest.raises((flight.FlightError, pa.ArrowInvalid), match=f"prepared statement.*{part}"):
                client.get_flight_info(flight.FlightDescriptor.for_command(command))
        request = field(1, b"SELECT id FROM samples WHERE name = ?")
        action = flight.Action("CreatePreparedStatement", packed("ActionCreatePreparedStatementRequest", request))
        (result,) = client.do_action(action)
        command = packed("CommandPreparedStatementQuery", field(1, fields(fields(result.body.to_pybytes())[2])[1]))
        large = pa.record_batch({"1": ["x" * (5 << 20)]})
        writer, reader = client.do_put(flight.FlightDescriptor.for_command(command), large.schema)
        with pytest.raises(pa.ArrowInvalid, match="which is the limit"):
            put(writer, reader, [large] * 20)
        with pytest.raises(pa.ArrowInvalid, match="does not know the command CommandNone"):
            client.get_flight_info(flight.FlightDescriptor.for_command(packed("CommandNone", b"")))
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM samples")
        assert cursor.fetchone() == (NUM_ROWS,)


def test_what_a_reader_binds_counts_against_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "lake"
    stoker.connect(str(path)).create_table("samples", make_columns(NUM_ROWS))
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('tokens = [{name = "reader", role = "read", token = "a-token-of-enough-bytes"}]')
    tokens.chmod(0o600)
    server = Server(str(path), {"STOKER_TOKENS_FILE": str(tokens), "STOKER_READER_OBJECTS_PER_DAY": "1"})
    try:
        options = {DatabaseOptions.AUTHORIZATION_HEADER.value: "Bearer a-token-of-enough-bytes"}
        uri = server.url.replace("grpc://", "grpc+tcp://")
        sql = "SELECT count(*) FROM samples WHERE name = ?"
        with flight_sql.connect(uri, db_kwargs=options) as connection, connection.cursor() as cursor:
            for size, allowed in [(10, True), (100_000, True), (100_000, True), (100_001, False), (10, True)]:
                if allowed:
                    cursor.execute(sql, ["x" * size])
                    assert cursor.fetchone() == (0,)
                else:
                    with pytest.raises(adbc_driver_manager.Error, match="reader"):
                        cursor.execute(sql, ["x" * size])
            with pytest.raises(adbc_driver_manager.Error, match="a bulk insert needs the role write"):
                cursor.adbc_ingest("more", pa.table({"a": [1]}))
        assert len(list((path / "_stoker" / "parameters").iterdir())) == 1
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
