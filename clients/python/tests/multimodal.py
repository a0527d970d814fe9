"""One table of video, lists of images, sound, text, numbers, vectors, rows of different lengths and nulls.

Some of its columns are compressed, one holds its values with an error, and texts become tokens.

The tests of all frameworks read it.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import av
import numpy as np
import pyarrow as pa
import soundfile
from PIL import Image

import stoker

NUM_ROWS = 18
HEIGHT, WIDTH, RATE = 32, 48, 8_000
SELECTED = "FROM scenes WHERE split = 'train' AND id % 9 <> 4"
QUERY = (
    "SELECT id, clip, views, speech, caption, emb, tokens, score, frame, depth, marks, half, title, "
    f"upper(title) AS letters {SELECTED}"
)
PACKED = f"SELECT id, tokens, half {SELECTED}"
WEIGHTED = f"SELECT id, depth, marks, half, title, CAST(id % 3 AS REAL) AS weight {SELECTED}"
KEPT = [row for row in range(NUM_ROWS) if row % 3 and row % 9 != 4]

#: A tokenizer of words, among which are the numbers of rows.
WORDS = json.dumps(
    {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {
            "type": "WordLevel",
            "unk_token": "?",
            "vocab": {"?": 0, "scene": 1, "<pad>": 2} | {str(row): 3 + row for row in range(NUM_ROWS)},
        },
    }
)
TITLE = stoker.Tokenizer(WORDS, length=3, pad="<pad>")


def letters_of(text: str) -> np.ndarray:
    return np.frombuffer(text.encode().ljust(20), np.uint8)


DECODE = {
    "clip": stoker.VideoClip(frames=3, stride=2, start="frame", size=(HEIGHT, WIDTH)),
    "views": stoker.ImageTransform(size=(HEIGHT, WIDTH), images=2),
    "speech": stoker.AudioClip(sample_rate=RATE, seconds=0.25, mono=False, channels=1),
    "title": TITLE,
    "letters": stoker.Decoder(letters_of, shape=20, dtype="uint8"),
}
#: The columns that all frameworks have as arrays.
KEYS = (
    *("id", "clip", "clip_mask", "views", "speech", "speech_length", "emb", "tokens", "score", "letters"),
    *("depth", "marks", "num_marks", "half", "title", "title_mask", "title_length"),
)
PAD = {"tokens": stoker.Pad(length=8, lengths="num_tokens"), "marks": stoker.Pad(length=40, lengths="num_marks")}


def picture(number: int) -> np.ndarray:
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    return np.stack([(x * 5 + number) % 256, (y * 7 + number * 3) % 256, (x + y + number) % 256], -1).astype(np.uint8)


def png(number: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture(number)).save(file, "PNG")
    return file.getvalue()


def video(row: int) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=10, options={"g": "6", "bf": "2"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(30):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture(row * 5 + number * 4), format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


def sound(row: int) -> np.ndarray:
    return (np.sin(np.arange(1_500 + row * 100) * (0.05 + row / 100)) * 20_000).astype(np.int16)


def flac(row: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, sound(row), RATE, format="FLAC")
    return file.getvalue()


def depth(row: int) -> np.ndarray:
    values = np.sin(np.arange(240, dtype=np.float32) / 30 + row).reshape(4, 60)
    values[1, 7] = np.nan if row % 4 == 2 else -0.0
    return values


def marks(row: int) -> list[int]:
    return [row * 1_000 + at % 3 for at in range(row * 5 % 37)]


def half(row: int) -> np.ndarray:
    return (np.arange(6, dtype=np.float32) * 1.7 + row * 0.31) / 3


def title(row: int) -> str:
    return f"scene {row}" + (" by night" if row % 2 else "")


def make_videos() -> list[bytes]:
    return [video(row) for row in range(NUM_ROWS)]


def make_table(lake: stoker.Lake, videos: list[bytes]) -> None:
    """Writes the table `scenes`."""
    rows = range(NUM_ROWS)
    lake.create_table(
        "scenes",
        {
            "id": np.arange(NUM_ROWS, dtype=np.int32),
            "clip": pa.array(videos, pa.large_binary()),
            "views": pa.array(
                [[png(row + view) for view in range(row % 4)] for row in rows], pa.list_(pa.large_binary())
            ),
            "speech": pa.array([flac(row) for row in rows], pa.large_binary()),
            "caption": [f"scene {row}" for row in rows],
            "emb": (np.arange(NUM_ROWS)[:, None] + np.arange(4) / 8).astype(np.float32),
            "tokens": pa.array([[row * 10 + at for at in range(row % 6)] for row in rows], pa.list_(pa.int32())),
            "score": pa.array([None if row % 5 == 1 else row for row in rows], pa.int32()),
            "frame": np.arange(NUM_ROWS, dtype=np.int32),
            "split": ["train" if row % 3 else "test" for row in rows],
            "depth": np.stack([depth(row) for row in rows]),
            "marks": pa.array([marks(row) for row in rows], pa.list_(pa.int32())),
            "half": np.stack([half(row) for row in rows]),
            "title": [title(row) for row in rows],
        },
        compression={"depth": "pco", "marks": "zstd", "half": "float16"},
    )


def expected(row: int, frames: np.ndarray) -> dict[str, Any]:
    """Returns the values of a row as the libraries read them that wrote them."""
    samples = sound(row).astype(np.float32)[: RATE // 4] / 32_768
    return {
        "clip": frames[[row, row + 2, row + 4]] if row + 4 < 30 else frames[[min(row + 2 * at, 29) for at in range(3)]],
        "views": [picture(row + view).transpose(2, 0, 1) for view in range(min(row % 4, 2))],
        "speech": np.pad(samples, (0, RATE // 4 - len(samples)))[None],
        "tokens": [row * 10 + at for at in range(row % 6)],
        "score": None if row % 5 == 1 else row,
    }


def stated_error(lake: stoker.Lake) -> float:
    """Returns the largest error of `half` that the table states; it is a rounding to float16."""
    (error,) = (layout.max_abs_error for layout in lake.table("scenes").describe() if layout.name == "half")
    assert error is not None
    assert 0 < error <= max(half(row).max() for row in range(NUM_ROWS)) / 2**11
    return error


def check_compressed(values: dict[str, np.ndarray], row: int, at: int, error: float) -> None:
    """Compares the compressed columns of a row bit by bit, and the lossy one within its stated error."""
    np.testing.assert_array_equal(values["depth"][at].view(np.uint32), depth(row).view(np.uint32))
    assert values["marks"][at, : len(marks(row))].tolist() == marks(row)
    assert values["num_marks"][at] == len(marks(row))
    check_half(values["half"][at], row, error)
    ids = [1, 3 + row, 0 if row % 2 else 2]
    assert values["title"][at].tolist() == ids
    assert values["title_mask"][at].tolist() == [True, True, row % 2 == 1]
    assert values["title_length"][at] == 2 + row % 2


def check_half(found: np.ndarray, row: int, error: float) -> None:
    assert found.dtype == np.float16
    assert np.abs(found.astype(np.float64) - half(row).astype(np.float64)).max() <= error


def check_row(values: dict[str, np.ndarray], row: int, at: int, frames: np.ndarray) -> None:
    """Compares row ``at`` of a batch: lossless values bit by bit, the colours of a video within 2 of 255."""
    wanted = expected(row, frames)
    assert np.abs(values["clip"][at].astype(int) - wanted["clip"].astype(int)).max() <= 2
    assert values["views_length"][at] == len(wanted["views"])
    for view, image in enumerate(wanted["views"]):
        np.testing.assert_array_equal(values["views"][at, view], image)
    assert not values["views"][at, len(wanted["views"]) :].any()
    np.testing.assert_array_equal(values["speech"][at], wanted["speech"])
    assert values["tokens"][at, : len(wanted["tokens"])].tolist() == wanted["tokens"]
    assert values["num_tokens"][at] == len(wanted["tokens"])
    assert values["score"][at] == (wanted["score"] or 0)
    assert values["score_valid"][at] == (wanted["score"] is not None)
    np.testing.assert_array_equal(values["emb"][at], row + np.arange(4, dtype=np.float32) / 8)
    assert bytes(values["letters"][at]) == title(row).upper().encode().ljust(20)


def batches(lake: stoker.Lake, framework: str) -> Iterator[dict[str, np.ndarray]]:
    """Yields the batches of a framework as NumPy arrays."""
    query = lake.sql(QUERY)
    options: dict[str, Any] = {"batch_size": 4, "seed": 5, "decode": DECODE, "ragged": PAD, "last_batch": "pad"}
    if framework == "tensorflow":
        # tf.data has no null masks; the mask of the stream's batches is the one that the others have.
        plain = query.numpy(null_masks=["score"], valid_key="valid", **options)
        for batch, other in zip(query.tensorflow(valid_key="valid", **options), plain, strict=True):
            yield {name: value.numpy() for name, value in batch.items()} | {"score_valid": other["score_valid"]}
        return
    yield from loaded(query, framework, null_masks=["score"], **options)


def loaded(query: stoker.Query, framework: str, **options: Any) -> Iterator[dict[str, np.ndarray]]:
    """Yields the batches of a framework's loader as NumPy arrays."""
    for batch in getattr(query, framework)(valid_key="valid", **options):
        yield {name: value if isinstance(value, list) else np.asarray(value) for name, value in batch.items()}


def check_all(lake: stoker.Lake, framework: str, videos: list[bytes]) -> None:
    """Compares all rows that a framework gets with what was written."""
    decoded: dict[int, np.ndarray] = {}
    seen, error = [], stated_error(lake)
    for values in batches(lake, framework):
        for at, row in enumerate(values["id"].tolist()):
            if not values["valid"][at]:
                continue
            if row not in decoded:
                with av.open(io.BytesIO(videos[row])) as container:
                    images = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
                decoded[row] = np.stack(images).transpose(0, 3, 1, 2)
            check_row(values, row, at, decoded[row])
            check_compressed(values, row, at, error)
            caption = values["caption"][at]
            assert (caption.decode() if isinstance(caption, bytes) else caption) == f"scene {row}"
            seen.append(row)
    assert sorted(seen) == KEPT


def check_equal(lake: stoker.Lake, framework: str) -> None:
    """Compares the arrays of a framework with those of NumPy, bit by bit."""
    for values, others in zip(batches(lake, "numpy"), batches(lake, framework), strict=True):
        for key in KEYS:
            np.testing.assert_array_equal(values[key], others[key], err_msg=f"{framework} {key}")


def check_packs(lake: stoker.Lake, framework: str) -> None:
    """Compares the documents of all packs with what was written."""
    options: dict[str, Any] = {"batch_size": 2, "seed": 5, "pack": stoker.Pack("tokens", length=12, pad=-1)}
    error, seen = stated_error(lake), []
    for values in loaded(lake.sql(PACKED), framework, ragged="pad", last_batch="pad", **options):
        for pack in np.flatnonzero(values["valid"]):
            tokens, documents, ends = (values[name][pack] for name in ("tokens", "document_ids", "cu_seqlens"))
            assert tokens[documents == 0].tolist() == [-1] * int((documents == 0).sum())
            for index in range(documents.max()):
                row = int(values["id"][pack, index])
                inside = tokens[documents == index + 1].tolist()
                assert (
                    inside == tokens[ends[index] : ends[index + 1]].tolist() == [row * 10 + at for at in range(row % 6)]
                )
                check_half(values["half"][pack, index], row, error)
                seen.append(row)
    assert sorted(seen) == [row for row in KEPT if row % 6]


def check_weights(lake: stoker.Lake, framework: str) -> None:
    """Checks that rows come as often as they weigh, each with what was written."""
    options: dict[str, Any] = {"batch_size": 4, "seed": 5, "weight": "weight", "last_batch": "pad"}
    options |= {"decode": {"title": TITLE}, "ragged": {"marks": PAD["marks"]}}
    seen, error = Counter[int](), stated_error(lake)
    for values in loaded(lake.sql(WEIGHTED), framework, **options):
        for at in np.flatnonzero(values["valid"]):
            row = int(values["id"][at])
            check_compressed(values, row, at, error)
            seen[row] += 1
    assert seen == {row: row % 3 for row in KEPT}
