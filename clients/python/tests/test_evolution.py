"""Columns get other types, and older versions become the newest again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import stoker


@pytest.fixture
def table(tmp_path: Path) -> stoker.Table:
    lake = stoker.connect(str(tmp_path / "lake"))
    columns = {
        "id": np.arange(20),
        "text": [str(row) if row != 13 else "x" for row in range(20)],
        "x": np.arange(20 * 600, dtype=np.float32).reshape(20, 600),
    }
    return lake.create_table("t", columns, rows_per_fragment=8)


def values(table: stoker.Table, name: str) -> list[Any]:
    return table._lake.sql(f'SELECT "{name}" AS v FROM t ORDER BY id').to_arrow()["v"].to_pylist()


def test_columns_get_other_types(table: stoker.Table) -> None:
    table.create_index("id", kind="btree")
    cast = table.cast_column("id", "SMALLINT")
    assert cast.schema.field("id").type == pa.int16()
    assert cast.schema.names == table.schema.names
    assert values(cast, "id") == list(range(20))
    assert not {column.name: column for column in cast.describe()}["id"].indexes
    cast = cast.cast_column("id", "TEXT").cast_column("id", "DOUBLE")
    assert values(cast, "id") == [float(row) for row in range(20)]
    cast = cast.cast_column("x", "FLOAT64[600]")
    assert values(cast, "x")[19] == list(range(19 * 600, 20 * 600))
    layout = {column.name: column for column in cast.describe()}["x"]
    assert (layout.dense, layout.unchecked_fragments) == (True, 0), layout
    older = table._lake.table("t", version=table.version)
    assert older.schema == table.schema
    assert values(cast.cast_column("x", "INT", using="round(x[1])"), "x")[1] == 600


def test_values_that_do_not_fit_change_nothing(table: stoker.Table) -> None:
    row = (1 << 32) + 5
    for arguments, parts in [
        (("text", "BIGINT"), ("column text", f"row_id is {row}", "'x' does not fit the type Int64")),
        (("x", "FLOAT[3]"), ("column x", "a list of 600 elements cannot be a vector of 3 elements")),
        (("id", "NOTYPE"), ("there is no type NOTYPE",)),
        (("nothing", "INT"), ("has no column nothing",)),
        (("id", "DATE"), ("cast them",)),
    ]:
        with pytest.raises(stoker.InvalidRequestError) as raised:
            table.cast_column(*arguments)
        assert all(part in str(raised.value) for part in parts), raised.value
    assert table._lake.table("t").version == table.version
    with pytest.raises(
        stoker.InvalidRequestError, match=rf"row_id is {row}: its value is NULL, and the column has no NULL"
    ):
        table.cast_column("text", "BIGINT", using="TRY_CAST(text AS BIGINT)")
    cast = table.cast_column("text", "BIGINT", using="coalesce(TRY_CAST(text AS BIGINT), -1)")
    assert values(cast, "text")[12:15] == [12, -1, 14]


def test_older_versions_become_the_newest(table: stoker.Table) -> None:
    lake = table._lake
    table.create_index("id", kind="btree")
    table.tag("indexed") if table.version == lake.table("t").version else lake.table("t").tag("indexed")
    stream = lake.sql("SELECT id FROM t").stream(batch_size=5)
    lake.table("t").delete("id < 10")
    lake.table("t").drop_column("x")
    newest = lake.table("t")
    restored = table.restore()
    assert restored.version == newest.version + 1
    assert (restored.num_rows, restored.schema) == (20, table.schema)
    assert values(restored, "text")[13] == "x"
    assert sum(batch.num_valid for batch in stream) == 20
    again = restored.restore(tag="indexed")
    assert {column.name: column for column in again.describe()}["id"].indexes
    again.append({"id": [20], "text": ["20"], "x": np.zeros((1, 600), np.float32)})
    back = lake.table("t").restore(newest.version)
    assert (back.num_rows, back.schema.names) == (10, ["id", "text"])
    with pytest.raises(stoker.InvalidRequestError, match="it is the newest version"):
        back.restore()
    with pytest.raises(stoker.NotFoundError, match="99"):
        back.restore(99)
    with pytest.raises(stoker.NotFoundError, match="nothing"):
        back.restore(tag="nothing")
    with pytest.raises(stoker.InvalidRequestError, match="either a version or a tag"):
        back.restore(1, tag="indexed")
