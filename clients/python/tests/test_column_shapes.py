"""The kinds of columns, and the NumPy arrays that they become, as the engine knows them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import stoker
from stoker import _native
from stoker._column_shapes import NUM_KEPT, ColumnShape, column_shape, column_shapes


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int32(), ColumnShape("scalar", np.dtype(np.int32), (), "zero")),
        (pa.bool_(), ColumnShape("scalar", np.dtype(bool), (), "zero")),
        (pa.float16(), ColumnShape("scalar", np.dtype(np.float16), (), "nan")),
        (pa.timestamp("us", "UTC"), ColumnShape("scalar", np.dtype("datetime64[us]"), (), "nat")),
        (pa.duration("ns"), ColumnShape("scalar", np.dtype("timedelta64[ns]"), (), "nat")),
        (pa.date32(), ColumnShape("scalar", np.dtype("datetime64[D]"), (), "nat")),
        (pa.time64("us"), ColumnShape("scalar", None, (), "none")),
        (pa.string(), ColumnShape("text", None, (), "none")),
        (pa.large_binary(), ColumnShape("binary", None, (), "none")),
        (pa.list_(pa.int8()), ColumnShape("ragged", np.dtype(np.int8), (), "zero", levels=1)),
        (
            pa.large_list(pa.list_(pa.list_(pa.float32(), 4))),
            ColumnShape("ragged", np.dtype(np.float32), (4,), "zero", levels=2),
        ),
        (pa.list_(pa.string()), ColumnShape("list", None, (), "none")),
        (pa.list_(pa.bool_(), 2), ColumnShape("list", np.dtype(bool), (2,), "zero")),
        (pa.list_(pa.list_(pa.int16(), 3), 2), ColumnShape("list", np.dtype(np.int16), (2, 3), "zero")),
        (pa.list_(pa.string(), 2), ColumnShape("list", None, (2,), "none")),
        (pa.struct([("a", pa.int8())]), ColumnShape("struct", None, (), "none")),
        (pa.list_(pa.float32(), 3), ColumnShape("vector", np.dtype(np.float32), (3,), "zero")),
        (
            pa.fixed_shape_tensor(pa.uint8(), [3, 4]),
            ColumnShape("tensor", np.dtype(np.uint8), (3, 4), "zero"),
        ),
        (
            pa.fixed_shape_tensor(pa.uint8(), [3, 4, 5], dim_names=["C", "H", "W"], permutation=[1, 2, 0]),
            ColumnShape("tensor", np.dtype(np.uint8), (4, 5, 3), "zero", axes=(1, 2, 0), names=("H", "W", "C")),
        ),
    ],
)
def test_each_type_has_its_shape(kind: pa.DataType, expected: ColumnShape) -> None:
    field = pa.field("x", kind)
    assert column_shape(field) == expected
    assert stoker.tensor_shape(field) == (() if expected.is_ragged else expected.shape)
    assert [column["name"] for column in _native.column_shapes(pa.schema([field, field]))] == ["x", "x"]


def test_metadata_is_part_of_what_is_kept() -> None:
    plain = pa.field("x", pa.uint16())
    for _ in range(2):
        assert column_shape(plain).small_float is None
        assert column_shape(plain.with_metadata({b"stoker.dtype": b"bfloat16"})).small_float == "bfloat16"
        image = pa.field("x", pa.large_binary(), metadata={b"stoker.kind": b"encoded_image"})
        assert (column_shape(image).kind, column_shape(image.remove_metadata()).kind) == ("encoded_image", "binary")


def test_shapes_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = [pa.schema([(f"column {number}", pa.int64())]) for number in range(NUM_KEPT)]
    shapes = [column_shapes(schema) for schema in schemas]
    monkeypatch.setattr(_native, "column_shapes", None)
    again = [column_shapes(pa.schema(list(schema))) for schema in schemas]
    assert all(new is old for new, old in zip(again, shapes, strict=True))


def test_what_is_no_schema_is_refused() -> None:
    with pytest.raises(stoker.InvalidRequestError, match="__arrow_c_schema__"):
        _native.column_shapes("x")


class _Celsius(pa.ExtensionType):
    """A type of another project over a plain one."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "test.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> _Celsius:
        return cls(storage)


@pytest.mark.parametrize(
    ("storage", "values", "expected"),
    [
        (pa.float32(), [1.0, 2.0], [1.0, 2.0]),
        (pa.int16(), [3, 4], [3, 4]),
        (pa.bool_(), [True, False], [True, False]),
        (pa.timestamp("s"), [0, None], None),
    ],
)
def test_types_of_other_projects_are_numbers_or_objects(
    tmp_path: Path, storage: pa.DataType, values: list[object], expected: list[object] | None
) -> None:
    array = pa.ExtensionArray.from_storage(_Celsius(storage), pa.array(values, storage))
    lake = stoker.connect(str(tmp_path))
    lake.create_table("t", pa.table({"x": array}))
    query = lake.sql("SELECT x FROM t")
    (batch,) = query.stream(batch_size=2, shuffle=False)
    (tensors,) = query.torch(batch_size=2, shuffle=False)
    assert batch["x"].tolist() == (expected or pa.array(values, storage).to_numpy(zero_copy_only=False).tolist())
    assert list(tensors["x"]) == (expected or array.to_pylist())


def test_permuted_tensors_have_the_order_of_their_dimensions(tmp_path: Path) -> None:
    stored = np.arange(4 * 3 * 2 * 5, dtype=np.int32).reshape(4, 3, 2, 5)
    kind = pa.fixed_shape_tensor(pa.int32(), [3, 2, 5], dim_names=["C", "H", "W"], permutation=[1, 2, 0])
    storage = pa.FixedSizeListArray.from_arrays(pa.array(stored.reshape(-1)), 30)
    array = pa.ExtensionArray.from_storage(kind, storage)
    lake = stoker.connect(str(tmp_path))
    lake.create_table("t", pa.table({"x": array}))
    lake.execute("CREATE TABLE copy AS SELECT x FROM t")
    for table in ("t", "copy"):
        assert lake.table(table).schema.field("x").type == kind
        assert [column.kind for column in lake.table(table).describe()] == ["tensor int32[H=2, W=5, C=3]"]
        shapes = lake.sql(f"SELECT DISTINCT tensor_shape(x) AS shape FROM {table}").to_arrow()
        assert shapes["shape"].to_pylist() == [[2, 5, 3]]
        query = lake.sql(f"SELECT x FROM {table}")
        (batch,) = query.stream(batch_size=4, shuffle=False)
        (tensors,) = query.torch(batch_size=4, shuffle=False)
        np.testing.assert_array_equal(batch["x"], stored.transpose(0, 2, 3, 1))
        assert batch["x"].base is not None
        assert tensors["x"].shape == (4, 2, 5, 3)
        np.testing.assert_array_equal(tensors["x"].numpy(), stored.transpose(0, 2, 3, 1))


def test_booleans_and_nested_lists_of_a_fixed_size_are_arrays(tmp_path: Path) -> None:
    flags = np.arange(4 * 2 * 3).reshape(4, 2, 3) % 3 == 0
    inner = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(24, dtype=np.int16)), 3)
    lake = stoker.connect(str(tmp_path))
    nested = pa.FixedSizeListArray.from_arrays(inner, 2)
    lake.create_table("t", {"flags": flags, "nested": nested, "one": flags[:, 0, 0].copy()})
    query = lake.sql("SELECT flags, nested, one FROM t")
    (batch,) = query.stream(batch_size=4, shuffle=False)
    (tensors,) = query.torch(batch_size=4, shuffle=False)
    expected = {"flags": flags, "nested": np.arange(24).reshape(4, 2, 3), "one": flags[:, 0, 0]}
    for name, values in expected.items():
        np.testing.assert_array_equal(batch[name], values)
        np.testing.assert_array_equal(tensors[name].numpy(), values)
        assert batch[name].dtype == tensors[name].numpy().dtype
    assert batch["flags"].dtype == bool
    assert batch["nested"].dtype == np.int16


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_floats_of_eight_bits(tmp_path: Path, name: str) -> None:
    import torch

    values = torch.arange(24).reshape(4, 2, 3).to(torch.float32).to(getattr(torch, name))
    lake = stoker.connect(str(tmp_path))
    lake.create_table("t", {"x": values, "row": [0, 1, 2, 3]})
    lake.execute("CREATE TABLE copy AS SELECT * FROM t WHERE row > 0")
    (batch,) = lake.sql("SELECT x FROM t").torch(batch_size=4, shuffle=False)
    assert batch["x"].dtype == values.dtype
    assert torch.equal(batch["x"].view(torch.uint8), values.view(torch.uint8))
    (batch,) = lake.sql("SELECT x FROM copy").torch(batch_size=4, shuffle=False)
    assert torch.equal(batch["x"].float(), values[1:].float())
    assert [column.kind for column in lake.table("copy").describe()] == [f"tensor {name}[2, 3]", "scalar"]
    means = lake.sql("SELECT tensor_mean(x) AS mean FROM t ORDER BY row").to_arrow()["mean"].to_pylist()
    assert means == values.double().mean(dim=(1, 2)).tolist()
    with pytest.raises(stoker.InvalidRequestError, match=f"the bits of {name} as UInt8 are needed"):
        lake.execute("UPDATE t SET x = [[1, 2, 3], [4, 5, 6]] WHERE row = 0")
