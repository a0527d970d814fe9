"""Measures how fast images, sound and video become arrays, beside the libraries that decode them.

    python clients/python/bench/bench_media.py --stoker target/release/stoker

``cargo xtask bench media`` builds what it needs and runs it. Each path decodes the rows of a local table in a loop; its
ceiling or peer decodes the same files in this process, in turn with it, ``--repeat`` times. All have ``--threads``
threads. Figures are medians: rows per second, and milliseconds of processor time per row. ``x`` is the median of the
ratios of the rates of the same turn, and ``x CPU`` that of the processor times.

- JPEG of 256 x 256 at full size: beside libjpeg-turbo alone (``simplejpeg``).
- JPEG of 3000 x 2000 to 224 x 224: beside Pillow with ``draft``, which decodes at a smaller scale too.
- Sound: FLAC of two channels and 10 s, all of it and one second from its middle, beside ``soundfile``, which seeks.
- Video: 8 frames of 640 x 480, four cameras in each row, key frame every 30 frames, H.264 with B frames: beside PyAV's
  decoder on packets in memory (the ceiling), and beside PyAV that seeks to the key frame.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import av
import numpy as np
import pyarrow as pa
import simplejpeg
import soundfile
from PIL import Image

import stoker
from harness.folder import data_folder

_RATE = 44_100
_CAMERAS = 4
_FRAMES, _STRIDE, _KEY_FRAMES, _VIDEO_FRAMES = 8, 1, 30, 300


@dataclass(frozen=True)
class _Figure:
    rows_per_sec: float
    cpu_ms: float


@dataclass(frozen=True)
class _Path:
    """A way to decode rows, what it is compared with, and the bar of the ratio of the rates."""

    name: str
    table: str
    decode: dict[str, Any]
    against: str
    alone: Callable[[Any], Any]
    bar: float
    num_rows: int


def main() -> int:
    """Measures and prints one table; returns the exit status."""
    arguments = _parser().parse_args()
    with data_folder(arguments.dir, "stoker-media-") as folder:
        lake = stoker.connect(str(folder / "lake"))
        paths = [path for path in _paths(lake, arguments.divisor) if arguments.only in path.name]
        found = {path.name: _measure(lake, path, arguments) for path in paths}
    print(f"{arguments.threads} threads, medians of {arguments.repeat} turns; {os.cpu_count()} processors")
    print("| path | beside | rows/s | of the other | x | bar | CPU ms/row | of the other | x CPU |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for path in paths:
        turns = found[path.name]
        ours, other = ([turn[at] for turn in turns] for at in (0, 1))
        rate = median(mine.rows_per_sec / its.rows_per_sec for mine, its in turns)
        cpu = median(mine.cpu_ms / its.cpu_ms for mine, its in turns)
        figures = [median(figure.rows_per_sec for figure in side) for side in (ours, other)]
        times = [median(figure.cpu_ms for figure in side) for side in (ours, other)]
        print(
            f"| {path.name} | {path.against} | {figures[0]:,.1f} | {figures[1]:,.1f} | {rate:.2f} | {path.bar} | "
            f"{times[0]:.2f} | {times[1]:.2f} | {cpu:.2f} |"
        )
    if arguments.json is not None:
        values = {name: [[vars(mine), vars(its)] for mine, its in turns] for name, turns in found.items()}
        arguments.json.write_text(json.dumps(values, indent=2) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure how fast media become arrays.")
    add = parser.add_argument
    add("--only", default="", help="measure the paths whose name has this text")
    add("--repeat", type=int, default=5, help="turns (default %(default)s)")
    add("--threads", type=int, default=1, help="threads that decode (default %(default)s)")
    add("--divisor", type=int, default=1, help="divides the number of rows, for a quick look (default %(default)s)")
    add("--dir", type=Path, help="where the data is written, and kept for the next run; default: a temporary folder")
    add("--stoker", help="the stoker binary; it is not used")
    add("--json", type=Path, help="write all figures to this file")
    return parser


def _measure(lake: stoker.Lake, path: _Path, arguments: argparse.Namespace) -> list[tuple[_Figure, _Figure]]:
    columns = list(path.decode)
    query = lake.sql(f"SELECT {', '.join(columns)} FROM {path.table} LIMIT {path.num_rows}")
    files = [[row[column] for column in columns] for row in query.to_arrow().to_pylist()]

    def decoded() -> int:
        # A new stream in each turn: one that stays open would read and decode ahead beside the other.
        options = {"batch_size": 8, "shuffle": False, "decode": path.decode, "decode_threads": arguments.threads}
        with query.stream(evaluation=True, **options) as stream:
            return sum(batch.num_valid for batch in stream)

    turns = []
    for turn in range(-1, arguments.repeat):  # the first turn warms up
        print(f"{path.name}: turn {turn + 1} of {arguments.repeat}", file=sys.stderr)
        mine = _timed(decoded)
        with ThreadPoolExecutor(arguments.threads) as pool:
            its = _timed(lambda: sum(1 for _ in pool.map(path.alone, files)))
        if turn >= 0:
            turns.append((mine, its))
    return turns


def _timed(decode: Callable[[], int]) -> _Figure:
    begun, used = time.perf_counter(), time.process_time()
    rows = decode()
    elapsed, used = time.perf_counter() - begun, time.process_time() - used
    return _Figure(rows / elapsed, used / rows * 1000)


def _paths(lake: stoker.Lake, divisor: int) -> Iterator[_Path]:
    small = _write(lake, "jpeg_small", 2_000 // divisor, lambda row: {"image": _jpeg(256, 256, row % 50)})
    yield _Path(
        "JPEG 256²",
        "jpeg_small",
        {"image": stoker.ImageTransform(size=256, fit="stretch", layout="hwc", jpeg="turbo")},
        "libjpeg-turbo (simplejpeg)",
        lambda row: simplejpeg.decode_jpeg(row[0]),
        0.95,
        small,
    )
    large = _write(lake, "jpeg_large", max(40 // divisor, 4), lambda row: {"image": _jpeg(2000, 3000, row % 4)})
    for jpeg in ("turbo_scaled", "zune"):
        yield _Path(
            f"JPEG 3000x2000 to 224², {jpeg}",
            "jpeg_large",
            {"image": stoker.ImageTransform(size=224, fit="stretch", layout="hwc", jpeg=jpeg)},
            "Pillow with draft",
            _drafted,
            1.0,
            large,
        )
    sounds = _write(lake, "sounds", 200 // divisor, lambda row: {"sound": _flac(row)})
    yield _Path(
        "FLAC, 10 s",
        "sounds",
        {"sound": stoker.AudioClip(sample_rate=_RATE, seconds=10, mono=False)},
        "soundfile",
        lambda row: soundfile.read(io.BytesIO(row[0]), dtype="float32", always_2d=True)[0],
        0.9,
        sounds,
    )
    yield _Path(
        "FLAC, 1 s of 10",
        "sounds",
        {"sound": stoker.AudioClip(sample_rate=_RATE, seconds=1, start=5.0, mono=False)},
        "soundfile that seeks",
        lambda row: soundfile.read(io.BytesIO(row[0]), start=5 * _RATE, frames=_RATE, dtype="float32")[0],
        0.9,
        sounds,
    )
    cameras = [f"camera_{number}" for number in range(_CAMERAS)]
    made = [_h264(number) for number in range(_CAMERAS)]
    videos = _write(lake, "videos", max(40 // divisor, 4), lambda row: dict(zip(cameras, made, strict=True)))
    start = 100
    clip = stoker.VideoClip(frames=_FRAMES, stride=_STRIDE, start=start, size=(480, 640), layout="thwc")
    packets = {video: _packets(video, start) for video in made}
    for against, alone, bar in (
        ("PyAV's decoder on packets", lambda row: [_decoded(*packets[video], start) for video in row], 0.85),
        ("PyAV that seeks", lambda row: [_sought(video, start) for video in row], 1.0),
    ):
        yield _Path(
            f"{_CAMERAS} cameras x {_FRAMES} frames 640x480, beside {against}",
            "videos",
            dict.fromkeys(cameras, clip),
            against,
            alone,
            bar,
            videos,
        )


def _write(lake: stoker.Lake, name: str, num_rows: int, row: Callable[[int], dict[str, bytes]]) -> int:
    """Writes a table unless it is there; returns its number of rows."""
    try:
        if name in lake.tables():
            return num_rows
    except stoker.NotFoundError:
        pass  # the first table makes the lake
    rows = [row(number) for number in range(num_rows)]
    columns = {key: pa.array([values[key] for values in rows], pa.large_binary()) for key in rows[0]}
    lake.create_table(name, columns)
    return num_rows


def _jpeg(height: int, width: int, seed: int) -> bytes:
    """Returns a file with the statistics of a photograph: smooth shapes with some noise."""
    y, x = np.mgrid[0:height, 0:width]
    noise = np.random.default_rng(seed).integers(0, 16, (height, width))
    wave = np.sin((x + seed * 9) / 17) * np.cos(y / 23) * 90 + 120 + noise
    pixels = np.stack([wave, wave / 2 + x * 100 / width, wave / 3 + y * 100 / height], axis=-1)
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def _drafted(row: Sequence[bytes]) -> np.ndarray:
    image = Image.open(io.BytesIO(row[0]))
    image.draft("RGB", (448, 448))
    return np.asarray(image.resize((224, 224), Image.Resampling.BILINEAR))


def _flac(seed: int) -> bytes:
    time_axis = np.arange(10 * _RATE) / _RATE
    noise = np.random.default_rng(seed).normal(0, 0.01, (len(time_axis), 2))
    tones = 0.3 * np.sin(2 * np.pi * (220 + seed) * time_axis) + 0.1 * np.sin(2 * np.pi * 3_000 * time_axis)
    file = io.BytesIO()
    soundfile.write(file, tones[:, None] + noise, _RATE, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def _h264(seed: int) -> bytes:
    file = io.BytesIO()
    y, x = np.mgrid[0:480, 0:640]
    with av.open(file, "w", format="mp4") as container:
        options = {"g": str(_KEY_FRAMES), "bf": "2", "sc_threshold": "0"}
        stream = container.add_stream("libx264", rate=30, options=options)
        stream.width, stream.height, stream.pix_fmt = 640, 480, "yuv420p"
        for number in range(_VIDEO_FRAMES):
            wave = np.sin((x + number * 3 + seed * 40) / 31) * np.cos((y - number * 2) / 27) * 90 + 120
            planes = np.stack([wave, wave / 2 + x / 6, wave / 3 + y / 6], axis=-1)
            frame = av.VideoFrame.from_ndarray(planes.astype(np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return file.getvalue()


def _packets(video: bytes, start: int) -> tuple[Any, list[Any], list[float]]:
    """Returns the parameters of a video's codec, and the packets from the key frame before a clip to its end."""
    with av.open(io.BytesIO(video)) as container:
        stream = container.streams.video[0]
        all_packets = [packet for packet in container.demux(stream) if packet.size]
        times = sorted(packet.pts for packet in all_packets)
        first, last = times[start], times[start + _FRAMES * _STRIDE - 1]
        key = max(index for index, packet in enumerate(all_packets) if packet.is_keyframe and packet.pts <= first)
        end = max(index for index, packet in enumerate(all_packets) if packet.pts <= last)
        extradata = bytes(stream.codec_context.extradata)
        wanted = [(bytes(packet), packet.pts, packet.dts) for packet in all_packets[key : end + 1]]
    return extradata, wanted, [first, last]


def _decoded(extradata: bytes, packets: Sequence[Any], limits: Sequence[float], start: int) -> int:
    """Decodes packets to planes, and converts the frames of the clip."""
    codec = av.CodecContext.create("h264", "r")
    codec.extradata = extradata
    codec.thread_count = 1
    found = 0
    for data, pts, dts in packets:
        packet = av.Packet(data)
        packet.pts, packet.dts = pts, dts
        found += sum(_kept(frame, limits) for frame in codec.decode(packet))
    found += sum(_kept(frame, limits) for frame in codec.decode(None))
    if found != _FRAMES:
        raise AssertionError(f"{found} frames from frame {start} on, not {_FRAMES}")
    return found


def _kept(frame: Any, limits: Sequence[float]) -> int:
    if not limits[0] <= frame.pts <= limits[1]:
        return 0
    frame.to_ndarray(format="rgb24")
    return 1


def _sought(video: bytes, start: int) -> int:
    found = 0
    with av.open(io.BytesIO(video)) as container:
        stream = container.streams.video[0]
        stream.thread_count = 1
        step = stream.duration / stream.frames
        first = round(start * step)
        container.seek(first, stream=stream)
        for frame in container.decode(stream):
            if frame.pts < first:
                continue
            frame.to_ndarray(format="rgb24")
            found += 1
            if found == _FRAMES:
                break
    return found


if __name__ == "__main__":
    sys.exit(main())
