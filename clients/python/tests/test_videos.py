"""Videos are sent as files, and decoded to clips in the client."""

from __future__ import annotations

import ctypes.util
import io
from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pytest

import stoker
from stoker import _native

HEIGHT, WIDTH = 48, 64

#: The format and the encoder of each video, and its pixels.
FORMATS = [
    ("mp4", "libx264", "yuv420p"),
    ("matroska", "libx264", "yuv420p"),
    ("mp4", "libx265", "yuv420p"),
    ("mp4", "libx264", "yuv444p"),
    ("webm", "libvpx-vp9", "yuv420p"),
]

#: Those of videos with more than 8 bits. Chroma lies left of the middle of pixels, or in it.
FORMATS_OF_MANY_BITS = [
    ("matroska", "libx264", "yuv420p10le"),
    ("matroska", "libx264", "yuv422p10le"),
    ("matroska", "libx264", "yuv444p10le"),
    ("mp4", "libx265", "yuv420p10le"),
    ("mp4", "libx265", "yuv422p10le"),
    ("mp4", "libx265", "yuv420p12le"),
    ("mp4", "libx265", "yuv444p12le"),
]

NUM_ROWS = 10


def length_of(row: int) -> int:
    return 20 + 5 * (row % 4)


def encoded(row: int, num_frames: int | None = None) -> bytes:
    """Returns the video of a row."""
    return encoded_as(FORMATS[row % len(FORMATS)], row, length_of(row) if num_frames is None else num_frames)


def encoded_as(form: tuple[str, str, str], row: int, num_frames: int) -> bytes:
    """Returns a video with key frames every 8 frames, and B frames where the codec has them."""
    kind, codec, pixels = form
    file = io.BytesIO()
    with av.open(file, "w", format=kind) as container:
        options = {"g": "8", "bf": "2"} | ({"x265-params": "log-level=none:keyint=8"} if codec == "libx265" else {})
        stream = container.add_stream(codec, rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, pixels
        y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
        for number in range(num_frames):
            planes = [(x * 3 + number * 5 + row) % 256, (y * 5 + number * 3) % 256, (x + y + number * 7) % 256]
            frame = av.VideoFrame.from_ndarray(np.stack(planes, axis=-1).astype(np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return file.getvalue()


def reference(file: bytes) -> np.ndarray:
    """Returns all frames as PyAV decodes them: uint8 of shape (frames, channels, height, width)."""
    with av.open(io.BytesIO(file)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return np.stack(frames).transpose(0, 3, 1, 2)


@pytest.fixture(scope="module")
def videos() -> list[bytes]:
    return [encoded(row) for row in range(NUM_ROWS)]


@pytest.fixture(scope="module")
def frames(videos: list[bytes]) -> list[np.ndarray]:
    return [reference(video) for video in videos]


@pytest.fixture(scope="module")
def own_lake(videos: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> stoker.Lake:
    """A lake with the table `videos`."""
    lake = stoker.connect(str(tmp_path_factory.mktemp("videos")))
    rows = np.arange(NUM_ROWS)
    columns = {"id": rows, "video": pa.array(videos, pa.large_binary()), "frame_index": rows, "time": rows / 25}
    lake.create_table("videos", columns)
    return lake


def clips(stream: stoker.Stream) -> dict[int, tuple[np.ndarray, int, list[bool]]]:
    found = {}
    for batch in stream:
        rows = zip(batch["id"], batch["video"], batch["video_length"], batch["video_mask"], batch.valid, strict=True)
        for row, clip, length, mask, valid in rows:
            if valid:
                found[int(row)] = (clip.copy(), int(length), mask.tolist())
    return found


def check(clip: np.ndarray, frames: np.ndarray, positions: Sequence[int]) -> None:
    assert clip.shape == (len(positions), 3, HEIGHT, WIDTH)
    for found, position in zip(clip, positions, strict=True):
        assert np.abs(found.astype(int) - frames[position].astype(int)).max() <= 2, position


@pytest.mark.parametrize("start", [5, 0.2, "frame_index", "time"])
def test_frames_are_those_of_pyav(place: stoker.Lake, frames: list[np.ndarray], start: int | float | str) -> None:
    clip = stoker.VideoClip(frames=4, stride=2, start=start, size=(HEIGHT, WIDTH))
    query = place.sql("SELECT id, video, frame_index, time FROM videos")
    stream = query.stream(batch_size=4, seed=7, decode={"video": clip})
    assert stoker.tensor_shape(stream.schema.field("video")) == clip.shape == (4, 3, HEIGHT, WIDTH)
    assert stream.schema.names == ["id", "video", "frame_index", "time", "video_length", "video_mask"]
    found = clips(stream)
    assert sorted(found) == list(range(NUM_ROWS))
    for row, (tensor, length, mask) in found.items():
        first = row if isinstance(start, str) else 5
        check(tensor, frames[row], [first, first + 2, first + 4, first + 6])
        assert (length, mask) == (4, [True] * 4)


def test_colours_are_those_of_pyav(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    formats = FORMATS + FORMATS_OF_MANY_BITS
    videos = [encoded_as(form, row, 4) for row, form in enumerate(formats)]
    lake.create_table("videos", {"id": np.arange(len(videos)), "video": pa.array(videos, pa.large_binary())})
    clip = stoker.VideoClip(frames=4, start=0, size=(HEIGHT, WIDTH))
    found = clips(lake.sql("SELECT id, video FROM videos").stream(batch_size=4, decode={"video": clip}))
    for row, (_, codec, pixels) in enumerate(formats):
        difference = np.abs(found[row][0].astype(int) - reference(videos[row]).astype(int)).max()
        # libswscale converts chroma of each pixel by other instructions.
        assert difference <= (1 if "444" in pixels else 0), (codec, pixels, difference)


def test_clips_past_the_end_repeat_the_last_frame(place: stoker.Lake, frames: list[np.ndarray]) -> None:
    clip = stoker.VideoClip(frames=6, start=17, size=(HEIGHT, WIDTH))
    found = clips(place.sql("SELECT id, video FROM videos").stream(batch_size=4, decode={"video": clip}))
    for row, (tensor, length, mask) in found.items():
        last = len(frames[row]) - 1
        check(tensor, frames[row], [min(17 + number, last) for number in range(6)])
        assert length == min(6, last - 16)
        assert mask == [17 + number <= last for number in range(6)]


def test_uniform_clips_span_the_video(place: stoker.Lake, frames: list[np.ndarray]) -> None:
    clip = stoker.VideoClip(frames=3, start="uniform", size=(HEIGHT, WIDTH))
    found = clips(place.sql("SELECT id, video FROM videos").stream(batch_size=4, decode={"video": clip}))
    for row, (tensor, _, _) in found.items():
        last = len(frames[row]) - 1
        check(tensor, frames[row], [0, (last + 1) // 2, last])


def test_times_around_a_start_have_a_mask(place: stoker.Lake, frames: list[np.ndarray]) -> None:
    times = [-0.2, 0.0, 0.04, 0.4]
    clip = stoker.VideoClip(frames=4, start="frame_index", delta_timestamps=times, size=(HEIGHT, WIDTH))
    query = place.sql("SELECT id, video, frame_index FROM videos")
    for row, (tensor, _, mask) in clips(query.stream(batch_size=4, decode={"video": clip})).items():
        last = len(frames[row]) - 1
        wanted = [row + round(time * 25) for time in times]
        assert mask == [0 <= position <= last for position in wanted]
        check(tensor, frames[row], [min(max(position, 0), last) for position in wanted])


def test_random_clips_are_functions_of_seed_and_position(place: stoker.Lake, frames: list[np.ndarray]) -> None:
    clip = stoker.VideoClip(frames=3, size=(HEIGHT, WIDTH))
    query = place.sql("SELECT id, video FROM videos")
    stream = query.stream(batch_size=4, seed=7, decode={"video": clip})
    first, second = clips(stream), clips(stream)
    halves: dict[int, tuple[np.ndarray, int, list[bool]]] = {}
    for rank in range(2):
        halves |= clips(query.stream(batch_size=3, seed=7, rank=rank, world_size=2, decode={"video": clip}))
    for row in range(NUM_ROWS):
        np.testing.assert_array_equal(first[row][0], halves[row][0])
        distances = [np.abs(frame.astype(int) - first[row][0][0]).max() for frame in frames[row]]
        start = int(np.argmin(distances))
        check(first[row][0], frames[row], [start, start + 1, start + 2])
    assert any(not np.array_equal(first[row][0], second[row][0]) for row in range(NUM_ROWS))


@pytest.mark.parametrize("layout", ["thwc", "cthw"])
def test_layouts_hold_the_same_frames(place: stoker.Lake, layout: str) -> None:
    query = place.sql("SELECT id, video FROM videos")
    options = {"frames": 3, "start": 2, "size": (30, 40)}
    plain = clips(query.stream(batch_size=4, decode={"video": stoker.VideoClip(**options)}))
    clip = stoker.VideoClip(layout=layout, **options)
    axes = (0, 3, 1, 2) if layout == "thwc" else (1, 0, 2, 3)
    for row, (tensor, _, _) in clips(query.stream(batch_size=4, decode={"video": clip})).items():
        assert tensor.shape == clip.shape
        np.testing.assert_array_equal(tensor.transpose(axes), plain[row][0])


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "lying", "null"])
def test_bad_videos_are_bad_rows(videos: list[bytes], tmp_path: Path, damage: str) -> None:
    good = videos[0]
    # The first box after the type is the table of the movie or its data; four bytes of it lie about its size.
    bad = {"empty": b"", "text": b"no video, only text", "cut": good[: len(good) // 2], "null": None}
    bad["lying"] = good.replace(b"stsz", b"stsz", 1).replace(
        b"stsz" + good[good.index(b"stsz") + 4 : good.index(b"stsz") + 16],
        b"stsz" + good[good.index(b"stsz") + 4 : good.index(b"stsz") + 12] + b"\xff\xff\xff\xff",
    )
    lake = stoker.connect(str(tmp_path))
    values = [bad[damage] if row == 3 else good for row in range(8)]
    lake.create_table("t", {"id": np.arange(8), "video": pa.array(values, pa.large_binary())})
    decode = {"video": stoker.VideoClip(frames=2, start=18, size=16)}
    query = lake.sql("SELECT id, video FROM t")
    with pytest.raises(stoker.DataCorruptError, match=r"column video, row id 3 of t version 1.*the video cannot be"):
        for _ in query.stream(batch_size=4, shuffle=False, decode=decode):
            pass
    options = {"decode": decode, "bad_rows": "substitute", "max_bad_share": 1}
    rows = [row for batch in query.stream(batch_size=4, **options) for row in batch["id"].tolist()]
    assert len(rows) == 8
    assert 3 not in rows


def test_starts_outside_of_a_video_are_named(place: stoker.Lake) -> None:
    query = place.sql("SELECT id, video FROM videos")
    for start, words in ((1000, "1000"), (99.0, "99")):
        clip = stoker.VideoClip(frames=2, start=start, size=16)
        with pytest.raises(stoker.DataCorruptError, match=words):
            for _ in query.stream(batch_size=4, decode={"video": clip}):
                pass


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"frames": 0}, "frames"),
        ({"stride": 0}, "stride"),
        ({"start": -1}, "start"),
        ({"start": float("inf")}, "start"),
        ({"start": "uniform", "stride": 2}, "stride"),
        ({"delta_timestamps": [0.0]}, "offsets"),
        ({"size": (0, 5)}, "size"),
        ({"size": 60_000}, "size"),
        ({"layout": "hwct"}, "layout"),
        ({"interpolation": "best"}, "interpolation"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, words: str) -> None:
    with pytest.raises(stoker.InvalidRequestError, match=words):
        stoker.VideoClip(**{"frames": 8, **options})


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    (tmp_path / "libavcodec.so.61").write_bytes(b"no library")
    clip = stoker.VideoClip(frames=2)
    request = {**clip._request(), "libraries": [str(tmp_path)]}
    found = ctypes.util.find_library("avcodec")
    if found is not None:
        _native.check_decoder("video", request)  # a library of the system is there
        return
    with pytest.raises(stoker.InvalidRequestError, match="pip install av") as missing:
        _native.check_decoder("video", request)
    assert str(tmp_path) in str(missing.value)
