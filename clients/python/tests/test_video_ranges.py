"""Of videos with an index, only the frames of a clip are read and sent; the clips are those of whole files."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import stoker_bin
from test_videos import FORMATS, HEIGHT, WIDTH, clips, encoded

import stoker

NUM_ROWS = 12
#: The columns of the table, but the videos.
COLUMNS = "id, frame_index, time, stop, until"
#: Where clips begin, and other options that choose frames.
CHOICES: list[dict[str, Any]] = [
    {"frames": 4, "stride": 2, "start": 5},
    {"frames": 3, "start": 0.24},
    {"frames": 3, "start": "frame_index"},
    {"frames": 3, "start": "time"},
    {"frames": 5, "start": "random"},
    {"frames": 4, "start": "uniform"},
    {"frames": 6, "start": 17},
    {"frames": 4, "start": "frame_index", "delta_timestamps": [-0.2, 0.0, 0.04, 0.4]},
    {
        "frames": 4,
        "start": "frame_index",
        "delta_timestamps": [-0.2, 0.0, 0.04, 0.4],
        "within": ("frame_index", "stop"),
    },
    {"frames": 3, "start": "random", "within": ("time", "until")},
]


def noisy(row: int, num_frames: int = 96) -> bytes:
    """Returns a video of large frames, with a key frame every 8 frames."""
    random = np.random.default_rng(row)
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=25, options={"g": "8", "bf": "2", "crf": "12"})
        stream.width, stream.height, stream.pix_fmt = 128, 128, "yuv420p"
        for _ in range(num_frames):
            pixels = random.integers(0, 256, (128, 128, 3), dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


def needed(file: bytes, first: int, last: int) -> tuple[int, int]:
    """Returns the range of a file from the key frame before frame `first` to the end of frame `last`, by PyAV."""
    with av.open(io.BytesIO(file)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    shown = sorted(range(len(packets)), key=lambda number: packets[number].pts)
    wanted = [shown[position] for position in range(first, last + 1)]
    key = max(number for number in range(min(wanted) + 1) if packets[number].is_keyframe)
    end = packets[max(wanted)]
    return packets[key].pos, end.pos + end.size


def columns(videos: list[bytes | None]) -> dict[str, Any]:
    rows = np.arange(len(videos))
    files = pa.array(videos, pa.large_binary())
    bounds = {"stop": rows + 8, "until": rows / 25 + 0.5}
    return {"id": rows, "video": files, "frame_index": rows, "time": rows / 25, **bounds}


@pytest.fixture(scope="module")
def own_lake(tmp_path_factory: pytest.TempPathFactory) -> stoker.Lake:
    """A lake with the same videos in the tables `plain`, without indexes, and `indexed`."""
    lake = stoker.connect(str(tmp_path_factory.mktemp("ranges")))
    videos = [encoded(row) for row in range(NUM_ROWS)]
    lake.create_table("plain", columns(videos))
    lake.create_table("indexed", columns(videos[:7]), videos=["video"]).append(columns(videos[:0]))
    rest = {name: values[7:] for name, values in columns(videos).items()}
    lake.table("indexed").append(rest)
    # Two cameras.
    data = columns(videos) | {"other": pa.array(videos[::-1], pa.large_binary())}
    lake.create_table("cameras", data, videos=["video", "other"])
    return lake


def equal(found: dict[int, tuple[Any, ...]], expected: dict[int, tuple[Any, ...]]) -> None:
    assert sorted(found) == sorted(expected)
    for row, (tensor, length, mask) in expected.items():
        np.testing.assert_array_equal(found[row][0], tensor)
        assert found[row][1:] == (length, mask)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_clips_are_those_of_whole_files(place: stoker.Lake, choice: dict[str, Any]) -> None:
    decode = {"video": stoker.VideoClip(size=(HEIGHT, WIDTH), **choice)}
    options: dict[str, Any] = {"batch_size": 4, "seed": 7, "decode": decode}
    plain = place.sql(f"SELECT {COLUMNS}, video FROM plain").stream(**options)
    indexed = place.sql(f"SELECT {COLUMNS}, video FROM indexed").stream(**options)
    for _ in range(2):
        equal(clips(indexed), clips(plain))
    assert indexed.stats().bytes_read > 0 or place.target.startswith("grpc")
    assert plain.stats().bytes_read == 0 or place.target.startswith("grpc")


def test_resumed_streams_of_any_ranks_have_the_same_clips(place: stoker.Lake) -> None:
    query = place.sql("SELECT id, video FROM indexed")
    decode = {"video": stoker.VideoClip(frames=3, size=(HEIGHT, WIDTH))}
    whole = clips(query.stream(batch_size=4, seed=7, decode=decode))
    equal(clips(place.sql("SELECT id, video FROM plain").stream(batch_size=4, seed=7, decode=decode)), whole)
    ranks: dict[int, tuple[Any, ...]] = {}
    for rank in range(3):
        ranks |= clips(query.stream(batch_size=2, seed=7, rank=rank, world_size=3, decode=decode))
    equal(ranks, whole)
    # A state of a stream of whole files continues with clips, and the other way round.
    for first, second in (({}, {"decode": decode}), ({"decode": decode}, {})):
        stream = query.stream(batch_size=4, seed=7, **first)
        batches = iter(stream)
        begun = [next(batches)["id"].tolist()]
        state = stream.state_dict()
        resumed = query.stream(batch_size=4, seed=7, **second)
        resumed.load_state_dict(state)
        begun += [batch["id"].tolist() for batch in resumed]
        assert sorted(row for rows in begun for row in rows) == list(range(NUM_ROWS))
        assert stream.state_dict()["stream_id"] == resumed.state_dict()["stream_id"]
    stream = query.stream(batch_size=4, seed=7, decode=decode)
    next(iter(stream))
    resumed = query.stream(batch_size=4, seed=7, decode=decode)
    resumed.load_state_dict(stream.state_dict())
    for row, clip in clips(resumed).items():
        np.testing.assert_array_equal(clip[0], whole[row][0])


def test_two_cameras_have_clips_of_their_own(place: stoker.Lake) -> None:
    size = (HEIGHT, WIDTH)
    decode = {"video": stoker.VideoClip(frames=2, size=size), "other": stoker.VideoClip(frames=3, start=4, size=size)}
    stream = place.sql("SELECT id, video, other FROM cameras").stream(batch_size=5, seed=3, decode=decode)
    found = {int(row): clip for batch in stream for row, clip in zip(batch["id"], batch["other"], strict=True)}
    alone = {"video": decode["other"]}
    expected = clips(place.sql("SELECT id, video FROM plain").stream(batch_size=5, decode=alone))
    for row in range(NUM_ROWS):
        np.testing.assert_array_equal(found[row], expected[NUM_ROWS - 1 - row][0])
    both = clips(place.sql("SELECT id, video, other FROM cameras").stream(batch_size=5, seed=3, decode=decode))
    first = {"video": decode["video"]}
    equal(both, clips(place.sql("SELECT id, video FROM plain").stream(batch_size=5, seed=3, decode=first)))


def test_mixtures_and_joins_read_clips(place: stoker.Lake) -> None:
    decode = {"video": stoker.VideoClip(frames=2, size=(HEIGHT, WIDTH))}
    found, expected = (
        clips(
            stoker.mix(
                [
                    (place.sql(f"SELECT id, video FROM {table} WHERE id < 5"), 1),
                    (place.sql(f"SELECT id, video FROM {table}"), 2),
                ]
            ).stream(batch_size=4, seed=7, decode=decode)
        )
        for table in ("indexed", "plain")
    )
    equal(found, expected)
    found, expected = (
        clips(
            place.sql(f"SELECT p.id, v.video FROM plain p JOIN {table} v ON p.id = v.id + 1").stream(
                batch_size=4, seed=7, decode=decode
            )
        )
        for table in ("indexed", "plain")
    )
    assert len(found) == NUM_ROWS - 1
    equal(found, expected)


def test_only_the_frames_of_a_clip_are_read(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    videos: list[bytes | None] = [noisy(row) for row in range(6)]
    lake.create_table("t", columns(videos), videos=["video"])
    query = lake.sql("SELECT id, video FROM t")
    stream = query.stream(batch_size=2, decode={"video": stoker.VideoClip(frames=4, start=45, size=64)})
    assert len(clips(stream)) == 6
    ranges = [needed(video, 45, 48) for video in videos if video is not None]
    frames = sum(end - start for start, end in ranges)
    indexes = lake.sql("SELECT octet_length(video_index) AS n FROM t").to_arrow()["n"].to_pylist()
    assert frames <= stream.stats().bytes_read <= 1.1 * frames + sum(indexes)
    assert 3 * stream.stats().bytes_read < sum(len(video) for video in videos if video is not None)


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_damaged_frame_is_found(tmp_path: Path, is_wanted: bool) -> None:
    path = tmp_path / "lake"
    lake = stoker.connect(str(path))
    videos: list[bytes | None] = [noisy(row, 40) for row in range(8)]
    lake.create_table("t", columns(videos), videos=["video"])
    video = videos[3]
    assert video is not None
    start, end = needed(video, 17, 18) if is_wanted else needed(video, 33, 34)
    damaged = 0
    for file in (path / "t.lance" / "data").iterdir():
        stored = bytearray(file.read_bytes())
        at = stored.find(video)
        if at >= 0:
            stored[at + (start + end) // 2] ^= 1
            file.write_bytes(stored)
            damaged += 1
    assert damaged == 1
    query = stoker.connect(str(path)).sql("SELECT id, video FROM t")
    options: dict[str, Any] = {"batch_size": 4, "decode": {"video": stoker.VideoClip(frames=2, start=17, size=16)}}
    if not is_wanted:
        assert len(clips(query.stream(**options))) == 8
        return
    with pytest.raises(stoker.DataCorruptError, match=r"of t@1 is bad: the checksum of column video"):
        clips(query.stream(**options))
    seen: dict[int, list[int]] = {}
    for world_size in (1, 2):
        seen[world_size] = sorted(
            int(row)
            for rank in range(world_size)
            for batch in query.stream(
                rank=rank, world_size=world_size, bad_rows="substitute", max_bad_share=1, seed=5, **options
            )
            for row in batch["id"]
        )
        assert 3 not in seen[world_size]
        assert len(seen[world_size]) == 8
    assert seen[1] == seen[2]


def test_describe_tells_of_indexes_and_files_without_frames_are_refused(own_lake: stoker.Lake, tmp_path: Path) -> None:
    layouts = {layout.name: layout for layout in own_lake.table("indexed").describe()}
    assert layouts["video"].kind == "encoded video, frames in video_index"
    assert layouts["video_index"].kind == "frames of the videos in video"
    assert not layouts["video_index"].heavy
    indexes = own_lake.sql("SELECT id, video_index FROM indexed ORDER BY id").to_arrow()
    assert indexes["video_index"].null_count == 0
    lake = stoker.connect(str(tmp_path))
    good = encoded(0)
    with pytest.raises(stoker.InvalidRequestError, match=r"column video, row 2.*it is no MP4"):
        lake.create_table("t", columns([good, None, b"text"]), videos=["video"])
    with pytest.raises(stoker.InvalidRequestError, match="videos names"):
        lake.create_table("t", columns([good]), videos=["clip"])
    table = lake.create_table("t", columns([good, None]), videos=["video"])
    with pytest.raises(stoker.InvalidRequestError, match=r"column video, row 0.*it is no MP4"):
        table.append(columns([b"text"]))
    assert lake.table("t").num_rows == 2
    assert lake.sql("SELECT video_index IS NULL AS n FROM t ORDER BY id").to_arrow()["n"].to_pylist() == [False, True]


def test_changed_videos_have_new_indexes(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    videos: list[bytes | None] = [encoded(row) for row in range(4)]
    lake.create_table("t", columns(videos), videos=["video"])
    lake.create_table("u", columns(videos[::-1]))
    decode = {"video": stoker.VideoClip(frames=2, start=9, size=(HEIGHT, WIDTH))}
    old = clips(lake.sql("SELECT id, video FROM t").stream(batch_size=2, decode=decode))
    lake.execute("UPDATE t SET video = u.video FROM u WHERE t.id = u.id")
    names = "video, frame_index, time, stop, until"
    lake.execute(f"INSERT INTO t (id, {names}) SELECT id + 10, {names} FROM u")
    # The index of another file: the file is read as a whole.
    lake.execute("UPDATE t SET video_index = (SELECT video_index FROM t WHERE id = 0) WHERE id = 1")
    found = clips(lake.sql("SELECT id, video FROM t").stream(batch_size=2, decode=decode))
    for row in range(4):
        np.testing.assert_array_equal(found[row][0], old[3 - row][0])
        np.testing.assert_array_equal(found[row + 10][0], old[3 - row][0])


def test_parquet_files_get_indexes(tmp_path: Path) -> None:
    videos: list[bytes | None] = [encoded(row) for row in range(len(FORMATS))]
    pq.write_table(pa.table({"id": range(len(videos)), "clip": pa.array(videos)}), tmp_path / "videos.parquet")
    command = [stoker_bin(), "ingest", "parquet", "--lake", str(tmp_path / "lake"), "--quiet", "--video", "clip"]
    subprocess.run([*command, str(tmp_path / "videos.parquet"), "t"], check=True)
    lake = stoker.connect(str(tmp_path / "lake"))
    assert lake.table("t").schema.names == ["id", "clip", "clip_index"]
    stream = lake.sql("SELECT id, clip FROM t").stream(
        batch_size=2, decode={"clip": stoker.VideoClip(frames=2, start=9, size=16)}
    )
    assert sum(int(batch.valid.sum()) for batch in stream) == len(videos)
    assert stream.stats().bytes_read > 0
    pq.write_table(pa.table({"id": [0], "clip": [b"text"]}), tmp_path / "text.parquet")
    refused = subprocess.run(
        [*command, str(tmp_path / "text.parquet"), "u"], capture_output=True, text=True, check=False
    )
    assert refused.returncode != 0
    assert "text.parquet" in refused.stderr
    assert "it is no MP4" in refused.stderr
