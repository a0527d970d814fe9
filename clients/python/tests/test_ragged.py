"""Rows of different lengths: lists of numbers, also in lists, and tensors of which each has its own shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import stoker
from stoker import Pad

torch = pytest.importorskip("torch")

# Most tests read a column with nulls; one test is about the warning.
pytestmark = pytest.mark.filterwarnings("ignore::stoker.NullsWarning")

NUM_ROWS = 40
QUERY = "SELECT * FROM t ORDER BY id"


def tokens(row: int) -> list[int] | None:
    """Returns the tokens of a row; row 7 has none, and row 9 is null."""
    if row == 9:
        return None
    return [] if row == 7 else [row * 100 + at for at in range(1 + row % 5)]


def boxes(row: int) -> list[list[float]]:
    """Returns a varying number of boxes of four numbers."""
    return [[row + at + side / 4 for side in range(4)] for at in range(row % 3)]


def turns(row: int) -> list[list[int]]:
    """Returns a varying number of lists of varying lengths."""
    return [list(range(at + row % 2)) for at in range(row % 4)]


def picture(row: int) -> np.ndarray[Any, Any] | None:
    """Returns a picture [H, W, C] of varying size; row 11 is null."""
    if row == 11:
        return None
    height, width = 1 + row % 3, 2 + row % 2
    return (np.arange(height * width * 3) + row).astype(np.uint8).reshape(height, width, 3)


def pictures() -> tuple[pa.Field, pa.Array]:
    """Returns pictures of different sizes, which are stored with the channels first."""
    found = [picture(row) for row in range(NUM_ROWS)]
    stored = [np.zeros((3, 0, 0), np.uint8) if one is None else one.transpose(2, 0, 1) for one in found]
    data = pa.array([one.reshape(-1) for one in stored], pa.list_(pa.uint8()))
    sizes = pa.FixedSizeListArray.from_arrays(
        pa.array(np.array([one.shape for one in stored], np.int32).reshape(-1)), 3
    )
    mask = pa.array([one is None for one in found])
    array = pa.StructArray.from_arrays([data, sizes], ["data", "shape"], mask=mask)
    parameters = {"permutation": [1, 2, 0], "dim_names": ["C", "H", "W"], "uniform_shape": [3, None, None]}
    metadata = {
        "ARROW:extension:name": "arrow.variable_shape_tensor",
        "ARROW:extension:metadata": json.dumps(parameters),
    }
    return pa.field("picture", array.type, metadata=metadata), array


@pytest.fixture(scope="module")
def own_lake(tmp_path_factory: pytest.TempPathFactory) -> stoker.Lake:
    rows = range(NUM_ROWS)
    picture_field, picture_array = pictures()
    columns = {
        "tokens": pa.array([tokens(row) for row in rows], pa.list_(pa.int32())),
        "boxes": pa.array([boxes(row) for row in rows], pa.list_(pa.list_(pa.float32(), 4))),
        "turns": pa.array([turns(row) for row in rows], pa.large_list(pa.list_(pa.int64()))),
        "flags": pa.array([[at % 2 == 0 for at in range(row % 4)] for row in rows], pa.list_(pa.bool_())),
    }
    fields = [
        pa.field("id", pa.int64()),
        *(pa.field(name, array.type) for name, array in columns.items()),
        picture_field,
    ]
    arrays = [pa.array(rows), *columns.values(), picture_array]
    lake = stoker.connect(str(tmp_path_factory.mktemp("ragged")))
    lake.create_table("t", pa.Table.from_arrays(arrays, schema=pa.schema(fields)), rows_per_fragment=16)
    lake.create_table("plain", {"id": np.arange(4), "x": np.zeros((4, 3), np.float32)})
    return lake


def batch_of(loader: Any) -> Any:
    """Returns the first of two batches, which has the first rows."""
    batches = list(loader)
    assert [len(batch["id"]) for batch in batches] == [24, 16]
    return batches[0]


def test_each_row_is_an_array_by_default(place: stoker.Lake) -> None:
    stream = place.sql(QUERY).stream(batch_size=24, shuffle=False)
    assert [field.name for field in stream.schema] == ["id", "tokens", "boxes", "turns", "flags", "picture"]
    batch = batch_of(stream)
    for row in range(24):
        assert batch["tokens"][row].dtype == np.int32
        assert batch["tokens"][row].tolist() == (tokens(row) or [])
        assert batch["boxes"][row].shape == (row % 3, 4)
        assert batch["boxes"][row].tolist() == boxes(row)
        assert [turn.tolist() for turn in batch["turns"][row]] == turns(row)
        assert batch["flags"][row].tolist() == [at % 2 == 0 for at in range(row % 4)]
        expected = picture(row)
        if expected is None:
            assert batch["picture"][row].size == 0
        else:
            np.testing.assert_array_equal(batch["picture"][row], expected)
    assert np.flatnonzero(~batch.is_valid("tokens")).tolist() == [9]
    assert np.flatnonzero(~batch.is_valid("picture")).tolist() == [11]
    assert batch.is_valid("boxes").all()


def test_tensors_have_the_same_values(place: stoker.Lake) -> None:
    batch = batch_of(place.sql(QUERY).torch(batch_size=24, shuffle=False, null_masks=True))
    for row in range(24):
        assert batch["tokens"][row].dtype == torch.int32
        assert batch["tokens"][row].tolist() == (tokens(row) or [])
        assert batch["boxes"][row].tolist() == boxes(row)
        assert [turn.tolist() for turn in batch["turns"][row]] == turns(row)
        assert batch["flags"][row].tolist() == [at % 2 == 0 for at in range(row % 4)]
        expected = picture(row)
        assert batch["picture"][row].tolist() == ([] if expected is None else expected.tolist())
    assert batch["tokens_valid"].tolist() == [row != 9 for row in range(24)]
    assert batch.is_valid("picture").tolist() == [row != 11 for row in range(24)]


def test_jagged_rows_are_views(place: stoker.Lake) -> None:
    stream = place.sql(QUERY).stream(batch_size=24, shuffle=False)
    jagged = batch_of(stream).jagged("tokens")
    assert len(jagged) == 24
    assert len(jagged.offsets) == 25
    assert jagged.inner_offsets == ()
    assert [row.tolist() for row in jagged] == [tokens(row) or [] for row in range(24)]
    assert jagged[-1].tolist() == tokens(23)
    assert jagged[3].base is not None
    assert not jagged.values.flags.writeable
    assert jagged.lengths.tolist() == [len(tokens(row) or []) for row in range(24)]
    batch = batch_of(place.sql(QUERY).numpy(batch_size=24, shuffle=False, ragged="jagged"))
    assert [[turn.tolist() for turn in row] for row in batch["turns"]] == [turns(row) for row in range(24)]
    assert batch["boxes"].values.shape[1:] == (4,)
    np.testing.assert_array_equal(batch["picture"][5], picture(5))
    with pytest.raises(IndexError):
        jagged[24]


def test_jagged_tensors_are_nested(place: stoker.Lake) -> None:
    ragged = {"tokens": "jagged", "boxes": "jagged"}
    loader = place.sql("SELECT id, tokens, boxes FROM t ORDER BY id").torch(batch_size=24, shuffle=False, ragged=ragged)
    batch = batch_of(loader)
    assert batch["tokens"].is_nested
    assert batch["tokens"].shape[0] == 24
    assert [row.tolist() for row in batch["tokens"].unbind()] == [tokens(row) or [] for row in range(24)]
    assert [row.tolist() for row in batch["boxes"].unbind()] == [boxes(row) for row in range(24)]
    moved = batch.to("cpu")
    assert moved["tokens"].values().tolist() == batch["tokens"].values().tolist()
    assert moved.cursor == batch.cursor


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_rows_are_padded(place: stoker.Lake, kind: str) -> None:
    ragged = {
        "tokens": Pad(value=-1, multiple=4, mask="attention_mask", lengths="lengths"),
        "boxes": "pad",
        "turns": Pad(length=2, truncate=True, mask="turn_mask"),
        "flags": Pad(length=5, value=True),
        "picture": Pad(multiple=4, mask="pixels", lengths="sizes"),
    }
    loader = getattr(place.sql(QUERY), kind)(batch_size=24, shuffle=False, ragged=ragged)
    batch = {name: np.asarray(value) for name, value in batch_of(loader).items()}
    assert batch["tokens"].shape == batch["attention_mask"].shape == (24, 8)
    assert batch["tokens"].dtype == np.int32
    assert batch["attention_mask"].dtype == bool
    for row in range(24):
        known = tokens(row) or []
        assert batch["tokens"][row].tolist() == known + [-1] * (8 - len(known))
        assert batch["attention_mask"][row].tolist() == [True] * len(known) + [False] * (8 - len(known))
        assert batch["lengths"][row] == len(known)
    assert batch["boxes"].shape == (24, 2, 4)
    assert batch["boxes"][5].tolist() == boxes(5)
    assert batch["turns"].shape == batch["turn_mask"].shape == (24, 2, 3)
    assert batch["turns"][7].tolist() == [[0, 0, 0], [0, 1, 0]][:2]
    assert batch["turn_mask"][7].tolist() == [[True, False, False], [True, True, False]]
    assert batch["flags"].shape == (24, 5)
    assert batch["flags"].dtype == bool
    assert batch["flags"][3].tolist() == [True, False, True, True, True]
    assert batch["picture"].shape == (24, 4, 3, 3)
    for row in range(24):
        expected = np.zeros((4, 3, 3), np.uint8)
        found = picture(row)
        height, width = (0, 0) if found is None else found.shape[:2]
        if found is not None:
            expected[:height, :width] = found
        np.testing.assert_array_equal(batch["picture"][row], expected)
        assert batch["sizes"][row].tolist() == ([0, 0, 0] if found is None else [height, width, 3])
        assert batch["pixels"][row].sum() == height * width * 3


def test_a_batch_pads_on_request(place: stoker.Lake) -> None:
    batch = batch_of(place.sql(QUERY).stream(batch_size=24, shuffle=False))
    padded = batch.padded("tokens")
    assert padded.values.shape == (24, 5)
    assert padded.mask is None
    assert padded.lengths.tolist() == batch.jagged("tokens").lengths.tolist()
    with pytest.raises(stoker.InvalidRequestError, match="column id has no rows of different lengths"):
        batch.padded("id")
    with pytest.raises(stoker.InvalidRequestError, match="column id has no rows of different lengths"):
        batch.jagged("id")


def test_shuffled_rows_are_the_same_rows(place: stoker.Lake) -> None:
    found: dict[int, list[int]] = {}
    for batch in place.sql("SELECT id, tokens FROM t").numpy(batch_size=7, seed=3, ragged="jagged"):
        found.update(zip(batch["id"].tolist(), [row.tolist() for row in batch["tokens"]], strict=True))
    assert found == {row: tokens(row) or [] for row in range(NUM_ROWS)}


@pytest.mark.parametrize("order", ["SELECT id, tokens FROM t", "SELECT id, tokens FROM t WHERE id < 0"])
def test_a_row_set_of_any_size_is_padded(place: stoker.Lake, order: str) -> None:
    for kind in ("numpy", "torch"):
        for batch in getattr(place.sql(order), kind)(batch_size=1, ragged="pad"):
            assert tuple(batch["tokens"].shape) == (1, len(tokens(int(batch["id"][0])) or []))


@pytest.mark.parametrize(
    ("ragged", "message"),
    [
        ({"nothing": "pad"}, "ragged names 'nothing', which is no column"),
        ({"id": "pad"}, "ragged names 'id', which holds int64"),
        ({"tokens": "packed"}, "ragged is 'packed' for column tokens"),
        ("packed", "ragged is 'packed'"),
        ({"tokens": Pad(value=0.5)}, "column tokens holds int32, which cannot be padded with 0.5"),
        ({"tokens": Pad(value=2**31)}, "cannot be padded with 2147483648"),
        ({"tokens": Pad(value=float("nan"))}, "cannot be padded with nan"),
        ({"tokens": Pad(value=float("inf"))}, "cannot be padded with inf"),
        ({"tokens": Pad(mask="id")}, "has the key 'id', which is taken"),
        ({"tokens": Pad(mask="m", lengths="m")}, "has the key 'm', which is taken"),
        ({"tokens": Pad(mask="m"), "turns": Pad(mask="m")}, "column turns has the key 'm', which is taken"),
    ],
)
def test_options_that_do_not_fit_are_refused(own_lake: stoker.Lake, ragged: Any, message: str) -> None:
    for plan in (own_lake.sql(QUERY).numpy, own_lake.sql(QUERY).torch):
        with pytest.raises(stoker.InvalidRequestError, match=message):
            plan(batch_size=4, ragged=ragged)


def test_torch_has_no_nested_tensors_of_several_ragged_dimensions(own_lake: stoker.Lake) -> None:
    for column in ("turns", "picture"):
        with pytest.raises(stoker.InvalidRequestError, match=f"'jagged' for column {column}.*take 'pad' or 'list'"):
            own_lake.sql(QUERY).torch(batch_size=4, ragged={column: "jagged"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"multiple": 0}, "multiple"),
        ({"length": -1}, "length"),
        ({"truncate": True}, "truncate needs length"),
        ({"value": "x"}, "value is 'x'"),
        ({"mask": 3}, "mask is 3"),
    ],
)
def test_paddings_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(stoker.InvalidRequestError, match=message):
        Pad(**options)


def test_a_row_that_is_too_long_is_named(place: stoker.Lake) -> None:
    loader = place.sql(QUERY).numpy(batch_size=24, shuffle=False, ragged={"tokens": Pad(length=4)})
    with pytest.raises(
        stoker.InvalidRequestError, match="column tokens, row 4 of the batch: expected at most 4 values"
    ):
        next(iter(loader))


def test_padded_rows_have_bounded_memory(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    rows = pa.array([list(range(70_000))] + [[] for _ in range(20_000)], pa.list_(pa.int32()))
    lake.create_table("t", pa.table({"tokens": rows}))
    loader = lake.sql("SELECT tokens FROM t").numpy(batch_size=20_001, shuffle=False, ragged="pad")
    with pytest.raises(stoker.InvalidRequestError, match=r"column tokens: expected at most .* bytes of padded rows"):
        next(iter(loader))


def test_a_shape_that_does_not_fit_its_elements_is_named(tmp_path: Path) -> None:
    data = pa.array([[1, 2], [3, 4, 5]], pa.list_(pa.uint8()))
    sizes = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 2, 2], pa.int32()), 2)
    array = pa.StructArray.from_arrays([data, sizes], ["data", "shape"])
    metadata = {"ARROW:extension:name": "arrow.variable_shape_tensor", "ARROW:extension:metadata": "{}"}
    field = pa.field("x", array.type, metadata=metadata)
    lake = stoker.connect(str(tmp_path))
    lake.create_table("t", pa.Table.from_arrays([array], schema=pa.schema([field])))
    batch = next(iter(lake.sql("SELECT x FROM t").stream(batch_size=2, shuffle=False)))
    with pytest.raises(
        stoker.InvalidRequestError, match=r"column x, row 1 of the batch: expected a shape \[\*, \*\] of 3"
    ):
        batch["x"]


def read_twice(stream: stoker.Stream) -> None:
    for _ in range(2):
        for batch in stream:
            assert len(batch["tokens"]) == 20


def test_a_null_row_warns_once_for_each_stream(own_lake: stoker.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker._nulls._known", set())
    stream = own_lake.sql("SELECT tokens FROM t").stream(batch_size=20, shuffle=False)
    with pytest.warns(stoker.NullsWarning, match="column tokens has nulls, which read as an empty row,") as told:
        read_twice(stream)
    assert len(told) == 1


def test_columns_are_described(place: stoker.Lake) -> None:
    kinds = {column.name: column.kind for column in place.table("t").describe()}
    assert kinds == {
        "id": "scalar",
        "tokens": "ragged int32[*]",
        "boxes": "ragged float32[*, 4]",
        "turns": "ragged int64[*, *]",
        "flags": "ragged boolean[*]",
        "picture": "ragged uint8[H=*, W=*, C=3]",
    }
