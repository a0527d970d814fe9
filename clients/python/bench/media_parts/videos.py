"""Videos: clips of several cameras beside PyAV, once on packets in memory and once with a seek."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import av
import numpy as np

import stoker
from harness.turns import Pair
from media_parts.tables import Files, decoding

__all__ = ["CAMERAS", "FRAMES", "START", "clip", "decoded", "h264", "packets_of", "pairs"]

#: The number of different videos.
CAMERAS = 4
#: The frames of a clip, and its first one.
FRAMES, START = 8, 100
_STRIDE, _KEY_FRAMES, _VIDEO_FRAMES = 1, 30, 300


def clip() -> stoker.VideoClip:
    """Returns the decoder of a clip."""
    return stoker.VideoClip(frames=FRAMES, stride=_STRIDE, start=START, size=(480, 640), layout="thwc")


def pairs(lake: stoker.Lake, divisor: int, threads: int) -> Iterator[Pair]:
    """Yields the pairs; ``divisor`` divides the number of rows."""
    cameras = [f"camera_{number}" for number in range(CAMERAS)]
    made = lambda _: [h264(number) for number in range(CAMERAS)]  # noqa: E731
    files = Files(lake, "videos", cameras, max(40 // divisor, 4), made)
    for beside, alone, bar in (
        ("PyAV's decoder on packets", lambda row: [decoded(*packets_of(video, START), START) for video in row], 0.85),
        ("PyAV that seeks", lambda row: [_sought(video, START) for video in row], 1.0),
    ):
        name = f"{CAMERAS} cameras x {FRAMES} frames 640x480, beside {beside}"
        yield decoding(name, files, clip(), beside, alone, bar, threads)


@cache
def h264(seed: int, noise: int = 0) -> bytes:
    """Returns a video with B frames, and a key frame every ``_KEY_FRAMES`` frames. Noise makes its frames larger."""
    file, random = io.BytesIO(), np.random.default_rng(seed)
    y, x = np.mgrid[0:480, 0:640]
    with av.open(file, "w", format="mp4") as container:
        options = {"g": str(_KEY_FRAMES), "bf": "2", "sc_threshold": "0"}
        stream = container.add_stream("libx264", rate=30, options=options)
        stream.width, stream.height, stream.pix_fmt = 640, 480, "yuv420p"
        for number in range(_VIDEO_FRAMES):
            wave = np.sin((x + number * 3 + seed * 40) / 31) * np.cos((y - number * 2) / 27) * 90 + 120
            if noise:
                wave += random.integers(-noise, noise + 1, wave.shape)
            planes = np.stack([wave, wave / 2 + x / 6, wave / 3 + y / 6], axis=-1)
            frame = av.VideoFrame.from_ndarray(planes.astype(np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return file.getvalue()


@cache
def packets_of(video: bytes, start: int) -> tuple[Any, list[Any], list[float]]:
    """Returns the parameters of a video's codec, and the packets from the key frame before a clip to its end."""
    with av.open(io.BytesIO(video)) as container:
        stream = container.streams.video[0]
        all_packets = [packet for packet in container.demux(stream) if packet.size]
        times = sorted(packet.pts for packet in all_packets)
        first, last = times[start], times[start + FRAMES * _STRIDE - 1]
        key = max(index for index, packet in enumerate(all_packets) if packet.is_keyframe and packet.pts <= first)
        end = max(index for index, packet in enumerate(all_packets) if packet.pts <= last)
        extradata = bytes(stream.codec_context.extradata)
        wanted = [(bytes(packet), packet.pts, packet.dts) for packet in all_packets[key : end + 1]]
    return extradata, wanted, [first, last]


def decoded(extradata: bytes, packets: Sequence[Any], limits: Sequence[float], start: int) -> int:
    """Decodes packets to planes, and converts the frames of the clip. Returns their number."""
    codec = av.CodecContext.create("h264", "r")
    codec.extradata = extradata
    codec.thread_count = 1
    found = 0
    for data, pts, dts in packets:
        packet = av.Packet(data)
        packet.pts, packet.dts = pts, dts
        found += sum(_kept(frame, limits) for frame in codec.decode(packet))
    found += sum(_kept(frame, limits) for frame in codec.decode(None))
    if found != FRAMES:
        raise AssertionError(f"{found} frames from frame {start} on, not {FRAMES}")
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
            if found == FRAMES:
                break
    return found
