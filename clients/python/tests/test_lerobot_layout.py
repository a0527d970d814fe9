"""Datasets in LeRobot's Lance layout are streamed in place: frames are joined with their videos."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Literal

import av
import lance
import numpy as np
import pyarrow as pa
import pytest

import stoker

FPS = 25
HEIGHT, WIDTH = 48, 64
CAMERA = "observation.images.top"
OTHER_CAMERA = "observation.images.wrist"

#: The frames of each episode. The first two are in one file, the third is in another.
EPISODES = [17, 24, 30]
FILES = [[0, 1], [2]]

#: The times around each frame, as LeRobot's `delta_timestamps`.
DELTAS = [-2 / FPS, 0.0, 3 / FPS]

#: The episodes tell in which file a frame is, and where in it the episode begins.
QUERY = f"""
SELECT f.index, f.timestamp + e.from_timestamp AS video_time, f.observation_state, f.action, v.video_bytes,
    e.from_timestamp, e.to_timestamp
FROM frames f
JOIN episodes e ON e.episode_index = f.episode_index AND e.video_key = '{CAMERA}'
JOIN videos v ON v.video_key = e.video_key AND v.chunk_index = e.chunk_index AND v.file_index = e.file_index
"""


def encoded(num_frames: int, seed: int) -> bytes:
    """Returns an H.264 video with key frames every 8 frames, and B frames."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"g": "8", "bf": "2"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
        for number in range(num_frames):
            planes = [(x * 3 + number * 5 + seed) % 256, (y * 5 + number * 3) % 256, (x + y + number * 7 + seed) % 256]
            frame = av.VideoFrame.from_ndarray(np.stack(planes, axis=-1).astype(np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return file.getvalue()


def decoded(file: bytes) -> np.ndarray[Any, Any]:
    """Returns all frames as PyAV decodes them: uint8 of shape (frames, channels, height, width)."""
    with av.open(io.BytesIO(file), "r") as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return np.stack(frames).transpose(0, 3, 1, 2)


def key_frames(file: bytes) -> tuple[list[int], list[int]]:
    """Returns the numbers of the key frames, and their positions in the file, as LeRobot's converter notes them."""
    with av.open(io.BytesIO(file), "r") as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.pts is not None and packet.is_keyframe]
        indices = [round(float((packet.pts or 0) * packet.time_base) * FPS) for packet in packets]
        return indices, [packet.pos or 0 for packet in packets]


def frames_table() -> pa.Table:
    episodes = np.repeat(np.arange(len(EPISODES)), EPISODES)
    numbers = np.concatenate([np.arange(length) for length in EPISODES])
    index = np.arange(sum(EPISODES))
    vectors = np.stack([index, -index], axis=1).astype(np.float32)
    return pa.table(
        {
            "observation_state": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 2),
            "action": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel() + 1), 2),
            "timestamp": pa.array((numbers / FPS).astype(np.float32)),
            "frame_index": pa.array(numbers),
            "episode_index": pa.array(episodes),
            "index": pa.array(index),
            "task_index": pa.array(np.zeros_like(index)),
        }
    )


def write_videos(root: Path, files: dict[tuple[str, int], bytes], version: Literal["2.1", "2.2"]) -> None:
    """Writes the table `videos`, whose column `video_bytes` has blobs."""
    found = [key_frames(data) for data in files.values()]
    columns = {
        "video_key": pa.array([key for key, _ in files]),
        "chunk_index": pa.array([0] * len(files)),
        "file_index": pa.array([number for _, number in files]),
        "file_size": pa.array([len(data) for data in files.values()]),
        "kf_indices": pa.array([indices for indices, _ in found], pa.list_(pa.int64())),
        "kf_positions": pa.array([positions for _, positions in found], pa.list_(pa.int64())),
    }
    blobs: pa.Array = pa.array(list(files.values()), pa.large_binary())
    field = pa.field("video_bytes", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    if version == "2.2":
        blobs, field = lance.blob_array(list(files.values())), lance.blob_field("video_bytes")
    table = pa.table(columns).append_column(field, blobs)
    lance.write_dataset(table, str(root / "videos.lance"), data_storage_version=version)


@pytest.fixture(scope="module")
def files() -> dict[tuple[str, int], bytes]:
    """The videos of two cameras, by camera and number of the file."""
    lengths = [sum(EPISODES[episode] for episode in episodes) for episodes in FILES]
    cameras = [(CAMERA, 0), (OTHER_CAMERA, 100)]
    return {
        (camera, number): encoded(length, seed + 40 * number)
        for camera, seed in cameras
        for number, length in enumerate(lengths)
    }


@pytest.fixture(scope="module", params=["2.1", "2.2"])
def own_lake(
    request: pytest.FixtureRequest, files: dict[tuple[str, int], bytes], tmp_path_factory: pytest.TempPathFactory
) -> stoker.Lake:
    root = tmp_path_factory.mktemp("lerobot")
    lance.write_dataset(frames_table(), str(root / "frames.lance"), data_storage_version=request.param)
    write_videos(root, files, request.param)
    lake = stoker.connect(str(root))
    # LeRobot keeps these columns in meta/episodes/*.parquet.
    rows = [(camera, number, episode) for camera, number in files for episode in FILES[number]]
    begins = [sum(EPISODES[other] for other in FILES[number] if other < episode) for _, number, episode in rows]
    columns = {
        "episode_index": np.array([episode for *_, episode in rows]),
        "video_key": [camera for camera, *_ in rows],
        "chunk_index": np.zeros(len(rows), np.int64),
        "file_index": np.array([number for _, number, _ in rows]),
        "from_timestamp": np.array(begins) / FPS,
        "to_timestamp": (np.array(begins) + [EPISODES[episode] for *_, episode in rows]) / FPS,
    }
    lake.create_table("episodes", columns)
    return lake


@pytest.mark.parametrize("within", [None, ("from_timestamp", "to_timestamp")])
@pytest.mark.parametrize("shuffle", [False, "block"])
def test_frames_have_the_pixels_around_them(
    place: stoker.Lake,
    files: dict[tuple[str, int], bytes],
    shuffle: Literal[False, "block"],
    within: tuple[str, str] | None,
) -> None:
    clip = stoker.VideoClip(
        frames=len(DELTAS), start="video_time", delta_timestamps=DELTAS, within=within, size=(HEIGHT, WIDTH)
    )
    query = place.sql(QUERY + ("" if shuffle else "ORDER BY f.index"))
    stream = query.stream(batch_size=8, seed=3, shuffle=shuffle, decode={"video_bytes": clip})
    assert stream.num_rows == sum(EPISODES)
    pixels = {number: decoded(data) for (camera, number), data in files.items() if camera == CAMERA}
    numbers = {}
    for number, episodes in enumerate(FILES):
        indices = np.flatnonzero(np.isin(frames_table()["episode_index"], episodes)).tolist()
        numbers.update({index: (number, at) for at, index in enumerate(indices)})
    ends = np.cumsum(EPISODES)
    episodes = {index: int(np.searchsorted(ends, index, side="right")) for index in numbers}
    seen = []
    for batch in stream:
        for row in np.flatnonzero(batch.valid):
            index = int(batch["index"][row])
            seen.append(index)
            assert batch["observation_state"][row].tolist() == [index, -index]
            assert batch["action"][row].tolist() == [index + 1, -index + 1]
            number, at = numbers[index]
            first, last = 0, len(pixels[number]) - 1
            if within is not None:
                # LeRobot repeats and masks at the ends of the episode.
                episode = episodes[index]
                first = at - (index - int(ends[episode]) + EPISODES[episode])
                last = first + EPISODES[episode] - 1
            wanted = [round(at + delta * FPS) for delta in DELTAS]
            assert batch["video_bytes_mask"][row].tolist() == [first <= frame <= last for frame in wanted]
            for found, frame in zip(batch["video_bytes"][row], wanted, strict=True):
                expected = pixels[number][min(max(frame, first), last)]
                assert np.abs(found.astype(int) - expected.astype(int)).max() <= 2, (index, frame)
    assert sorted(seen) == list(range(sum(EPISODES)))
    assert (seen == sorted(seen)) is not bool(shuffle)


def test_clips_need_columns_with_bounds(place: stoker.Lake) -> None:
    for within, words in [
        (("from_timestamp",), "it must be the names of two columns"),
        ("from_timestamp", "it must be the names of two columns"),
        (("from_timestamp", ""), "within has a column without a name"),
    ]:
        with pytest.raises(stoker.InvalidRequestError, match=words):
            stoker.VideoClip(frames=1, within=within)  # type: ignore[arg-type]
    clip = stoker.VideoClip(frames=1, start="video_time", within=("from_timestamp", "end"), size=(HEIGHT, WIDTH))
    with pytest.raises(stoker.StokerError, match="cannot decode column video_bytes with column end"):
        place.sql(QUERY).stream(batch_size=2, decode={"video_bytes": clip})
    # The bounds of the next episode: no frame of these rows is among them.
    query = QUERY.replace("e.from_timestamp, e.to_timestamp", "e.to_timestamp, e.to_timestamp + 0.2 AS past")
    clip = stoker.VideoClip(frames=1, start="video_time", within=("to_timestamp", "past"), size=(HEIGHT, WIDTH))
    with pytest.raises(stoker.StokerError, match=r"frames within its bounds|have no frames of the video"):
        list(place.sql(query).stream(batch_size=2, decode={"video_bytes": clip}))


def test_a_query_of_the_frames_alone_reads_no_videos(place: stoker.Lake) -> None:
    found = place.sql("SELECT episode_index, count(*) AS n FROM frames GROUP BY episode_index ORDER BY 1").to_arrow()
    assert found["n"].to_pylist() == EPISODES
    described = {layout.name: layout for layout in place.table("videos").describe()}
    assert (described["video_bytes"].kind, described["kf_indices"].kind) == ("blob", "ragged int64[*]")
