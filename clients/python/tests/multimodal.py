"""One table of video, lists of images, sound, text, numbers, vectors, rows of different lengths and nulls.

The tests of all frameworks read it.
"""

from __future__ import annotations

import io
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
QUERY = (
    "SELECT id, clip, views, speech, caption, emb, tokens, score, frame FROM scenes "
    "WHERE split = 'train' AND id % 9 <> 4"
)
KEPT = [row for row in range(NUM_ROWS) if row % 3 and row % 9 != 4]

DECODE = {
    "clip": stoker.VideoClip(frames=3, stride=2, start="frame", size=(HEIGHT, WIDTH)),
    "views": stoker.ImageTransform(size=(HEIGHT, WIDTH), images=2),
    "speech": stoker.AudioClip(sample_rate=RATE, seconds=0.25, mono=False, channels=1),
}
PAD = stoker.Pad(length=8, lengths="num_tokens")


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
        },
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
    loader = getattr(query, framework)(null_masks=["score"], valid_key="valid", **options)
    for batch in loader:
        yield {name: value if isinstance(value, list) else np.asarray(value) for name, value in batch.items()}


def check_all(lake: stoker.Lake, framework: str, videos: list[bytes]) -> None:
    """Compares all rows that a framework gets with what was written."""
    decoded: dict[int, np.ndarray] = {}
    seen = []
    for values in batches(lake, framework):
        for at, row in enumerate(values["id"].tolist()):
            if not values["valid"][at]:
                continue
            if row not in decoded:
                with av.open(io.BytesIO(videos[row])) as container:
                    images = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
                decoded[row] = np.stack(images).transpose(0, 3, 1, 2)
            check_row(values, row, at, decoded[row])
            caption = values["caption"][at]
            assert (caption.decode() if isinstance(caption, bytes) else caption) == f"scene {row}"
            seen.append(row)
    assert sorted(seen) == KEPT


def check_equal(lake: stoker.Lake, framework: str) -> None:
    """Compares the arrays of a framework with those of NumPy, bit by bit."""
    for values, others in zip(batches(lake, "numpy"), batches(lake, framework), strict=True):
        for key in ("id", "clip", "clip_mask", "views", "speech", "speech_length", "emb", "tokens", "score"):
            np.testing.assert_array_equal(values[key], others[key], err_msg=f"{framework} {key}")
