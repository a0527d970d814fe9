"""Parameters of every type, in this process and through a server."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import Server

import stoker

UTC = dt.timezone.utc


def named(value: object) -> str:
    """Names a case by its value, without addresses, which differ from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@pytest.fixture(params=["here", "there"])
def either(request: pytest.FixtureRequest, lake: stoker.Lake, server: Server) -> stoker.Lake:
    """The lake, in process and through a server."""
    return lake if request.param == "here" else stoker.connect(server.url)


def value_of(lake: stoker.Lake, param: object) -> tuple[pa.DataType, Any]:
    """Returns the type and the value that a parameter has in SQL."""
    column = lake.sql("SELECT $1 AS a", params=[param]).to_arrow()["a"]
    return column.type, column[0].as_py()


@pytest.mark.parametrize(
    ("param", "data_type", "value"),
    [
        (math.inf, pa.float64(), math.inf),
        (-math.inf, pa.float64(), -math.inf),
        (np.float32(-np.inf), pa.float64(), -math.inf),
        (b"\x00\xff", pa.binary(), b"\x00\xff"),
        (bytearray(b"ab"), pa.binary(), b"ab"),
        (memoryview(b"ab"), pa.binary(), b"ab"),
        (2**63 - 1, pa.int64(), 2**63 - 1),
        (2**63, pa.uint64(), 2**63),
        (np.uint64(2**64 - 1), pa.uint64(), 2**64 - 1),
        (2**64, pa.decimal128(38, 0), decimal.Decimal(2**64)),
        (-(2**63) - 1, pa.decimal128(38, 0), decimal.Decimal(-(2**63) - 1)),
        (decimal.Decimal("1.50"), pa.decimal128(3, 2), decimal.Decimal("1.50")),
        (decimal.Decimal("1E+3"), pa.decimal128(4, 0), decimal.Decimal(1000)),
        (dt.date(2026, 1, 31), pa.date32(), dt.date(2026, 1, 31)),
        (dt.datetime(2026, 1, 31, 1, 2, 3, 4), pa.timestamp("us"), dt.datetime(2026, 1, 31, 1, 2, 3, 4)),
        (
            dt.datetime(2026, 1, 31, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
            pa.timestamp("us", "UTC"),
            dt.datetime(2026, 1, 30, 23, tzinfo=UTC),
        ),
        (dt.time(1, 2, 3, 4), pa.time64("us"), dt.time(1, 2, 3, 4)),
        (dt.timedelta(days=1, seconds=2), pa.duration("us"), dt.timedelta(days=1, seconds=2)),
        (np.datetime64("2026-01-31"), pa.date32(), dt.date(2026, 1, 31)),
        (np.bool_(True), pa.bool_(), True),
        (np.array(3), pa.int64(), 3),
        (uuid.UUID(int=5), pa.string(), "00000000-0000-0000-0000-000000000005"),
        (pa.scalar(3, pa.int8()), pa.int8(), 3),
        (pa.scalar(None, pa.date32()), pa.date32(), None),
        (["a", None], pa.list_(pa.string()), ["a", None]),
        ([1, None], pa.list_(pa.int64()), [1, None]),
        ([True, False], pa.list_(pa.bool_()), [True, False]),
        (np.array(["a", "b"]), pa.list_(pa.string()), ["a", "b"]),
        ([dt.date(2026, 1, 1)], pa.list_(pa.date32()), [dt.date(2026, 1, 1)]),
        ([2**53 + 1, 1], pa.list_(pa.int64()), [2**53 + 1, 1]),
        (pa.array([1, 2], pa.int16()), pa.list_(pa.int16()), [1, 2]),
    ],
    ids=named,
)
def test_values_keep_their_type(either: stoker.Lake, param: object, data_type: pa.DataType, value: object) -> None:
    found_type, found = value_of(either, param)
    assert (found_type, found) == (data_type, value)


def test_nan_is_a_number(either: stoker.Lake) -> None:
    data_type, value = value_of(either, math.nan)
    assert data_type == pa.float64()
    assert math.isnan(value)
    data_type, values = value_of(either, [1.0, math.nan])
    assert pa.types.is_list(data_type)
    assert values[0] == 1.0
    assert math.isnan(values[1])
    assert value_of(either, None)[1] is None


@pytest.mark.parametrize(
    ("where", "param", "ids"),
    [
        ("id = ANY($1)", [3, 5, 1000], [3, 5]),
        ("id = ANY(?)", np.array([3, 5]), [3, 5]),
        ("id IN ($1)", (3, 5), [3, 5]),
        ("id IN ($1)", [], []),
        ("array_has($1, id)", [3, 5, None], [3, 5]),
        ("name = ANY($1)", ["row 3", None], [3]),
        ("name IN (?)", np.array(["row 3", "row 4"]), [3, 4]),
        ("id < $1 AND id > 1", decimal.Decimal("3.5"), [2, 3]),
        ("id < $1 AND id > 98", 2**63, [99, 100]),
        (
            "TRY_CAST('2026-01-' || lpad(CAST(id AS VARCHAR), 2, '0') AS DATE) < $1 AND id BETWEEN 1 AND 9",
            dt.date(2026, 1, 3),
            [1, 2],
        ),
        ("octet_length($1) = id", b"abcd", [4]),
        ("CAST($1 AS BIGINT) = id", pa.scalar(7, pa.uint8()), [7]),
    ],
)
def test_values_in_predicates(either: stoker.Lake, where: str, param: object, ids: list[int]) -> None:
    query = either.sql(f"SELECT id, image FROM samples WHERE {where} ORDER BY id", params=[param])
    assert query.to_arrow()["id"].to_pylist() == ids


def test_streams_of_typed_parameters_are_the_same_anywhere(lake: stoker.Lake, server: Server) -> None:
    remote = stoker.connect(server.url)
    sql = "SELECT id, image FROM samples WHERE id < $1 AND name <> ALL($2) AND 1.0 < $3"
    params = [decimal.Decimal("50.5"), ["row 3", None][:1], math.inf]
    here = lake.sql(sql, params=params).stream(batch_size=8, seed=1)
    there = remote.sql(sql, params=params).stream(batch_size=8, seed=1)
    assert here.stream_id == there.stream_id
    rows = [row for batch in there for row in batch["id"][batch.valid].tolist()]
    assert sorted(rows) == [row for row in range(51) if row != 3]
    resumed = lake.sql(sql, params=params).stream(batch_size=8, seed=1)
    resumed.load_state_dict(there.state_dict())


def test_placeholders_of_both_kinds(either: stoker.Lake) -> None:
    table = either.sql("SELECT ? AS a, '?' AS b, ? AS c", params=[1, "x"]).to_arrow()
    assert table.to_pylist() == [{"a": 1, "b": "?", "c": "x"}]
    with pytest.raises(stoker.InvalidRequestError, match="in one query"):
        either.sql("SELECT ? AS a, $1 AS b", params=[1]).to_arrow()


@pytest.mark.parametrize(
    ("param", "reason"),
    [
        (object(), "use None, bool, int"),
        ({"a": 1}, "use None, bool, int"),
        (10**38, "more than 38 digits"),
        (decimal.Decimal("NaN"), "use a float"),
        (decimal.Decimal(f"0.{'1' * 39}"), "39 digits"),
        (dt.time(1, tzinfo=UTC), "use a datetime"),
        ([1, "a"], "Could not convert"),
    ],
    ids=named,
)
def test_values_that_sql_lacks(lake: stoker.Lake, param: object, reason: str) -> None:
    with pytest.raises(stoker.InvalidRequestError, match=rf"parameter \$2 of type \w+: .*{reason}"):
        lake.sql("SELECT $1, $2", params=[1, param])
