"""The kinds of columns, and the NumPy arrays that they become, as the engine knows them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import stoker
from stoker import _native
from stoker._column_shapes import NUM_KEPT, ColumnShape, column_shape, column_shapes
from stoker._columns import numpy_column
from stoker._torch_batch import _converted as torch_column


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int32(), ColumnShape("scalar", np.dtype(np.int32), (), "refused", False)),
        (pa.bool_(), ColumnShape("scalar", np.dtype(bool), (), "refused", False)),
        (pa.float16(), ColumnShape("scalar", np.dtype(np.float16), (), "nan", False)),
        (pa.timestamp("us", "UTC"), ColumnShape("scalar", np.dtype("datetime64[us]"), (), "nat", False)),
        (pa.duration("ns"), ColumnShape("scalar", np.dtype("timedelta64[ns]"), (), "nat", False)),
        (pa.date32(), ColumnShape("scalar", np.dtype("datetime64[D]"), (), "nat", False)),
        (pa.time64("us"), ColumnShape("scalar", None, (), "none", False)),
        (pa.string(), ColumnShape("text", None, (), "none", False)),
        (pa.large_binary(), ColumnShape("binary", None, (), "none", False)),
        (pa.list_(pa.int8()), ColumnShape("list", None, (), "none", False)),
        (pa.list_(pa.string(), 2), ColumnShape("list", None, (2,), "refused", False)),
        (pa.struct([("a", pa.int8())]), ColumnShape("struct", None, (), "none", False)),
        (pa.list_(pa.float32(), 3), ColumnShape("vector", np.dtype(np.float32), (3,), "refused", False)),
        (
            pa.fixed_shape_tensor(pa.uint8(), [3, 4]),
            ColumnShape("tensor", np.dtype(np.uint8), (3, 4), "refused", False),
        ),
    ],
)
def test_each_type_has_its_shape(kind: pa.DataType, expected: ColumnShape) -> None:
    field = pa.field("x", kind)
    assert column_shape(field) == expected
    assert stoker.tensor_shape(field) == expected.shape
    assert [column["name"] for column in _native.column_shapes(pa.schema([field, field]))] == ["x", "x"]


def test_metadata_is_part_of_what_is_kept() -> None:
    plain = pa.field("x", pa.uint16())
    for _ in range(2):
        assert not column_shape(plain).bfloat16
        assert column_shape(plain.with_metadata({b"stoker.dtype": b"bfloat16"})).bfloat16
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
        (pa.float32(), [1.0, None], [1.0, None]),
        (pa.bool_(), [True, False], [True, False]),
        (pa.timestamp("s"), [0, None], [0, None]),
    ],
)
def test_types_of_other_projects_are_numbers_or_objects(
    storage: pa.DataType, values: list[object], expected: list[object]
) -> None:
    array = pa.ExtensionArray.from_storage(_Celsius(storage), pa.array(values, storage))
    field = pa.field("x", array.type)
    if pa.types.is_timestamp(storage):
        expected = array.to_pylist()
    shape = column_shape(field)
    assert numpy_column(field, shape, array).tolist() == expected
    assert list(torch_column(field, shape, array)) == expected
