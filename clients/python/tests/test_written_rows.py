"""What Python writes: rows, batches, arrays, tensors, images and categories, in process and through a server."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from conftest import Server
from PIL import Image

import stoker

torch = pytest.importorskip("torch")

Rows = Iterator[dict[str, Any]]


@pytest.fixture(params=["in process", "through a server"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[stoker.Lake]:
    """An empty lake that takes rows."""
    (tmp_path / "lake").mkdir()
    if request.param == "in process":
        yield stoker.connect(str(tmp_path / "lake"))
        return
    server = Server(str(tmp_path / "lake"), {"STOKER_ALLOW_WRITES": "true"})
    yield stoker.connect(server.url)
    assert server.stop() == 0


def rows_of(lake: stoker.Lake, table: str = "t") -> list[dict[str, Any]]:
    return lake.sql(f"SELECT * FROM {table}").to_arrow().to_pylist()


def torch_column(lake: stoker.Lake, column: str, **options: Any) -> Any:
    """Returns a column of all rows as PyTorch loads them, in the order in which they were written."""
    loader = lake.sql(f"SELECT {column} FROM t").torch(batch_size=1_000_000, shuffle=False, **options)
    return next(iter(loader))[column]


def files_of(tmp_path: Path) -> list[str]:
    """Returns the data files of the lake."""
    return [str(path.relative_to(tmp_path)) for path in tmp_path.glob("lake/*.lance/**/*.lance")]


def test_rows_of_a_generator(lake: stoker.Lake) -> None:
    images = np.random.default_rng(0).integers(0, 255, (3000, 3, 5, 4), dtype=np.uint8)

    def rows() -> Rows:
        for row in range(3000):
            yield {"id": row, "image": images[row], "name": f"row {row}", "score": row / 8, "label": np.int16(row % 5)}

    table = lake.create_table("t", rows())
    assert (table.num_rows, table.version) == (3000, 1)
    assert stoker.tensor_shape(table.schema.field("image")) == (3, 5, 4)
    found = rows_of(lake)
    assert [row["id"] for row in found] == list(range(3000))
    assert found[2999]["name"] == "row 2999"
    assert found[2999]["score"] == 2999 / 8
    assert table.schema.field("label").type == pa.int16()
    assert (torch_column(lake, "image").numpy() == images).all()
    assert table.append(rows()).num_rows == 6000


def test_lists_of_dicts(lake: stoker.Lake) -> None:
    rows = [{"a": 1, "b": "x"}, {"a": 2.5, "c": [1, 2]}, {"b": None, "c": []}]
    lake.create_table("t", rows)
    assert rows_of(lake) == [
        {"a": 1.0, "b": "x", "c": None},
        {"a": 2.5, "b": None, "c": [1, 2]},
        {"a": None, "b": None, "c": []},
    ]
    lake.table("t").append([{"c": [3], "a": 7, "b": "y"}])
    assert rows_of(lake)[3] == {"a": 7.0, "b": "y", "c": [3]}


def test_rows_whose_keys_differ(lake: stoker.Lake) -> None:
    def rows(late: str | None) -> Rows:
        for row in range(2000):
            yield {"id": row, **({"odd": row} if row % 2 else {}), **({late: 1} if late and row == 1500 else {})}

    lake.create_table("t", rows(None))
    assert [row["odd"] for row in rows_of(lake)[:4]] == [None, 1, None, 3]
    with pytest.raises(stoker.InvalidRequestError, match=r"column late row 1500: expected the keys .*schema="):
        lake.create_table("u", rows("late"))
    schema = pa.schema([("late", pa.int32()), ("id", pa.int64()), ("odd", pa.int64())])
    lake.create_table("u", rows("late"), schema=schema)
    table = lake.table("u")
    assert table.schema.field("late").type == pa.int32()
    assert rows_of(lake, "u")[1500] == {"late": 1, "id": 1500, "odd": None}
    with pytest.raises(stoker.InvalidRequestError, match="no column other"):
        table.append([{"other": 1, "late": 1, "id": 1, "odd": 1}])
    table.append([{"id": 2000}])
    table.append(iter([{"odd": 1}]))
    assert rows_of(lake, "u")[2000:] == [{"late": None, "id": 2000, "odd": None}, {"late": None, "id": None, "odd": 1}]
    lake.create_table("v", {"id": [1], "name": ["a"]})
    with pytest.raises(stoker.InvalidRequestError, match="column name must not have nulls, but row 1 has one"):
        lake.table("v").append([{"id": 2, "name": "b"}, {"id": 3}])


@pytest.mark.parametrize("kind", ["record batches", "tables", "pandas", "polars"])
def test_batches_of_a_generator(lake: stoker.Lake, kind: str) -> None:
    make: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
        "record batches": pa.RecordBatch.from_pydict,
        "tables": pa.table,
        "pandas": pd.DataFrame,
        "polars": pl.DataFrame,
    }
    batches = (make[kind]({"id": [3 * n, 3 * n + 1, 3 * n + 2], "word": ["a", "b", str(n)]}) for n in range(10))
    assert lake.create_table("t", batches).num_rows == 30
    assert [row["id"] for row in rows_of(lake)] == list(range(30))
    listed = [make[kind]({"word": ["z"], "id": [30]})]
    assert lake.table("t").append(listed).num_rows == 31
    unlike = iter([make[kind]({"id": [1], "word": ["a"]}), make[kind]({"id": ["x"], "word": ["a"]})])
    with pytest.raises(stoker.InvalidRequestError, match="column id, item 1 of the iterator: expected int64"):
        lake.create_table("u", unlike)
    other = iter([make[kind]({"id": [1]}), make[kind]({"it": [1]})])
    with pytest.raises(stoker.InvalidRequestError, match=r"item 1 of the iterator: expected the columns \['id'\]"):
        lake.create_table("u", other)
    assert lake.tables() == ["t"]


def test_a_generator_that_raises_leaves_nothing(lake: stoker.Lake, tmp_path: Path) -> None:
    lake.create_table("t", {"id": np.arange(3), "image": np.zeros((3, 64, 64), np.float32)})
    before = files_of(tmp_path)

    def rows(num_rows: int, error: BaseException) -> Rows:
        for row in range(num_rows):
            yield {"id": row, "image": np.ones((64, 64), np.float32)}
        raise error

    message = "item 2500 of the iterator: it raised RuntimeError: the disk is on fire"
    writes: list[Callable[[Any], Any]] = [lambda data: lake.create_table("u", data), lake.table("t").append]
    for write in writes:
        with pytest.raises(stoker.InvalidRequestError, match=f"^{message}$") as failed:
            write(rows(2500, RuntimeError("the disk is on fire")))
        assert isinstance(failed.value.__cause__, RuntimeError)
        with pytest.raises(KeyboardInterrupt):
            write(rows(2500, KeyboardInterrupt()))
        with pytest.raises(stoker.InvalidRequestError, match="item 0 of the iterator: it raised"):
            write(rows(0, RuntimeError("at once")))
    assert lake.tables() == ["t"]
    assert [version.version for version in lake.table("t").versions()] == [1]
    assert files_of(tmp_path) == before


def test_empty_iterators(lake: stoker.Lake) -> None:
    for data in ([], iter([]), ()):
        with pytest.raises(stoker.InvalidRequestError, match="there are no rows, so that their columns are not known"):
            lake.create_table("t", data)
    assert lake.create_table("t", iter([]), schema=pa.schema([("a", pa.int64())])).num_rows == 0
    assert lake.table("t").append(iter([])).num_rows == 0
    assert lake.table("t").append([{"a": 3}]).num_rows == 1


def test_other_items_are_refused(lake: stoker.Lake) -> None:
    cases: list[tuple[Any, str]] = [
        (iter([1, 2]), "item 0 of the iterator: expected a dict, which is a row, or a record batch, found 1"),
        ("text", "cannot write a str"),
        (17, "cannot write a int"),
        (
            iter([None, {"a": 1}]),
            "item 0 of the iterator: expected a dict, which is a row, or a record batch, found None",
        ),
        (iter([{"a": 1}, None, {"a": 2}]), "row 1: expected a dict, found None"),
        (iter([{"a": 1}, 5]), "row 1: expected a dict, found 5"),
        ([{"a": 1}, {3: 1}], "row 1: expected names of columns as keys, found 3"),
        (iter([pa.record_batch({"a": [1]}), {"a": 1}]), "item 1 of the iterator: expected a record batch, found"),
    ]
    for data, message in cases:
        with pytest.raises(stoker.InvalidRequestError, match=re.escape(message)):
            lake.create_table("t", data)
    assert lake.tables() == []


def test_lists_of_arrays_and_tensors(lake: stoker.Lake) -> None:
    rng = np.random.default_rng(1)
    lengths = [3, 0, 5, 1]
    columns = {
        "equal": [rng.random((2, 3)) for _ in range(4)],
        "tensors": [torch.arange(6).reshape(2, 3) + row for row in range(4)],
        "vectors": [torch.full((4,), float(row)) for row in range(4)],
        "tokens": [np.arange(length, dtype=np.int32) for length in lengths],
        "flags": [torch.arange(length) % 2 == 0 for length in lengths],
        "clouds": [torch.rand(length, 3) for length in lengths],
        "numbers": [torch.tensor(row) for row in range(4)],
    }
    lake.create_table("t", columns)
    kinds = {layout.name: layout.kind for layout in lake.table("t").describe()}
    assert kinds == {
        "equal": "tensor float64[2, 3]",
        "tensors": "tensor int64[2, 3]",
        "vectors": "vector float32[4]",
        "tokens": "ragged int32[*]",
        "flags": "ragged boolean[*]",
        "clouds": "ragged float32[*, *]",
        "numbers": "scalar",
    }
    assert (torch_column(lake, "equal").numpy() == np.stack(columns["equal"])).all()
    assert (torch_column(lake, "tensors") == torch.stack(columns["tensors"])).all()
    assert (torch_column(lake, "vectors") == torch.stack(columns["vectors"])).all()
    for name in ("tokens", "flags", "clouds"):
        for found, given in zip(torch_column(lake, name), columns[name], strict=True):
            assert (found == torch.as_tensor(given)).all()
            assert found.shape == given.shape
    # Rows of a generator become the same columns, and both append to each other.
    rows = ({name: values[row] for name, values in columns.items()} for row in range(4))
    assert lake.table("t").append(rows).num_rows == 8
    one = [{name: values[2] for name, values in columns.items()}]
    assert lake.table("t").append(one).num_rows == 9
    assert [len(row) for row in torch_column(lake, "tokens")] == [*lengths, *lengths, 5]


def test_boolean_tensors(lake: stoker.Lake) -> None:
    masks = torch.rand(7, 3, 4) > 0.5
    rows = ({"mask": mask, "bit": bool(mask[0, 0])} for mask in masks)
    lake.create_table("t", rows)
    assert (torch_column(lake, "mask") == masks).all()
    assert torch_column(lake, "mask").dtype == torch.bool
    table = lake.create_table("t", {"mask": masks, "bit": masks[:, 0, 0]}, mode="overwrite")
    table.append({"mask": masks.numpy(), "bit": masks[:, 0, 0].numpy()})
    assert (torch_column(lake, "mask") == torch.cat([masks, masks])).all()
    found = lake.sql("SELECT mask FROM t").to_arrow()["mask"].to_pylist()
    assert np.array(found[:7]).reshape(7, 3, 4).tolist() == masks.tolist()
    with pytest.raises(stoker.InvalidRequestError, match="column mask"):
        table.append({"mask": masks.numpy().astype(np.uint8), "bit": masks[:, 0, 0].numpy()})


def picture(row: int, mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(row).integers(0, 255, (6, 9, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def jpeg_of(row: int) -> bytes:
    out = io.BytesIO()
    picture(row).save(out, "JPEG", quality=60)
    return out.getvalue()


def test_pictures_of_pillow(lake: stoker.Lake, tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(jpeg_of(0))
    unread, drawn = Image.open(tmp_path / "photo.jpg"), Image.open(tmp_path / "photo.jpg")
    drawn.putpixel((0, 0), (1, 2, 3))
    pictures = [unread, drawn, picture(1), picture(2, "L"), picture(3, "RGBA"), picture(4, "P"), None]
    table = lake.create_table("t", {"photo": pictures, "id": range(7)})
    assert table.describe()[0].kind == "encoded image"
    files = lake.sql("SELECT photo FROM t").to_arrow()["photo"].to_pylist()
    assert files[0] == jpeg_of(0), "an image that was not loaded is the file that it was"
    assert files[6] is None
    for file, given in zip(files[1:6], pictures[1:6], strict=True):
        found = Image.open(io.BytesIO(file))
        assert (found.format, found.mode) == ("PNG", given.mode)
        assert (np.asarray(found.convert("RGBA")) == np.asarray(given.convert("RGBA"))).all()
    transform = stoker.ImageTransform(size=(6, 9))
    query = lake.sql("SELECT photo FROM t WHERE id IN (1, 2)")
    batch = next(iter(query.torch(batch_size=2, shuffle=False, decode={"photo": transform})))
    assert (batch["photo"][1].numpy() == np.asarray(picture(1)).transpose(2, 0, 1)).all()
    rows = ({"photo": picture(row), "id": row} for row in range(10, 13))
    assert table.append(rows).num_rows == 10
    assert table.append([{"photo": jpeg_of(5), "id": 20}]).num_rows == 11
    with pytest.raises(stoker.InvalidRequestError, match=r"column photo row 1: expected an image, found .* mode CMYK"):
        table.append([{"photo": picture(1), "id": 1}, {"photo": picture(1, "CMYK"), "id": 2}])
    with pytest.raises(
        stoker.InvalidRequestError, match="column photo row 0: expected an image of Pillow, or the bytes"
    ):
        table.append([{"photo": "a path", "id": 1}])
    with pytest.raises(stoker.InvalidRequestError, match="column photo row 0: expected a JPEG, PNG or WebP file"):
        table.append([{"photo": b"text", "id": 1}])


def test_categories(lake: stoker.Lake) -> None:
    words = ["cat", "dog", "cat", None]
    frames = [
        pd.DataFrame({"word": pd.Categorical(words), "number": pd.Categorical([7, 9, 7, 7])}),
        pl.DataFrame(
            {
                "word": pl.Series(words, dtype=pl.Categorical),
                "number": pl.Series([7, 9, 7, 7]),
            }
        ),
        pl.DataFrame({"word": pl.Series(words, dtype=pl.Enum(["dog", "cat"])), "number": [7, 9, 7, 7]}),
        {"word": pd.Series(pd.Categorical(words)), "number": [7, 9, 7, 7]},
        {"word": pl.Series(words, dtype=pl.Categorical), "number": [7, 9, 7, 7]},
        pa.table({"word": pa.array(words).dictionary_encode(), "number": pa.array([7, 9, 7, 7])}),
        iter([pa.record_batch({"word": pa.array(words).dictionary_encode(), "number": pa.array([7, 9, 7, 7])})]),
    ]
    expected = [{"word": word, "number": number} for word, number in zip(words, [7, 9, 7, 7], strict=True)]
    for frame in frames:
        table = lake.create_table("t", frame, mode="overwrite")
        assert rows_of(lake) == expected
        assert not pa.types.is_dictionary(table.schema.field("word").type)
    more = pl.DataFrame({"word": pl.Series(["cow"], dtype=pl.Categorical), "number": [1]})
    assert table.append(more).num_rows == 5
    nested = pl.DataFrame({"words": pl.Series([["a", "b"], ["a"]], dtype=pl.List(pl.Categorical))})
    lake.create_table("u", nested)
    assert rows_of(lake, "u") == [{"words": ["a", "b"]}, {"words": ["a"]}]


def test_numbers_are_widened_without_loss(lake: stoker.Lake) -> None:
    columns: dict[str, Any] = {
        "i": np.array([1], np.int64),
        "f": np.array([0.5]),
        "g": np.array([0.5], np.float32),
        "emb": np.zeros((1, 2), np.float64),
        "image": np.zeros((1, 2, 2), np.int32),
        "list": pa.array([[1]], pa.list_(pa.int64())),
        "text": pa.array(["a"], pa.large_string()),
    }
    table = lake.create_table("t", columns)
    narrow = {
        "i": np.array([-3], np.int32),
        "f": np.array([0.1], np.float32),
        "g": np.array([2.5], np.float16),
        "emb": np.array([[0.1, 0.2]], np.float32),
        "image": np.full((1, 2, 2), 200, np.uint8),
        "list": pa.array([[7, None]], pa.list_(pa.int8())),
        "text": pa.array(["b"]),
    }
    table.append(narrow)
    found = rows_of(lake)[1]
    assert (found["i"], found["f"], found["g"]) == (-3, float(np.float32(0.1)), 2.5)
    assert found["emb"] == [float(np.float32(0.1)), float(np.float32(0.2))]
    assert (found["list"], found["text"]) == ([7, None], "b")
    assert (torch_column(lake, "image")[1] == 200).all()
    assert torch_column(lake, "image").dtype == torch.int32
    whole = {**columns, "f": np.array([2**53]), "g": np.array([2**24], np.int32)}
    table.append(whole)
    assert (rows_of(lake)[2]["f"], rows_of(lake)[2]["g"]) == (float(2**53), float(2**24))
    refusals: list[tuple[str, Any, str]] = [
        ("f", np.array([1, 2**53 + 1]), "column f row 1: expected a number that Float64 holds exactly, found 9007199"),
        ("g", np.array([2**24 + 1], np.int32), "column g row 0: expected a number that Float32 holds exactly"),
        ("i", np.array([1.0]), "column i should be .*Int64, not .*Float64"),
        ("i", np.array([2**63], np.uint64), "column i should be .*Int64, not .*UInt64"),
        ("g", np.array([0.1]), "column g should be .*Float32, not .*Float64"),
        ("emb", np.zeros((1, 3)), "column emb should be"),
        ("image", np.zeros((1, 2, 2), np.int64), "column image should be"),
        ("i", np.array([True]), "column i should be .*Int64, not .*Boolean"),
    ]
    for name, values, message in refusals:
        rows = {**columns, name: values}
        if len(values) == 2:
            rows = {
                key: value if key == name else pa.concat_arrays([column_of(value)] * 2) for key, value in rows.items()
            }
        with pytest.raises(stoker.InvalidRequestError, match=message):
            table.append(rows)
    assert lake.table("t").num_rows == 3


def column_of(values: Any) -> pa.Array:
    """Returns a column of the dict of ``test_numbers_are_widened_without_loss`` as an Arrow array."""
    if isinstance(values, pa.Array):
        return values
    lake = stoker.connect("memory://")
    lake.create_table("t", {"x": values})
    return lake.sql("SELECT x FROM t").to_arrow()["x"].combine_chunks()


def test_numbers_of_python_get_the_types_of_the_table(lake: stoker.Lake) -> None:
    columns: dict[str, Any] = {
        "i": np.array([1], np.int16),
        "f": np.array([0.5], np.float32),
        "emb": np.zeros((1, 2), np.float32),
        "tokens": [np.arange(3, dtype=np.int32)],
        "image": np.zeros((1, 2, 2), np.uint8),
    }
    lake.create_table("t", {**columns, "tokens": pa.array([[1, 2, 3]], pa.list_(pa.int32()))})
    table = lake.table("t")
    row = {"i": 7, "f": 0.1, "emb": [0.1, 2], "tokens": [5], "image": [[1, 2], [3, 255]]}
    table.append([row, {**row, "tokens": np.array([9, 9], np.int16)}])
    found = rows_of(lake)
    assert (found[1]["i"], found[1]["f"], found[1]["tokens"]) == (7, float(np.float32(0.1)), [5])
    assert found[2]["tokens"] == [9, 9]
    assert torch_column(lake, "image")[1].tolist() == [[1, 2], [3, 255]]
    refusals: list[tuple[str, Any, str]] = [
        ("i", 40_000, r"column i row 1: expected int16, found 40000 \(int\)"),
        ("i", 1.5, r"column i row 1: expected int16, found 1.5 \(float\)"),
        ("i", "x", "column i row 1: expected int16, found 'x'"),
        ("i", True, "column i row 1: expected int16, found True"),
        ("f", 1e300, "column f row 1: expected float, found 1e[+]300"),
        ("f", 2**24 + 1, "column f row 1: expected float, found 16777217"),
        ("emb", [1.0], r"column emb row 1: expected an array of the shape \[2\], found an array of the shape \[1\]"),
        ("emb", "ab", "column emb row 1: expected an array, found 'ab'"),
        ("emb", [1.0, None], "column emb row 1"),
        ("image", [[1, 2], [3, 256]], "column image row 1: expected numbers of uint8, found numbers of int64"),
        ("image", np.zeros((2, 2), np.int16), "column image row 1: expected numbers of uint8, found numbers of int16"),
        ("tokens", np.array([0.5]), "column tokens row 1: expected numbers of int32, found numbers of float64"),
        ("tokens", [2**31], "column tokens row 1: expected list<item: int32>, found"),
    ]
    for name, value, message in refusals:
        with pytest.raises(stoker.InvalidRequestError, match=message):
            table.append([row, {**row, name: value}])
        with pytest.raises(stoker.InvalidRequestError, match=message):
            table.append(iter([row, {**row, name: value}]))
    assert lake.table("t").num_rows == 3


def test_values_that_have_no_common_type_are_named(lake: stoker.Lake) -> None:
    cases: list[tuple[list[Any], str]] = [
        ([1, "x", 2], "column a row 1: expected a value of the same type as those before, found 'x'"),
        ([1, 2, object()], "column a row 2: expected a value of the same type"),
        ([np.zeros(3), np.zeros((2, 2))], "column a row 1: expected an array of 1 dimensions, as before"),
        ([np.zeros(3), None, 5], "column a row 2: expected an array, found 5"),
        ([np.zeros(3, np.int8), np.zeros(3)], "column a row 1: expected numbers of int8, as before"),
        ([np.zeros(2, complex)], "column a row 0: expected numbers or booleans"),
        ([picture(1), 5], "column a row 1: expected an image of Pillow"),
    ]
    for values, message in cases:
        for data in ({"a": values}, [{"a": value} for value in values], iter([{"a": value} for value in values])):
            with pytest.raises(stoker.InvalidRequestError, match=message):
                lake.create_table("t", data)

    def late() -> Rows:
        yield from ({"a": {"x": 1}, "b": np.zeros(2)} for _ in range(1500))
        yield {"a": {"x": 1, "y": 2}, "b": np.zeros(2)}

    with pytest.raises(stoker.InvalidRequestError, match=r"column a row 1500: expected struct<x: int64>"):
        lake.create_table("t", late())

    def longer() -> Rows:
        yield from ({"b": np.zeros(2)} for _ in range(1500))
        yield {"b": np.zeros(3)}

    with pytest.raises(stoker.InvalidRequestError, match=r"column b row 1500: expected an array of the shape \[2\]"):
        lake.create_table("t", longer())
    listed = pa.schema([("b", pa.list_(pa.float64()))])
    assert lake.create_table("t", longer(), schema=listed).num_rows == 1501
    with pytest.raises(stoker.InvalidRequestError, match=r"column n: expected a value in the first 1024 rows"):
        lake.create_table("u", ({"n": None} for _ in range(1100)))


def test_huge_values(lake: stoker.Lake) -> None:
    values = [b"\1" * 40_000_000, b"", b"\2" * 3_000_000]
    lake.create_table("t", ({"id": row, "video": value} for row, value in enumerate(values)))
    assert [row["video"] for row in rows_of(lake)] == values
    wide = np.arange(12_000_000, dtype=np.float32).reshape(1, 3000, 4000)
    lake.create_table("t", {"wide": wide}, mode="overwrite")
    assert (torch_column(lake, "wide").numpy() == wide).all()


def test_null_rows_of_tensors(lake: stoker.Lake) -> None:
    rows: list[dict[str, Any]] = [{"x": np.ones((2, 2))}, {"x": None}, {"x": np.zeros((2, 2))}]
    with pytest.raises(stoker.InvalidRequestError, match="column x must not have nulls, but row 1 has one"):
        lake.create_table("t", iter(rows))
    lake.create_table("t", iter(rows), null_masks=["x"])
    assert [row["x_valid"] for row in rows_of(lake)] == [True, False, True]


def test_options_are_kept(lake: stoker.Lake) -> None:
    depth = np.cumsum(np.ones((300, 16, 16), np.float32), axis=2)
    table = lake.create_table(
        "t", ({"depth": one, "word": "w"} for one in depth), compression={"depth": "pco"}, rows_per_fragment=100
    )
    assert table.describe()[0].kind == "tensor float32[16, 16] (pco)"
    assert table.size is not None
    assert table.size.num_fragments == 3
    table.append([{"depth": depth[0], "word": "x"}, {"depth": depth[1].tolist(), "word": "y"}])
    assert (torch_column(lake, "depth").numpy() == np.concatenate([depth, depth[:2]])).all()
    files = [jpeg_of(row) for row in range(3)]
    table = lake.create_table("u", ({"photo": file} for file in files), encoded_images=["photo"])
    assert table.describe()[0].kind == "encoded image"
    with pytest.raises(stoker.InvalidRequestError, match="column photo row 1: expected a JPEG"):
        lake.create_table("v", iter([{"photo": files[0]}, {"photo": b"no"}]), encoded_images=["photo"])
    with pytest.raises(stoker.InvalidRequestError, match="schema is a dict; it must be a pyarrow"):
        lake.create_table("v", [{"a": 1}], schema={"a": int})  # type: ignore[arg-type]
