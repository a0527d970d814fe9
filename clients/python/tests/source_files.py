"""Small sources of every kind, as their own libraries lay them out."""

from __future__ import annotations

import csv
import io
import json
import struct
import tarfile
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
from PIL import Image
from safetensors.numpy import save_file

NUM_ROWS = 12


def jpeg(number: int) -> bytes:
    """Returns the file of an image that differs from those of other numbers."""
    pixels = (np.arange(8 * 6 * 3).reshape(8, 6, 3) * 3 + number * 17) % 256
    out = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(out, "JPEG")
    return out.getvalue()


def put(path: Path, content: bytes | str) -> None:
    """Writes a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def table(numbers: range) -> pa.Table:
    """Returns rows with numbers, texts and lists."""
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "text": [f"row {number}" * (number + 1) for number in numbers],
            "values": pa.array([[float(number)] * 4 for number in numbers], pa.list_(pa.float32())),
        }
    )


def class_folders(folder: Path) -> None:
    for number in range(NUM_ROWS):
        put(folder / f"{'abc'[number % 3]}/{number:02}.jpg", jpeg(number))
    put(folder / "notes.txt", "no image")


def parquet(folder: Path) -> None:
    folder.mkdir()
    for part in range(3):
        pq.write_table(table(range(part * 4, part * 4 + 4)), folder / f"{part}.parquet", row_group_size=2)


def webdataset(folder: Path) -> None:
    folder.mkdir()
    for part, ending in enumerate(["tar", "tar.gz"]):
        with tarfile.open(folder / f"{part}.{ending}", "w:gz" if ending.endswith("gz") else "w") as archive:
            for number in range(part * 6, part * 6 + 6):
                for name, content in {
                    f"{number:03}.jpg": jpeg(number),
                    f"{number:03}.cls": str(number).encode(),
                }.items():
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


def json_lines(folder: Path) -> None:
    for part in range(2):
        rows = [{"id": number, "image": f"images/{number}.jpg"} for number in range(part * 6, part * 6 + 6)]
        put(folder / f"{part}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    for number in range(NUM_ROWS):
        put(folder / f"images/{number}.jpg", jpeg(number))


def comma_separated(folder: Path) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["file", "label", "comment"])
    for number in range(NUM_ROWS):
        writer.writerow([f"{number}.jpg", number, f'"{number}", a comment\nof two lines'])
        put(folder / f"data/{number}.jpg", jpeg(number))
    put(folder / "data/labels.csv", text.getvalue())


def hugging_face(folder: Path) -> None:
    folder.mkdir()
    names = []
    for part in range(2):
        name = f"data-0000{part}-of-00002.arrow"
        rows = table(range(part * 6, part * 6 + 6)).select(["id", "text"])
        with ipc.new_stream(str(folder / name), rows.schema) as writer:
            writer.write_table(rows)
        names.append({"filename": name})
    state = {"_data_files": names, "_fingerprint": "0", "_format_columns": None, "_split": "train"}
    features = {"id": {"dtype": "int64", "_type": "Value"}, "text": {"dtype": "string", "_type": "Value"}}
    put(folder / "state.json", json.dumps(state))
    put(folder / "dataset_info.json", json.dumps({"citation": "", "features": features}))


def npy(folder: Path) -> None:
    folder.mkdir()
    np.save(folder / "x.npy", np.arange(NUM_ROWS * 6, dtype=np.float32).reshape(NUM_ROWS, 2, 3))
    np.save(folder / "y.npy", np.arange(NUM_ROWS))


def npz(folder: Path) -> None:
    folder.mkdir()
    for part, save in enumerate([np.savez, np.savez_compressed]):
        numbers = np.arange(part * 6, part * 6 + 6)
        save(folder / f"{part}.npz", x=numbers[:, None] * np.ones((1, 5), np.float32), y=numbers)


def safetensors(folder: Path) -> None:
    folder.mkdir()
    for part in range(2):
        numbers = np.arange(part * 6, part * 6 + 6)
        save_file({"x": numbers[:, None] * np.ones((1, 5)), "y": numbers}, folder / f"{part}.safetensors")


def mosaic(folder: Path) -> None:
    folder.mkdir()
    shards = []
    for part in range(2):
        samples = []
        for number in range(part * 6, part * 6 + 6):
            text = f"text {number}".encode()
            samples.append(struct.pack("<I", len(text)) + struct.pack("<q", number) + text)
        place = 4 + 4 * (len(samples) + 1)
        places = np.cumsum([place, *map(len, samples)]).astype("<u4").tobytes()
        content = struct.pack("<I", len(samples)) + places + b"".join(samples)
        name = f"shard.0000{part}.mds"
        put(folder / name, content)
        shards.append(
            {
                "column_encodings": ["int", "str"],
                "column_names": ["id", "text"],
                "column_sizes": [8, None],
                "compression": None,
                "format": "mds",
                "hashes": [],
                "raw_data": {"basename": name, "bytes": len(content), "hashes": {}},
                "samples": len(samples),
                "size_limit": 1 << 26,
                "version": 2,
                "zip_data": None,
            }
        )
    put(folder / "index.json", json.dumps({"shards": shards, "version": 2}))


def arrow(folder: Path) -> None:
    folder.mkdir()
    for part, (name, new) in enumerate([("0.arrow", ipc.new_file), ("1.arrows", ipc.new_stream)]):
        rows = table(range(part * 6, part * 6 + 6))
        with new(str(folder / name), rows.schema) as writer:
            writer.write_table(rows, max_chunksize=2)


def sounds(folder: Path) -> None:
    for number in range(NUM_ROWS):
        out = io.BytesIO()
        with wave.open(out, "wb") as sound:
            sound.setparams((1, 2, 8000, 0, "NONE", ""))
            sound.writeframes((np.arange(400) * number % 1000).astype("<i2").tobytes())
        put(folder / f"{'ab'[number % 2]}/{number}.wav", out.getvalue())


def files(folder: Path) -> None:
    for number in range(NUM_ROWS):
        put(folder / f"{number % 3}/{number}.bin", bytes(range(number, number + 50)))


#: For each kind of source, what writes it into a folder, and the arguments of its ingest.
SOURCES: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "imagefolder": (class_folders, ["--size", "8x6"]),
    "encoded imagefolder": (class_folders, ["--images", "encoded"]),
    "parquet": (parquet, []),
    "webdataset": (webdataset, []),
    "jsonl": (json_lines, ["--image", "image"]),
    "csv": (comma_separated, ["--image", "file"]),
    "huggingface": (hugging_face, []),
    "npy": (npy, []),
    "npz": (npz, []),
    "safetensors": (safetensors, []),
    "mds": (mosaic, []),
    "arrow": (arrow, []),
    "audiofolder": (sounds, []),
    "files": (files, ["--as", "files"]),
}
