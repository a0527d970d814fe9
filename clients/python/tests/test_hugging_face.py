"""Images as Hugging Face stores them, structs of a file's bytes and its path, become encoded images."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stoker


def images() -> pa.Table:
    files = [{"bytes": b"\xff\xd8\xff" + bytes([row]) * 3_000, "path": f"{row}.jpg"} for row in range(6)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    features = {"info": {"features": {"image": {"_type": "Image"}, "label": {"_type": "Value"}}}}
    schema = pa.schema([("image", kind), ("label", pa.int64())], metadata={"huggingface": json.dumps(features)})
    return pa.table([pa.array([*files[:5], None], kind), pa.array(range(6))], schema)


def check_images(table: stoker.Table, lake: stoker.Lake) -> None:
    """Checks that the bytes are a heavy column of images, and that the doctor finds nothing about structs."""
    (layout, _) = table.describe()
    assert (layout.name, layout.kind, layout.heavy) == ("image", "encoded image", True)
    assert [finding.code for finding in table.doctor()] == ["variable_width"]
    values = lake.sql("SELECT image FROM t ORDER BY label").to_arrow()["image"].to_pylist()
    assert values == [None if file is None else file["bytes"] for file in images()["image"].to_pylist()]


def test_parquet_of_hugging_face_becomes_encoded_images(tmp_path: Path) -> None:
    pq.write_table(images(), tmp_path / "a.parquet")
    command = [os.environ["STOKER_BIN"], "ingest", "parquet", str(tmp_path / "a.parquet"), "t", "--lake", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    lake = stoker.connect(str(tmp_path))
    check_images(lake.table("t"), lake)
    subprocess.run([*command, "--mode", "overwrite", "--as-is", "image"], check=True, capture_output=True, timeout=120)
    assert pa.types.is_struct(lake.table("t").schema.field("image").type)


def test_doctor_names_structs_of_files_and_its_lines_mend_them(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    (finding,) = lake.create_table("t", images()).doctor()
    assert (finding.column, finding.code) == ("image", "struct")
    assert "stoker ingest parquet" in finding.remedy
    assert finding.example is not None
    exec(finding.example, {"lake": lake})
    check_images(lake.table("t"), lake)


def test_small_structs_are_fine(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    boxes = pa.array([{"x": row, "y": row} for row in range(5)])
    assert lake.create_table("t", pa.table({"box": boxes})).doctor() == []


def test_encoded_images_takes_the_bytes_of_structs(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    for data in (images(), {"image": images()["image"], "label": range(6)}):
        check_images(lake.create_table("t", data, mode="overwrite", encoded_images=["image"]), lake)
    broken = pa.array([{"bytes": b"text", "path": "0.txt"}])
    with pytest.raises(stoker.InvalidRequestError, match="column image"):
        lake.create_table("u", pa.table({"image": broken}), encoded_images=["image"])
