"""SQLAlchemy, and pandas over it, query a lake through a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from conftest import NUM_ROWS, Server, make_columns
from sqlalchemy import (
    Engine,
    MetaData,
    Table,
    bindparam,
    cast,
    create_engine,
    func,
    inspect,
    select,
    text,
    types,
)
from sqlalchemy.dialects import registry
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchTableError

import stoker

# Installed packages register the dialect themselves.
registry.register("stoker", "stoker.sqlalchemy", "StokerDialect")


@pytest.fixture
def engine(server: Server) -> Iterator[Engine]:
    """An engine over the server."""
    engine = create_engine(server.url.replace("grpc://", "stoker://"))
    yield engine
    engine.dispose()


def test_tables_are_reflected(engine: Engine) -> None:
    inspector = inspect(engine)
    assert inspector.get_schema_names() == ["public"]
    assert "samples" in inspector.get_table_names()
    assert inspector.has_table("samples")
    assert not inspector.has_table("missing")
    columns = {column["name"]: column["type"] for column in inspector.get_columns("samples")}
    assert list(columns) == ["id", "image", "label", "name", "emb"]
    assert isinstance(columns["id"], types.BigInteger)
    assert isinstance(columns["label"], types.Integer)
    assert isinstance(columns["name"], types.String)
    assert isinstance(columns["emb"], types.ARRAY)
    assert inspector.get_pk_constraint("samples")["constrained_columns"] == []
    assert (inspector.get_foreign_keys("samples"), inspector.get_indexes("samples")) == ([], [])
    assert inspector.get_view_names() == []
    with pytest.raises(NoSuchTableError):
        inspector.get_columns("missing")


def test_expressions_become_statements(engine: Engine) -> None:
    samples = Table("samples", MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        query = select(samples.c.id, samples.c.name).where(samples.c.label == 3, samples.c.id > bindparam("low"))
        found = connection.execute(query.order_by(samples.c.id).limit(2).offset(1), {"low": 10}).all()
        assert found == [(23, "row 23"), (33, "row 33")]
        counts = select(samples.c.label, func.count().label("n")).group_by(samples.c.label).order_by(samples.c.label)
        assert connection.execute(counts).all()[:2] == [(0, 11), (1, 10)]
        names = select(samples.c.id).where(samples.c.name.in_(["row 4", "row 40"])).order_by(samples.c.id.desc())
        assert connection.execute(names).scalars().all() == [40, 4]
        assert connection.execute(select(cast(samples.c.id, types.String)).where(samples.c.id == 7)).scalar() == "7"
        assert connection.execute(text("SELECT id FROM samples AT (TAG => 'v1') WHERE id = :id"), {"id": 5}).all() == [
            (5,)
        ]
        connection.commit()
        connection.rollback()


def test_pandas_reads_over_the_engine(engine: Engine, lake: stoker.Lake) -> None:
    sql = "SELECT id, label, name FROM samples WHERE label < 4 ORDER BY id"
    expected = lake.sql(sql).to_pandas()
    pd.testing.assert_frame_equal(pd.read_sql(sql, engine), expected, check_dtype=False)
    frame = pd.read_sql(text("SELECT id FROM samples WHERE id < :limit ORDER BY id"), engine, params={"limit": 3})
    assert frame["id"].tolist() == [0, 1, 2]
    table = pd.read_sql_table("samples", engine, columns=["id", "name"])
    assert sorted(table["id"]) == list(range(NUM_ROWS))


def test_errors_and_tokens(engine: Engine, tmp_path: Path) -> None:
    with engine.connect() as connection, pytest.raises(DBAPIError, match="nothing"):
        connection.execute(text("SELECT nothing FROM samples"))
    with engine.connect() as connection, pytest.raises(DBAPIError, match="does not support writing"):
        connection.execute(text("DELETE FROM samples"))
    with pytest.raises(ArgumentError, match="unknown arguments"):
        create_engine("stoker://localhost:1/?speed=high").connect()
    with pytest.raises(ArgumentError, match="names no server"):
        create_engine("stoker://").connect()
    lake = stoker.connect(str(tmp_path))
    lake.create_table("samples", make_columns(NUM_ROWS))
    server = Server(str(tmp_path), {"STOKER_TOKEN": "a-token-of-enough-bytes"})
    try:
        url = server.url.replace("grpc://", "stoker://:a-token-of-enough-bytes@")
        with create_engine(url).connect() as connection:
            assert connection.execute(text("SELECT count(*) FROM samples")).scalar() == NUM_ROWS
        wrong = create_engine(server.url.replace("grpc://", "stoker://:another-token@"))
        with pytest.raises(DBAPIError, match="not valid"), wrong.connect() as connection:
            connection.execute(text("SELECT 1"))
    finally:
        server.stop()
