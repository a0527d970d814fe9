"""A dialect of SQLAlchemy for lakes behind ``stoker serve``, over Flight SQL.

It needs ``sqlalchemy`` and ``adbc-driver-flightsql`` (``pip install "stoker[sqlalchemy]"``)::

    engine = sqlalchemy.create_engine("stoker://127.0.0.1:8815")
    pandas.read_sql("SELECT label, count(*) AS n FROM photos GROUP BY label", engine)

The URL has the address of the server. ``stoker://:TOKEN@host:8815`` sends a token, and ``?tls=true`` encrypts; with
``?tls_ca=FILE`` the server's certificate is checked against the authorities of a PEM file. Lakes are read only here:
there are no transactions, and a commit does nothing.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
from sqlalchemy import types
from sqlalchemy.engine import URL, Connection, default, reflection
from sqlalchemy.exc import ArgumentError, NoSuchTableError

__all__ = ["StokerDialect"]

#: The schema of all tables of a lake.
_SCHEMA = "public"

#: The arguments of a URL.
_ARGUMENTS = frozenset({"tls", "tls_ca"})


class StokerDialect(default.DefaultDialect):
    """The dialect ``stoker``; see :mod:`stoker.sqlalchemy`."""

    name = "stoker"
    driver = "adbc"
    default_paramstyle = "qmark"
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_alter = False
    supports_sequences = False
    supports_default_values = False
    supports_sane_rowcount = False
    supports_sane_multi_rowcount = False
    postfetch_lastrowid = False
    insert_returning = False
    default_schema_name = _SCHEMA

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        """Returns the driver."""
        from adbc_driver_flightsql import dbapi

        module: ModuleType = dbapi
        return module

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        """Returns the arguments of the driver for a URL.

        Raises:
            ArgumentError: The URL has no host, or an argument that is unknown.
        """
        if url.host is None:
            raise ArgumentError(f"{url} names no server: write stoker://host:port")
        if unknown := sorted(set(url.query) - _ARGUMENTS):
            raise ArgumentError(f"unknown arguments {unknown} in the URL; there are {sorted(_ARGUMENTS)}")
        tls_ca = url.query.get("tls_ca")
        is_encrypted = tls_ca is not None or url.query.get("tls", "false") in ("true", "1")
        host = f"[{url.host}]" if ":" in url.host else url.host
        options: dict[str, str] = {}
        if url.password is not None:
            options["adbc.flight.sql.authorization_header"] = f"Bearer {url.password}"
        if isinstance(tls_ca, str):
            options["adbc.flight.sql.client_option.tls_root_certs"] = Path(tls_ca).read_text()
        uri = f"{'grpc+tls' if is_encrypted else 'grpc+tcp'}://{host}:{url.port or 8815}"
        return [uri], {"db_kwargs": options, "autocommit": True}

    def do_begin(self, dbapi_connection: Any) -> None:
        """Does nothing: there are no transactions."""

    def do_commit(self, dbapi_connection: Any) -> None:
        """Does nothing: there are no transactions."""

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Does nothing: there are no transactions."""

    def _check_max_identifier_length(self, connection: Connection) -> None:
        return None

    @reflection.cache
    def get_schema_names(self, connection: Connection, **kw: Any) -> list[str]:
        """Returns the only schema."""
        return [_SCHEMA]

    @reflection.cache
    def get_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        """Returns the names of the tables."""
        return _names(connection, schema, "TABLE")

    def has_table(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> bool:
        """Returns whether there is a table or a view."""
        names = self.get_table_names(connection, schema, **kw) + self.get_view_names(connection, schema, **kw)
        return table_name in names

    @reflection.cache
    def get_columns(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        """Returns the columns of a table.

        Raises:
            NoSuchTableError: There is no such table.
        """
        if not self.has_table(connection, table_name, schema, **kw):
            raise NoSuchTableError(table_name)
        columns = _driver(connection).adbc_get_table_schema(table_name, db_schema_filter=schema or _SCHEMA)
        return [
            {"name": field.name, "type": _type(field.type), "nullable": field.nullable, "default": None}
            for field in columns
        ]

    def get_pk_constraint(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        """Returns no columns: tables have no keys."""
        return {"constrained_columns": [], "name": None}

    def get_foreign_keys(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        """Returns none: tables have no keys."""
        return []

    def get_indexes(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        """Returns none: drivers need not know indexes."""
        return []

    @reflection.cache
    def get_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        """Returns the names of the views."""
        return _names(connection, schema, "VIEW")


def _driver(connection: Connection) -> Any:
    """Returns the connection of the driver."""
    return connection.connection.dbapi_connection


def _names(connection: Connection, schema: str | None, kind: str) -> list[str]:
    """Returns the names of the tables or of the views."""
    objects = _driver(connection).adbc_get_objects(
        depth="tables", db_schema_filter=schema or _SCHEMA, table_types_filter=[kind]
    )
    return [
        table["table_name"]
        for catalog in objects.read_all().to_pylist()
        for found in catalog["catalog_db_schemas"] or []
        for table in found["db_schema_tables"] or []
    ]


def _type(data_type: pa.DataType) -> types.TypeEngine[Any]:
    """Returns the type of a column."""
    is_type = pa.types
    for matches, found in (
        (is_type.is_boolean, types.Boolean),
        (is_type.is_int64, types.BigInteger),
        (is_type.is_uint64, types.BigInteger),
        (is_type.is_uint32, types.BigInteger),
        (is_type.is_integer, types.Integer),
        (is_type.is_float64, types.Double),
        (is_type.is_floating, types.Float),
        (is_type.is_string, types.String),
        (is_type.is_large_string, types.String),
        (is_type.is_binary, types.LargeBinary),
        (is_type.is_large_binary, types.LargeBinary),
        (is_type.is_fixed_size_binary, types.LargeBinary),
        (is_type.is_date, types.Date),
        (is_type.is_time, types.Time),
    ):
        if matches(data_type):
            return found()
    if is_type.is_timestamp(data_type):
        return types.DateTime(timezone=data_type.tz is not None)
    if is_type.is_decimal(data_type):
        return types.Numeric(data_type.precision, data_type.scale)
    if is_type.is_list(data_type) or is_type.is_large_list(data_type) or is_type.is_fixed_size_list(data_type):
        return types.ARRAY(_type(data_type.value_type)) if not _is_nested(data_type.value_type) else types.NullType()
    return types.NullType()


def _is_nested(data_type: pa.DataType) -> bool:
    """Returns whether a type is a list, of which SQLAlchemy makes no list."""
    return bool(pa.types.is_nested(data_type))
