"""Datasets of Hugging Face's ``datasets``: their features decide the columns, in process and through a server."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

datasets = pytest.importorskip("datasets")

from PIL import Image

import stoker


@pytest.fixture(params=["in process", "through a server"])
def empty_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[stoker.Lake]:
    """An empty lake that takes rows."""
    path = str(tmp_path / "lake")
    (tmp_path / "lake").mkdir()
    if request.param == "in process":
        yield stoker.connect(path)
        return
    command = [os.environ["STOKER_BIN"], "serve", "--lake", path, "--listen", "127.0.0.1:0", "--allow-writes"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert running.stdout is not None
    found = next(filter(None, (re.search(r"listening on \S+://(127\.0\.0\.1:\d+)", line) for line in running.stdout)))
    yield stoker.connect(f"grpc://{found[1]}")
    running.send_signal(signal.SIGTERM)
    running.stdout.close()
    running.wait(timeout=30)


def photo(row: int) -> Image.Image:
    return Image.fromarray(np.full((5, 4, 3), row, np.uint8))


def file_of(row: int) -> bytes:
    out = io.BytesIO()
    photo(row).save(out, "PNG")
    return out.getvalue()


FEATURES = datasets.Features(
    {
        "photo": datasets.Image(),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
        "grid": datasets.Array2D((2, 3), "float32"),
        "tokens": datasets.Sequence(datasets.Value("int32")),
        "text": datasets.Value("string"),
        # Sounds are encoded by a package that is not here: the structs become sounds afterwards.
        "sound": {"bytes": datasets.Value("binary"), "path": datasets.Value("string")},
    }
)


def dataset(num_rows: int = 600) -> Any:
    rows = range(num_rows)
    made = datasets.Dataset.from_dict(
        {
            "photo": [{"bytes": file_of(row % 200), "path": None} for row in rows],
            "label": [row % 2 for row in rows],
            "grid": [np.full((2, 3), row, np.float32) for row in rows],
            "tokens": [list(range(row % 5)) for row in rows],
            "text": [f"row {row}" for row in rows],
            "sound": [{"bytes": b"RIFF" + bytes([row % 256]), "path": None} for row in rows],
        },
        features=FEATURES,
    )
    return made.cast_column("sound", datasets.Audio(decode=False))


def check(lake: stoker.Lake, rows: range) -> None:
    table = lake.table("t")
    assert table.num_rows == len(rows)
    kinds = {layout.name: layout.kind for layout in table.describe()}
    assert (kinds["photo"], kinds["grid"], kinds["tokens"]) == (
        "encoded image",
        "tensor float32[2, 3]",
        "ragged int32[*]",
    )
    found = lake.sql("SELECT * FROM t").to_arrow()
    assert found["label"].to_pylist() == [row % 2 for row in rows]
    assert found["label_name"].to_pylist() == [["cat", "dog"][row % 2] for row in rows]
    assert found["photo"].to_pylist() == [file_of(row % 200) for row in rows]
    assert found["tokens"].to_pylist() == [list(range(row % 5)) for row in rows]
    assert found["text"].to_pylist() == [f"row {row}" for row in rows]
    assert found["sound"].to_pylist() == [b"RIFF" + bytes([row % 256]) for row in rows]
    batch = next(iter(lake.sql("SELECT grid FROM t").numpy(batch_size=len(rows), shuffle=False)))
    assert (batch["grid"] == np.array(list(rows), np.float32)[:, None, None]).all()


def test_features_decide_the_columns(empty_lake: stoker.Lake) -> None:
    empty_lake.create_table("t", dataset())
    check(empty_lake, range(600))
    table = empty_lake.table("t")
    assert table.append(dataset(10)).num_rows == 610


def test_a_selection_and_a_stream(empty_lake: stoker.Lake) -> None:
    empty_lake.create_table("t", dataset().select(range(100, 400)))
    check(empty_lake, range(100, 400))
    empty_lake.create_table("t", dataset(300).to_iterable_dataset(), mode="overwrite")
    check(empty_lake, range(300))
    generated = datasets.IterableDataset.from_generator(lambda: iter([{"a": 1}]))
    with pytest.raises(stoker.InvalidRequestError, match="IterableDataset are not known"):
        empty_lake.create_table("u", generated)


def test_files_are_read_into_the_rows(empty_lake: stoker.Lake, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(file_of(7))
    paths = datasets.Dataset.from_dict({"photo": [str(tmp_path / "a.png")]}).cast_column("photo", datasets.Image())
    table = empty_lake.create_table("t", paths)
    assert table.describe()[0].kind == "encoded image"
    assert empty_lake.sql("SELECT photo FROM t").to_arrow()["photo"].to_pylist() == [file_of(7)]
    decoded = datasets.Dataset.from_dict({"photo": [photo(9)]}, features=datasets.Features({"photo": datasets.Image()}))
    table.append(decoded)
    stored = empty_lake.sql("SELECT photo FROM t").to_arrow()["photo"].to_pylist()[1]
    assert (np.asarray(Image.open(io.BytesIO(stored))) == np.asarray(photo(9))).all()


def test_what_does_not_fit_is_named(empty_lake: stoker.Lake, tmp_path: Path) -> None:
    splits = datasets.DatasetDict({"train": dataset(3), "test": dataset(2)})
    with pytest.raises(
        stoker.InvalidRequestError, match=r"which has the splits \['train', 'test'\]: write one of them"
    ):
        empty_lake.create_table("t", splits)
    broken = datasets.Dataset.from_dict(
        {"photo": [{"bytes": file_of(1), "path": None}, {"bytes": b"text", "path": None}]},
        features=datasets.Features({"photo": datasets.Image()}),
    )
    with pytest.raises(stoker.InvalidRequestError, match="column photo row 1"):
        empty_lake.create_table("t", broken)
    (tmp_path / "a.png").write_bytes(file_of(7))
    missing = datasets.Dataset.from_dict({"photo": [str(tmp_path / name) for name in ("a.png", "no.png")]})
    with pytest.raises(stoker.InvalidRequestError, match=r"column photo row 1: expected a file, found .*no\.png"):
        empty_lake.create_table("t", missing.cast_column("photo", datasets.Image()))

    def rows() -> Iterator[dict[str, int]]:
        yield {"a": 1}
        raise RuntimeError("the disk is on fire")

    features = datasets.Features({"a": datasets.Value("int64")})
    with pytest.raises(stoker.InvalidRequestError, match="the dataset raised RuntimeError: the disk is on fire"):
        empty_lake.create_table("t", datasets.IterableDataset.from_generator(rows, features=features))
    assert empty_lake.tables() == []
    assert pa.types.is_int64(FEATURES.arrow_schema.field("label").type)
