"""Columns that are stored with an error: floats with fewer bits and JPEG files; the error is measured and told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import stoker

NUM_ROWS = 20


@pytest.fixture
def own_lake(tmp_path: Path) -> stoker.Lake:
    return stoker.connect(str(tmp_path / "lake"))


def noted(table: stoker.Table, column: str) -> dict[str, object]:
    """Returns what the metadata of a column says about its loss."""
    return dict(json.loads(table.schema.field(column).metadata[b"stoker.lossy"]))


@pytest.mark.parametrize("codec", ["float16", "bfloat16"])
def test_floats_are_rounded_and_the_error_is_noted(own_lake: stoker.Lake, codec: str) -> None:
    emb = np.random.default_rng(0).normal(size=(NUM_ROWS, 40)).astype(np.float32)
    table = own_lake.create_table("t", {"id": np.arange(NUM_ROWS), "emb": emb}, compression={"emb": codec})
    batch = next(iter(own_lake.sql("SELECT id, emb FROM t").torch(batch_size=NUM_ROWS, shuffle=False)))
    assert str(batch["emb"].dtype) == f"torch.{codec}"
    error = float(np.abs(batch["emb"].float().numpy().astype(np.float64) - emb.astype(np.float64)).max())
    assert noted(table, "emb") == {"codec": codec, "dtype": "float32", "max_abs_error": error}
    layout = table.describe()[1]
    assert (layout.codec, layout.max_abs_error, layout.plain_bytes) == (codec, error, emb.nbytes)
    assert layout.ratio is not None
    # An append with smaller errors changes nothing, and one with larger ones is noted in a version before its rows.
    table = table.append({"id": [90], "emb": np.zeros((1, 40), np.float32)})
    assert (table.version, noted(table, "emb")["max_abs_error"]) == (2, error)
    table = table.append({"id": [91], "emb": np.full((1, 40), 1000.3, np.float32)})
    larger = noted(own_lake.table("t", version=3), "emb")["max_abs_error"]
    assert isinstance(larger, float)
    assert larger > error
    assert (table.version, table.num_rows, own_lake.table("t", version=3).num_rows) == (4, 22, 21)
    assert noted(table, "emb")["max_abs_error"] == larger


def test_numbers_that_do_not_fit_are_refused(own_lake: stoker.Lake) -> None:
    emb = np.ones((4, 300), np.float64)
    emb[2, 7] = 1e6
    with pytest.raises(stoker.InvalidRequestError, match=r"column emb, row 2.*float16.*1000000"):
        own_lake.create_table("t", {"emb": emb}, compression={"emb": "float16"})
    with pytest.raises(stoker.NotFoundError, match="does not exist"):
        own_lake.tables()  # Nothing was written.
    with pytest.raises(stoker.InvalidRequestError, match="takes float32 and float64"):
        own_lake.create_table("t", {"emb": emb.astype(np.int64)}, compression={"emb": "bfloat16"})


def test_pixels_become_encoded_images(own_lake: stoker.Lake) -> None:
    rows, columns = np.mgrid[0:32, 0:48]
    image = np.stack([np.stack([rows * 4 + at, columns * 3, rows + columns]) for at in range(NUM_ROWS)]).astype(
        np.uint8
    )
    compression = {"image": stoker.ColumnCompression("jpeg", level=95)}
    table = own_lake.create_table("t", {"image": image}, compression=compression)
    assert table.describe()[0].kind == "encoded image"
    found = noted(table, "image")
    error = found.pop("max_abs_error")
    assert isinstance(error, float)
    assert found == {"codec": "jpeg:95", "dtype": "uint8", "shape": [3, 32, 48]}
    decode = {"image": stoker.ImageTransform(size=(32, 48))}
    batch = next(iter(own_lake.sql("SELECT image FROM t").stream(batch_size=NUM_ROWS, shuffle=False, decode=decode)))
    assert np.abs(batch["image"].astype(int) - image.astype(int)).max() == error
    # Appended tensors become images as well, and files of images stay as they are.
    assert table.append({"image": image[:3]}).num_rows == NUM_ROWS + 3
    files = own_lake.sql("SELECT image FROM t").to_arrow()["image"]
    assert files[NUM_ROWS:].to_pylist() == files[:3].to_pylist()
    table = table.append({"image": files[:2].to_pylist()})
    assert (table.num_rows, noted(table, "image")["max_abs_error"]) == (NUM_ROWS + 5, error)
    noise = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 48)).astype(np.uint8)
    table = table.append({"image": noise})
    larger = noted(table, "image")["max_abs_error"]
    assert isinstance(larger, float)
    assert larger > error
    with pytest.raises(stoker.InvalidRequestError, match="column image"):
        table.append({"image": noise[:, :, :16]})
